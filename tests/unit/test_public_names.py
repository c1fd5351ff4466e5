"""The public names: sorted, importable, documented, and cheap to import."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import gymnasium
import pytest

import envfleet
import envfleet.train

PACKAGES = [
    "envfleet",
    "envfleet.backends",
    "envfleet.errors",
    "envfleet.native",
    "envfleet.testing",
    "envfleet.train",
    "envfleet.tuning",
    "envfleet.typing",
    "envfleet.vector",
    "envfleet.vector.process",
    "envfleet.vector.ray",
    "envfleet.wrappers",
]
HEAVY = [
    "torch",
    "tensorflow",
    "jax",
    "matplotlib",
    "pandas",
    "scipy",
    "pytest",
    "hypothesis",
    "pygame",
    "mujoco",
    "numba",
    "ray",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_sorted_complete_and_importable(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(set(module.__all__))
    for name in module.__all__:
        assert not name.startswith("_")
        assert getattr(module, name) is not None


def test_a_star_import_gives_exactly_the_public_names() -> None:
    names: dict[str, Any] = {}
    exec("from envfleet import *", names)
    assert set(names) - {"__builtins__"} == set(envfleet.__all__)


def test_a_star_import_of_training_too() -> None:
    names: dict[str, Any] = {}
    exec("from envfleet.train import *", names)
    assert set(names) - {"__builtins__"} == set(envfleet.train.__all__) == set(dir(envfleet.train)) - {"__all__"}


@pytest.mark.parametrize("package", ["envfleet.testing", "envfleet.train"])
def test_what_is_imported_when_asked_for_is_what_is_promised(package: str) -> None:
    code = f"""
import importlib, {package} as package
print(package.__all__ == sorted(package._MODULES) == dir(package))
print([name for name in package.__all__ if name in vars(package)])
homes = {{name: getattr(importlib.import_module(module), name) for name, module in package._MODULES.items()}}
print(all(getattr(package, name) is value for name, value in homes.items()))
print({{name for name, value in homes.items() if value.__module__ != package._MODULES[name]}})
"""
    assert in_a_new_interpreter(code) == "True\n[]\nTrue\nset()\n"


def test_everything_else_visible_at_the_top_is_a_module() -> None:
    others = {name for name in dir(envfleet) if not name.startswith("_")} - set(envfleet.__all__)
    assert all(isinstance(getattr(envfleet, name), ModuleType) for name in others), others


def test_what_needs_more_is_an_attribute_and_loaded_when_asked_for() -> None:
    code = """
import sys, envfleet
print(set(envfleet._SUBPACKAGES) | set(envfleet.__all__) <= set(dir(envfleet)), "envfleet.train" in sys.modules)
print(envfleet.train.__name__, envfleet.testing.__name__, envfleet.wrappers.__name__, envfleet.backends.__name__)
print(envfleet.typing.OnFailure, "torch" in sys.modules, "pytest" in sys.modules)
print(callable(envfleet.train.train), "torch" in sys.modules)
"""
    assert in_a_new_interpreter(code).splitlines() == [
        "True False",
        "envfleet.train envfleet.testing envfleet.wrappers envfleet.backends",
        "typing.Literal['raise', 'restart'] False False",
        "True True",
    ]
    with pytest.raises(AttributeError, match="'envfleet' has no attribute 'trane'"):
        envfleet.trane  # noqa: B018


def test_the_version_is_that_of_the_package() -> None:
    assert envfleet.__version__ == importlib.metadata.version("envfleet")


def modules() -> list[str]:
    """Every module of the package but the suite for other backends, which documents itself to pytest.

    And but adapters of libraries that are not here: `make interop` runs these, and ruff wants docstrings of them too.
    """
    found = pkgutil.walk_packages(envfleet.__path__, "envfleet.", onerror=lambda name: None)
    here = [info.name for info in found if not info.name.startswith("envfleet.testing")]
    return ["envfleet", *(name for name in here if not _is_of_a_missing_library(name))]


def _is_of_a_missing_library(module: str) -> bool:
    package, _, library = module.rpartition(".")
    if package == "envfleet.device" and library not in ("families", "func_env", "functional"):
        return importlib.util.find_spec("jax") is None or library in ("brax", "gymnax", "jumanji", "playground")
    if module == "envfleet.native.xla":
        return importlib.util.find_spec("jax") is None
    elsewhere = ("sample_factory", "skrl", "tianshou", "torchrl")
    return package == "envfleet.adapters" and library in elsewhere and importlib.util.find_spec(library) is None


def public_members(module: Any) -> Iterator[tuple[str, Any]]:
    """Functions and classes defined in the module, and the classes' own methods and properties."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            yield name, value
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                    yield f"{name}.{attribute}", member


@pytest.mark.parametrize("name", modules())
def test_every_public_function_and_class_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    assert [member for member, value in public_members(module) if not inspect.getdoc(value)] == []


@pytest.mark.parametrize("name", ["SyncVectorEnv", "AsyncVectorEnv"])
def test_constructors_take_gymnasiums_arguments_in_its_order_with_its_defaults(name: str) -> None:
    wanted = inspect.signature(getattr(gymnasium.vector, name)).parameters
    ours = inspect.signature(getattr(envfleet, name)).parameters
    assert list(ours)[: len(wanted)] == list(wanted)
    for argument, parameter in wanted.items():
        assert (ours[argument].default, ours[argument].kind) == (parameter.default, parameter.kind), argument
    for argument in list(ours)[len(wanted) :]:
        assert ours[argument].kind is inspect.Parameter.KEYWORD_ONLY


def in_a_new_interpreter(code: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "module",
    [
        "envfleet",
        "envfleet.cli",
        "envfleet.cli.settings",
        "envfleet.testing.envs",
        "envfleet.train.config",
        "envfleet.wrappers",
    ],
)
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert in_a_new_interpreter(code) == "[]\n"


def test_training_loads_what_it_draws_and_logs_with_only_when_needed() -> None:
    code = (
        "import sys; from envfleet.train import train; print([name for name in ('matplotlib', 'tensorboard', 'rich', "
    )
    code += "'tyro', 'imageio_ffmpeg', 'wandb') if name in sys.modules], 'torch' in sys.modules)"
    assert in_a_new_interpreter(code) == "[] True\n"


def test_functions_of_training_are_not_hidden_by_the_modules_of_their_name() -> None:
    code = """
from envfleet.train.filming.showcase import Showcase
from envfleet.train import evaluate, showcase
from envfleet.train.judging.evaluation import evaluate as same
import envfleet.train
print(evaluate is same is envfleet.train.evaluate, showcase is envfleet.train.showcase, callable(showcase))
"""
    assert in_a_new_interpreter(code) == "True True True\n"


def test_training_says_what_to_install_where_torch_is_missing() -> None:
    code = """
import sys
sys.modules["torch"] = None
try:
    from envfleet.train import train
except ModuleNotFoundError as error:
    print(error)
"""
    assert 'pip install "envfleet[train]"' in in_a_new_interpreter(code)


def test_training_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match=r"'envfleet.train' has no attribute 'trane'"):
        envfleet.train.trane  # noqa: B018


def test_importing_needs_nothing_but_the_declared_dependencies() -> None:
    code = """
import sys
import envfleet
standard = set(sys.stdlib_module_names) | {"envfleet", "numpy", "gymnasium", "cloudpickle", "__main__"}
files = {name.split(".")[0]: getattr(module, "__file__", None) for name, module in sys.modules.items()}
print(*sorted(name for name, file in files.items() if name not in standard and file and "site-packages" in file))
"""
    allowed = {"farama_notifications", "typing_extensions"}  # Gymnasium's own
    assert {name for name in in_a_new_interpreter(code).split() if not name.startswith("_")} <= allowed


def test_importing_starts_no_process_and_no_thread() -> None:
    code = "import threading, multiprocessing as mp, envfleet; print(threading.active_count(), mp.active_children())"
    assert in_a_new_interpreter(code) == "1 []\n"
