"""What the suite itself needs: pytest and hypothesis, with a sentence that teaches when they are missing."""

from __future__ import annotations

try:
    import hypothesis
    import pytest
except ModuleNotFoundError as error:
    raise ImportError(
        f"envfleet.testing is a pytest suite and {error.name!r} is not installed.\n"
        'Install what it needs with:  pip install "envfleet[testing]"'
    ) from error

__all__ = ["hypothesis", "pytest"]
