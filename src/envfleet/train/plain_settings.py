"""Settings as config.json holds them: tuples as lists, mappings as objects; and how they become themselves again."""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


def plain(value: Any) -> Any:
    """A setting as JSON holds it; what JSON cannot hold stays as it is."""
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return value


def restored(value: Any, annotation: Any) -> Any:
    """What `plain` was given, as far as a field's type says that a list was a tuple."""
    if get_origin(annotation) is Annotated:
        return restored(value, get_args(annotation)[0])
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if origin in (Union, types.UnionType):
        return restored(value, _suited(value, arguments))
    if isinstance(value, list) and origin in (tuple, list):
        whole = origin is tuple and len(arguments) == len(value) and Ellipsis not in arguments
        entry = arguments[0] if arguments else None
        kinds = arguments if whole else (entry,) * len(value)
        return origin(restored(one, kind) for one, kind in zip(value, kinds, strict=True))
    if isinstance(value, dict) and isinstance(origin, type) and issubclass(origin, Mapping):
        kind = arguments[1] if len(arguments) == 2 else None
        return {key: restored(entry, kind) for key, entry in value.items()}
    return value


def comes_back(value: Any, annotation: Any) -> bool:
    """Whether a run can be resumed, and its agent loaded, with the very same setting read from config.json."""
    try:
        read = restored(json.loads(json.dumps(plain(value))), annotation)
        return bool(read == value) and (isinstance(read, type(value)) or isinstance(value, Mapping))
    except (TypeError, ValueError, RecursionError):
        return False


def field_types(config: type[Any]) -> dict[str, Any]:
    """The types of a configuration's fields, each read as the module understands it in which its class is written.

    A type that cannot be found there, such as one that a function defines, is left out.
    """
    names = {entry.name for entry in dataclasses.fields(config)}
    found: dict[str, Any] = {}
    for parent in reversed(config.__mro__):
        # Only of fields: Python 3.10 takes the KW_ONLY marker among the annotations for a type, and refuses it.
        own = {name: text for name, text in inspect.get_annotations(parent).items() if name in names}
        for name, text in own.items():
            one = type("Field", (), {"__annotations__": {name: text}, "__module__": parent.__module__})
            try:
                found |= get_type_hints(one, include_extras=True)
            except NameError:
                found.pop(name, None)
    return found


def _suited(value: Any, choices: tuple[Any, ...]) -> Any:
    """The one of several types that a value in JSON can have come from."""
    kinds: tuple[Any, ...] = (tuple, list) if isinstance(value, list) else (Mapping, dict)
    return next((one for one in choices if (get_origin(one) or one) in kinds), None)
