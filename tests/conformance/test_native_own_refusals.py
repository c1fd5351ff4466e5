"""Libraries and classes that cannot be environments are refused with a sentence."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from own_environments import LIBRARIES, build

from envfleet import EnvRaisedError, _native, make_vec, native
from envfleet.native.own import abi

faulty = partial(build, LIBRARIES / "faulty.c")


def test_without_a_mistake_it_is_taken(tmp_path: Path) -> None:
    with make_vec(native.load(faulty(tmp_path / "fine.so", "-DMISTAKE=(void)0")), 2) as envs:
        envs.reset(seed=1)
        assert envs.step(np.zeros(2, np.int64))[0].shape == (2, 2)


MISTAKES = {
    "environment.abi_version = 99": "built for version 99 of envfleet_env.h .* this is version 1",
    "environment.struct_size = 8": "with a struct of 8 bytes",
    "return 0": "returned NULL",
    "environment.step = 0": r"it has no function step\(\)",
    "environment.name = 0": "its name is missing",
    'environment.name = "\\xff"': "its name is not UTF-8",
    "environment.state_size = 1ull << 40": "1099511627776 bytes, more than a gigabyte",
    "environment.max_episode_steps = -3": "max_episode_steps must be positive, or 0",
    "environment.num_parameters = 4000000000u": "4000000000 parameters, which are not there",
    "environment.parameters = 0": "2 parameters, which are not there",
    "parameters[1].name = parameters[0].name": "parameter speed is declared twice",
    "parameters[1].type = ENVFLEET_UINT8": "neither FLOAT64 nor INT64 nor BOOL",
    'parameters[1].name = "step"': "'step' cannot be a parameter's name",
    'parameters[1].name = "a b"': "'a b' cannot be a parameter's name",
    "environment.observation.kind = 9": "the kind of the observation space is 9",
    "environment.observation.type = 77": "numbers of the observation space cannot be of type 77",
    "environment.observation.ndim = 1000": "observation space is said to have 1000 dimensions",
    "environment.observation.shape = 0": "1 dimensions, which are not there",
    "shape[0] = -2": r"the impossible shape \(-2,\)",
    "shape[0] = 1ll << 60": "the impossible shape",
    "environment.observation.low = 2": "needs bounds, the lower ones first",
    "environment.observation.low = environment.observation.high = 0": "needs bounds",
    "environment.observation.type = ENVFLEET_INT32, environment.observation.high = 1e400": "needs finite bounds",
    "environment.action.counts = 0": "the action space needs positive counts, got none",
    "counts[0] = 0": r"the action space needs positive counts, got \[0\]",
    "environment.observation.kind = ENVFLEET_MULTI_DISCRETE, environment.observation.ndim = 2": (
        "MULTI_DISCRETE of 2 dimensions instead of one"
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_library_with_a_mistake_is_refused(mistake: str, tmp_path: Path) -> None:
    library = faulty(tmp_path / "faulty.so", f"-DMISTAKE={mistake}", "-w")
    with pytest.raises(native.LibraryError, match=MISTAKES[mistake]):
        native.load(library)


MESSAGES = {
    '""': r"error 1 \(without a message\)",
    '" \\n"': r"error 1 \(without a message\)",
    '"\\xff\\xfe broken"': r"\\xff\\xfe broken",
    '"half a letter \\xe2\\x82"': r"half a letter \\xe2\\x82",
    '"\\xed\\xa0\\x80 surrogate"': r"\\xed\\xa0\\x80 surrogate",
    '"\\xe2\\x82\\xac fine"': "€ fine",
}


@pytest.mark.parametrize("message", MESSAGES)
def test_whatever_a_library_says_of_an_error_the_environment_is_named(message: str, tmp_path: Path) -> None:
    library = native.load(faulty(tmp_path / "odd.so", "-DMISTAKE=(void)0", f"-DMESSAGE={message}"))
    for backend in ("native", "sync"):
        with make_vec(library, 3, backend) as envs:
            envs.reset(seed=1)
            with pytest.raises(EnvRaisedError, match=f"Environment 1 .*{MESSAGES[message]}"):
                envs.step(np.array([0, 1, 0]))
            envs.reset()
            with pytest.raises(EnvRaisedError, match=r"Environment 2 .*error 2"):
                envs.step(np.array([0, 0, 2]))


def test_a_library_without_the_function_is_refused(tmp_path: Path) -> None:
    library = faulty(tmp_path / "other.so", "-DMISTAKE=(void)0", "-DEXPORTED=something_else")
    with pytest.raises(native.LibraryError, match=r"does not export envfleet_get_environment\(\)"):
        native.load(library)


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(native.LibraryError, match=r"text.so is no shared library"):
        native.load(text)
    with pytest.raises(native.LibraryError, match="There is no library"):
        native.load(tmp_path / "absent.so")


def test_python_and_the_compiler_agree_about_the_structs() -> None:
    ours = {"random": abi.Random, "space": abi.Space, "parameter": abi.Parameter, "outcome": abi.Outcome}
    sizes = {f"envfleet_{name}": ctypes.sizeof(struct) for name, struct in ours.items()}
    assert _native.abi_sizes() == {**sizes, "envfleet_environment": ctypes.sizeof(abi.Environment)}


def test_the_header_is_c_plus_plus_too(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler: neither c++ nor g++")
    source = tmp_path / "header.cpp"
    source.write_text('#include <envfleet_env.h>\nstatic_assert(ENVFLEET_ABI_VERSION == 1, "");\n')
    strict = ("-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only")
    subprocess.run([compiler, *strict, f"-I{native.include_dir()}", str(source)], check=True, timeout=60)


# --- from Python -----------------------------------------------------------------------------------------


class Still:
    """Does nothing, as an environment should look."""

    def reset(self: Any, random: Any) -> None:
        self.x = random.random()

    def step(self: Any, action: Any, random: Any) -> tuple[float, bool]:
        return self.x, False

    def observe(self: Any, observation: Any) -> None:
        observation[0] = self.x


class Untranslatable(Still):
    """Uses what numba does not know."""

    def reset(self: Any, random: Any) -> None:
        self.x = float(str(self).isidentifier())

    step, observe = Still.step, Still.observe


def compiled(source: type = Still, **changes: Any) -> native.CompiledEnvironment:
    arguments: dict[str, Any] = {
        "observation_space": Box(0, 1, (1,), np.float64),
        "action_space": Discrete(2),
        "state": [("x", float)],
    }
    return native.compile(**{**arguments, **changes})(source)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "float32 state": ({"state": [("x", np.float32)]}, "the state 'x' must be float, int or bool, not float32"),
    "dict space": ({"observation_space": Dict(a=Discrete(2))}, "it must be Box, Discrete or MultiDiscrete"),
    "start": ({"action_space": Discrete(2, start=1)}, "it must start at 0"),
    "two dimensions": ({"action_space": MultiDiscrete([[2, 2], [2, 2]])}, "it must have one dimension"),
    "float16": ({"observation_space": Box(0, 1, (1,), np.float16)}, "numbers cannot be of type float16"),
    "string": ({"parameters": {"mode": "fast"}}, "parameter mode must be a float, an int or a bool, got 'fast'"),
    "taken name": ({"parameters": {"spec": 1.0}}, "'spec' cannot be a parameter's name"),
    "twice": ({"parameters": {"x": 1.0}}, "'x' cannot be the name of more than one field"),
    "limit": ({"max_episode_steps": 0}, "max_episode_steps must be a positive integer or None, got 0"),
    "no methods": ({"source": int}, r"int needs a method reset\(self, random\)"),
    "arguments": (
        {"source": type("Odd", (), {**vars(Still), "step": lambda self, action: (0.0, False)})},
        r"Odd.step must take \(self, action, random\), not \(self, action\)",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_class_that_cannot_be_an_environment_is_refused(what: str) -> None:
    changes, message = WRONG[what]
    with pytest.raises((TypeError, ValueError), match=message):
        compiled(**changes)


def test_what_numba_cannot_compile_is_refused_or_run_by_python() -> None:
    pytest.importorskip("numba")
    environment = compiled(Untranslatable)
    with pytest.raises(TypeError, match="does not support Untranslatable, which numba cannot compile"):
        make_vec(environment, 2, "native")
    with make_vec(environment, 2) as envs:
        assert "Not native, which does not support Untranslatable, which numba cannot compile" in envs.plan
        assert envs.reset(seed=1)[0].tolist() == [[0.0], [0.0]]


def test_without_numba_native_says_what_to_install_and_auto_goes_without() -> None:
    code = """
import sys
sys.modules["numba"] = None
import numpy as np
from gymnasium.spaces import Box, Discrete
import envfleet

@envfleet.native.compile(observation_space=Box(0, 1, (1,)), action_space=Discrete(2), state=[("x", float)])
class Still:
    def reset(self, random):
        self.x = random.random()
    def step(self, action, random):
        return self.x, False
    def observe(self, observation):
        observation[0] = self.x

try:
    envfleet.make_vec(Still, 2, "native")
except TypeError as error:
    print(error)
with envfleet.make_vec(Still, 2) as envs:
    print(type(envs).__name__, envs.plan)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    refused, fallen_back = done.stdout.splitlines()
    assert 'does not support Still without numba, which compiles it: pip install "envfleet[numba]"' in refused
    assert fallen_back.startswith("SyncVectorEnv")
    assert "without numba" in fallen_back
