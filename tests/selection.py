"""Which tests `make test` leaves to `make test-all`, and which combinations of parameters exist at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

ALL_TESTS = "ENVFLEET_ALL_TESTS"

Parameters = dict[str, Any]


def left_to_test_all(when: Callable[[Parameters], bool] | None = None) -> pytest.MarkDecorator:
    """Marks what is long by nature, or repeats at length what a shorter test has shown.

    Args:
        when: Says of a test's parameters, given by name, whether it is meant; without it, the test always is.
    """
    return pytest.mark.only_with(ALL_TESTS, when=when)


def without(when: Callable[[Parameters], bool]) -> pytest.MarkDecorator:
    """Leaves out the combinations of parameters, given by name, of which `when` says that there is no point in them."""
    return pytest.mark.without(when=when)


def is_left_out(item: pytest.Item) -> bool:
    """Whether a marker says that this test is not to run."""
    call: Any = getattr(item, "callspec", None)
    given: Parameters = call.params if call is not None else {}
    if any(mark.kwargs["when"](given) for mark in item.iter_markers("without")):
        return True
    return any(
        mark.args[0] not in os.environ and ((when := mark.kwargs.get("when")) is None or when(given))
        for mark in item.iter_markers("only_with")
    )
