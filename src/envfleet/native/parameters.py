"""What constructor arguments become: parameters of a compiled environment, or the reason why not."""

from __future__ import annotations

from typing import Any

Parameters = dict[str, Any]


class UnsupportedError(TypeError):
    """The native environments cannot do what was asked; the message says what."""
