"""The suite itself: complete, explained, free of clashes, and able to fail."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import envfleet.testing
from envfleet.testing import (
    ContractBase,
    FirstReadyContract,
    GymnasiumContract,
    TimeoutsContract,
    VectorEnvContract,
    assert_same,
)
from envfleet.testing.envs import EnvFn

TOPICS: list[type[ContractBase]] = [
    getattr(envfleet.testing, name)
    for name in envfleet.testing.__all__
    if name.endswith("Contract") and name not in ("GymnasiumContract", "VectorEnvContract")
]


def test_every_public_name_exists() -> None:
    assert sorted(envfleet.testing.__all__) == envfleet.testing.__all__
    for name in envfleet.testing.__all__:
        assert getattr(envfleet.testing, name).__doc__
    with pytest.raises(AttributeError, match="nothing"):
        envfleet.testing.nothing  # noqa: B018


def test_the_contract_is_all_topics() -> None:
    assert set(VectorEnvContract.__mro__) >= set(TOPICS) - {FirstReadyContract, TimeoutsContract}


def rules_of(contract: type[ContractBase]) -> set[str]:
    return {name for name in dir(contract) if name.startswith("test_")}


def test_the_levels_are_nested() -> None:
    assert rules_of(GymnasiumContract) < rules_of(VectorEnvContract)
    for level in (part for part in VectorEnvContract.__mro__ if part.__name__.startswith("Gymnasium")):
        assert issubclass(GymnasiumContract, level)


def test_a_failing_test_says_its_rule() -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        SYNC.test_the_callers_options_are_never_mutated()
    assert caught.value.__notes__ == [
        "The rule: Neither the vector env nor an environment that writes into its options changes the caller's dict."
    ]


class Modest(GymnasiumContract):
    """Has one mode and no optional arguments."""

    autoreset_modes = (gym.vector.AutoresetMode.NEXT_STEP,)
    arguments = ()

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> Any:
        assert set(kwargs) <= {"autoreset_mode"}
        return gym.vector.SyncVectorEnv(env_fns, **kwargs)


def test_what_a_vector_env_does_not_have_is_skipped_by_name() -> None:
    modest = Modest()
    modest.test_copied_observations_are_safe_to_keep()
    for name, test in (
        ("SAME_STEP", modest.test_same_step_without_an_ending_has_no_final_keys),
        ("copy", modest.test_uncopied_observations_are_a_live_view),
        ("observation_mode", modest.test_same_refuses_spaces_that_differ),
    ):
        with pytest.raises(pytest.skip.Exception, match=f"Modest.* has no {name}"):
            test()


def test_no_topic_hides_a_name_of_another() -> None:
    owners = defaultdict(list)
    for topic in TOPICS:
        for name in vars(topic):
            if not name.startswith("__"):
                owners[name].append(topic.__name__)
    assert {name: topics for name, topics in owners.items() if len(topics) > 1} == {}


def test_every_test_says_its_rule_in_one_sentence() -> None:
    for topic in TOPICS:
        for name, test in inspect.getmembers(topic, inspect.isfunction):
            if name.startswith("test_"):
                sentence = inspect.getdoc(test) or ""
                assert sentence.endswith("."), f"{topic.__name__}.{name}"
                assert "\n" not in sentence, f"{topic.__name__}.{name}"


def test_a_contract_without_make_says_so() -> None:
    with pytest.raises(NotImplementedError, match="make"):
        VectorEnvContract().make([])


@pytest.mark.parametrize("missing", ["pytest", "hypothesis"])
def test_a_missing_requirement_is_explained(missing: str) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
import envfleet.testing.envs
try:
    from envfleet.testing import VectorEnvContract
except ImportError as error:
    print(error)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 'pip install "envfleet[testing]"' in output
    assert missing in output


def test_the_suite_needs_nothing_but_pytest_and_hypothesis() -> None:
    code = """
import sys
for name in ("torch", "matplotlib", "psutil", "numba", "ray", "ale_py", "Box2D", "mujoco", "pygame", "tyro"):
    sys.modules[name] = None
import envfleet.testing
print(all(getattr(envfleet.testing, name) for name in envfleet.testing.__all__))
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "True\n"


def test_workers_do_not_pay_for_pytest() -> None:
    code = "import sys, envfleet.testing.envs; print(sorted({'pytest', 'hypothesis'} & set(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"


class Gymnasium(VectorEnvContract):
    """Gymnasium's own vector envs under the contract."""

    def __init__(self, backend: Callable[..., Any], **kwargs: Any) -> None:
        self.backend, self.kwargs = backend, kwargs

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> Any:
        return self.backend(env_fns, **self.kwargs, **kwargs)


SYNC = Gymnasium(gym.vector.SyncVectorEnv)
ASYNC = Gymnasium(gym.vector.AsyncVectorEnv, context="fork")
PIPES = Gymnasium(gym.vector.AsyncVectorEnv, context="fork", shared_memory=False)

DEFECTS: dict[str, Callable[[], None]] = {
    "Text frozen": lambda: ASYNC.test_every_space_travels_both_ways("Text", True),
    "OneOf frozen": lambda: ASYNC.test_every_space_travels_both_ways("OneOf arrays", True),
    "reset forgets a pending autoreset": PIPES.test_a_reset_clears_a_pending_autoreset,
    "finished env stepped": ASYNC.test_disabled_refuses_to_step_a_finished_environment,
    "options mutated": SYNC.test_the_callers_options_are_never_mutated,
    "NumPy seed refused": lambda: ASYNC.test_numpy_integers_are_integers(np.int64(7)),
    "info dtype of the first env": lambda: SYNC.test_a_column_has_the_type_of_all_its_values("int then float"),
    "NumPy booleans as objects": lambda: SYNC.test_a_column_has_the_type_of_all_its_values("numpy bools"),
    "reward of shape (1,)": lambda: ASYNC.test_a_reward_may_be_any_single_number(np.array([2.0])),
    "same lots in forked workers": ASYNC.test_constructors_draw_different_global_random_numbers,
    "final_obs overwritten": lambda: SYNC.test_a_reused_buffer_cannot_overwrite_its_final_obs(True),
    "failing call kills the workers": ASYNC.test_a_failing_call_leaves_the_fleet_usable,
    "bare error of a constructor": lambda: ASYNC.test_a_failing_constructor_names_the_environment("last"),
}


@pytest.mark.skipif(not gym.__version__.startswith("1.4."), reason="the defects are those of Gymnasium 1.4")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_suite_finds_the_defects_of_gymnasium(defect: str) -> None:
    with pytest.raises((Exception, pytest.fail.Exception)):
        DEFECTS[defect]()


def test_the_suite_passes_what_is_right_in_gymnasium() -> None:
    SYNC.test_a_reset_clears_a_pending_autoreset()
    SYNC.test_every_space_travels_both_ways("Text", True)
    SYNC.test_an_int_seeds_env_i_with_seed_plus_i(3)
    ASYNC.test_same_step_returns_the_reset_and_keeps_the_final()


# --- what the comparison tells apart ---------------------------------------------------------------------


@pytest.mark.parametrize("make", [np.float32, np.float64, float, np.complex128], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: np.array([1, x]), lambda x: {"a": (x,)}], ids=["scalar", "array", "tree"]
)
def test_the_signs_of_zeros_are_compared(make: Callable[[float], Any], wrap: Callable[[Any], Any]) -> None:
    assert_same(wrap(make(-0.0)), wrap(make(-0.0)))
    for one, other in ((-0.0, 0.0), (0.0, -0.0)):
        with pytest.raises(AssertionError):
            assert_same(wrap(make(one)), wrap(make(other)))


def test_one_nan_is_as_good_as_another() -> None:
    pattern = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    assert_same(pattern, np.full(2, np.nan))
    assert_same(pattern[0], np.nan)
    with pytest.raises(AssertionError):
        assert_same(pattern, np.array([np.nan, 0.0]))
