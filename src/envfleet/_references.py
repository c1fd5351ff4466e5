"""Where an environment comes from, as a text: what a command line, a configuration and `config.json` hold.

::

    CartPole-v1        an id that is registered
    my_env:Grid-v0     an id that the module my_env registers
    my_env:Grid        a class or function of the module my_env
    my_env.py:Grid     a class or function, or an id, of the file my_env.py
    __main__:Grid      a class or function of the program that runs: a script, a notebook
"""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, final

import gymnasium
from gymnasium.envs.registration import EnvSpec, _find_spec

from envfleet._names import did_you_mean

MAIN = "__main__"
_FILE = ".py"


@final
class NamedMaker(str):
    """The reference of a class or function that is at hand: the text, together with what makes the environment.

    It is an ordinary text for everyone who shows, compares or saves it. `spec_of` takes what it carries.

    Attributes:
        maker: The class or function.
    """

    maker: Any

    def __new__(cls, reference: str, maker: Any) -> NamedMaker:
        """A text that carries what it stands for."""
        self = super().__new__(cls, reference)
        self.maker = maker
        return self

    def __getnewargs__(self) -> tuple[str, Any]:  # type: ignore[override]
        return str(self), self.maker


def named(maker: Any) -> NamedMaker:
    """Returns the reference of a class, a function or a spec, which it carries along."""
    if isinstance(maker, EnvSpec):
        return NamedMaker(maker.id, maker)
    module = getattr(maker, "__module__", None) or type(maker).__module__
    name = getattr(maker, "__qualname__", None) or getattr(maker, "__name__", None) or type(maker).__name__
    return NamedMaker(f"{module}:{name}", maker)


def can_be_imported(reference: str) -> bool:
    """Returns whether another program gets the same environment from the plain text."""
    source, name = split(reference)
    if not isinstance(reference, NamedMaker) or not source:
        return True
    return source != MAIN and _attribute(sys.modules.get(source), name) is reference.maker


def variable_name(reference: str) -> str:
    """Returns what a program calls the class or function, as an example of code would."""
    name = split(reference)[1].rpartition(".")[2]
    return name if name.isidentifier() else "make_env"


def split(reference: str) -> tuple[str, str]:
    """Returns the module or file, empty for a registered id, and the name or id."""
    source, _, name = reference.rpartition(":")
    return source.strip(), name.strip()


def is_file(source: str) -> bool:
    """Returns whether this is a file, not a module."""
    return source.endswith(_FILE)


def folder_name(reference: str) -> str:
    """Returns what the folder of an environment's runs is called: CartPole-v1, ALE-Pong-v5, my_env-Grid, Grid."""
    source, name = split(reference)
    if is_file(source):
        source = Path(source).stem
    parts = [part for part in (source, name) if part and part != MAIN]
    name = re.sub(r"[^\w.-]+", "-", "-".join(part.replace("<locals>.", "") for part in parts))
    return name.strip("-.") or "env"


def find(reference: str) -> Any:
    """Imports the module or file that a reference names; returns the spec it registers, or its class or function."""
    source, name = split(reference)
    module = _import_file(source) if is_file(source) else _import_module(source, reference)
    if name in gymnasium.registry:
        return gymnasium.registry[name]
    found = _attribute(module, name)
    if found is not None:
        return found
    try:
        return _find_spec(name)
    except gymnasium.error.DeprecatedEnv:
        raise
    except gymnasium.error.Error:  # unknown, or no id at all
        raise gymnasium.error.NameNotFound(_not_in(source, module, name)) from None


def _import_module(source: str, reference: str) -> ModuleType:
    if source == MAIN:
        return sys.modules[MAIN]
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{source}.".startswith(f"{error.name}."):
            raise _broken(source, error) from error
        hint = f" There is a file {source}.py here: write {source}.py:{split(reference)[1]}."
        raise ModuleNotFoundError(
            f"There is no module {source!r} to import for {reference!r}, neither in {Path.cwd()} nor among the "
            f"installed packages.{hint if Path(f'{source}.py').is_file() else ''}",
            name=error.name,
        ) from None
    except Exception as error:
        raise _broken(source, error) from error


def _import_file(source: str) -> ModuleType:
    """Imports a file as Python imports a script's neighbours: its folder goes first on `sys.path`."""
    path = Path(source).expanduser()
    if not path.is_file():
        nearby = did_you_mean(path.name, [file.name for file in path.parent.glob(f"*{_FILE}")])
        raise FileNotFoundError(
            f"There is no file {source!r} in {Path.cwd()}{nearby}. Go to the folder from which it is found, or give "
            "the path from here."
        )
    path = path.resolve()
    folder, name = path.parent, path.stem
    while (folder / "__init__.py").is_file():  # a file of a package may import its neighbours by "from . import"
        folder, name = folder.parent, f"{folder.name}.{name}"
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise _broken(source, error) from error
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path:
        raise ImportError(
            f"{source} cannot be imported: {name!r} is also the name of {found or 'a module of Python'}, which has "
            "been imported already. Rename the file."
        )
    return module


def _broken(source: str, error: Exception) -> ImportError:
    """What to say of a module that raises when it is imported: where, in the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename and not frame.filename.startswith("<")]
    where = f" (line {own[-1].lineno} of {own[-1].filename})" if len(own) > 1 and own[-1].lineno else ""
    return ImportError(f"{source} cannot be imported: {type(error).__name__}: {error}{where}")


def _attribute(module: ModuleType | None, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _not_in(source: str, module: ModuleType, name: str) -> str:
    if source == MAIN or "<" in name:
        last = variable_name(name)
        return (
            f"{last} was defined in a notebook, a script or a function, and this program has none of that name. Where "
            f"it is defined, give it: load_agent(run, env={last}) or resume(run, env={last}). To use such a run from "
            "everywhere, define the environment in a file and train FILE.py:CLASS."
        )
    makers = [key for key, value in vars(module).items() if _is_environment_of(module, value)]
    ids = [key for key, spec in gymnasium.registry.items() if _is_registered_by(spec, module)]
    has = f"it has {', '.join([*makers, *ids])}" if makers or ids else "it defines and registers no environment at all"
    return f"{source} has no environment {name!r}{did_you_mean(name, [*makers, *ids])}; {has}."


def _is_environment_of(module: ModuleType, value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, gymnasium.Env) and value.__module__ == module.__name__


def _is_registered_by(spec: Any, module: ModuleType) -> bool:
    entry_point = spec.entry_point
    origin = entry_point.partition(":")[0] if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    return bool(origin == module.__name__)
