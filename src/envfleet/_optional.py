"""Libraries that come with an extra of envfleet."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """Imports `module`, or says which extra of envfleet to install."""
    with needs(extra):
        return importlib.import_module(module)


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Whatever is imported in here and is not there: says which extra of envfleet to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'{error.name} is needed for this and is not installed; run\n    pip install "envfleet[{extra}]"',
            name=error.name,
        ) from error
