"""Whatever a public signature mentions can be imported from a public module."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, TypeVar

import pytest

PUBLIC = [
    "envfleet",
    "envfleet.backends",
    "envfleet.errors",
    "envfleet.native",
    "envfleet.testing",
    "envfleet.train",
    "envfleet.tuning",
    "envfleet.typing",
    "envfleet.vector",
    "envfleet.wrappers",
]


FOR_ENGINES = {
    "envfleet.FleetVectorEnv.__init__",
    "envfleet.vector.FleetVectorEnv.__init__",
    "envfleet.NativeVectorEnv.roll_out",
    "envfleet.native.NativeVectorEnv.roll_out",
    "envfleet.train.Agent.action_map",
    "envfleet.train.Agent.compiled",
    "envfleet.train.OnPolicyLearner.compiled_policy",
    "envfleet.wrappers.BoundedAction.action_map",
}
"""Called by backends, and by the loop that steps them, only; these are made of more than what is public."""


def public_callables() -> Iterator[tuple[str, Any]]:
    """Functions, constructors and public methods, each by its name; types in `envfleet.typing` are for annotations."""
    for module in sorted(set(PUBLIC) - {"envfleet.typing"}):
        package = importlib.import_module(module)
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isfunction(value):
                yield f"{module}.{name}", value
            elif inspect.isclass(value) and value.__module__.startswith("envfleet."):
                for attribute, member in vars(value).items():
                    member = getattr(member, "fget", None) or getattr(member, "__func__", member)
                    if inspect.isfunction(member) and (attribute == "__init__" or not attribute.startswith("_")):
                        yield f"{module}.{name}.{attribute}", member


def names_in_annotations(function: Any) -> set[str]:
    texts = [text for text in function.__annotations__.values() if isinstance(text, str)]
    trees = [ast.parse(text, mode="eval") for text in texts]
    return {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}


def names_from_elsewhere(module: str) -> set[str]:
    """What a module imports from other packages, for types only too."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("envfleet"):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    return found


def test_every_name_in_a_public_signature_can_be_imported() -> None:
    public = {name for module in PUBLIC for name in importlib.import_module(module).__all__}
    hidden = {
        f"{where}: {name}"
        for where, function in public_callables()
        if where not in FOR_ENGINES
        for name in names_in_annotations(function) - public - set(vars(builtins))
        if name not in names_from_elsewhere(function.__module__)
        and not isinstance(getattr(sys.modules[function.__module__], name, None), TypeVar | ModuleType)
    }
    assert sorted(hidden) == []


@pytest.mark.parametrize("module", PUBLIC)
def test_a_public_module_is_an_attribute_of_the_package(module: str) -> None:
    package, _, name = module.rpartition(".")
    if package:
        assert getattr(importlib.import_module(package), name) is importlib.import_module(module)
        assert name in dir(importlib.import_module(package))
