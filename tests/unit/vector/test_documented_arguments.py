"""Every argument of a vector environment is described, once, also those that many share."""

from __future__ import annotations

import inspect
import re

import pytest

from envfleet import AsyncVectorEnv, NativeVectorEnv, RayVectorEnv, SyncVectorEnv
from envfleet.native.atari import AtariVectorEnv
from envfleet.vector.arguments import SHARED_ARGUMENTS, documented

FLEETS = [AsyncVectorEnv, AtariVectorEnv, NativeVectorEnv, RayVectorEnv, SyncVectorEnv]


@pytest.mark.parametrize("fleet", FLEETS, ids=lambda fleet: fleet.__name__)
def test_help_describes_every_argument_in_its_order(fleet: type) -> None:
    described = re.findall(r"^    (\w+): \S", str(inspect.getdoc(fleet)), re.MULTILINE)
    assert described == list(inspect.signature(fleet).parameters)


@pytest.mark.parametrize("fleet", FLEETS, ids=lambda fleet: fleet.__name__)
def test_the_rest_of_a_docstring_stays(fleet: type) -> None:
    text = str(inspect.getdoc(fleet))
    assert text.startswith("Runs ") or fleet is AtariVectorEnv
    assert text.count("Args:") == 1
    assert max(map(len, text.splitlines())) <= 116


def test_every_shared_text_is_used() -> None:
    used = {name for fleet in FLEETS for name in inspect.signature(fleet).parameters}
    assert set(SHARED_ARGUMENTS) <= used


def test_own_words_come_before_shared_ones() -> None:
    @documented
    class Fleet:
        """Runs nothing.

        Args:
            copy: Means something
                else.

        It has an end.
        """

        def __init__(self, env_fns: object, copy: bool, unknown: int) -> None: ...

    text = str(Fleet.__doc__)
    assert text.startswith("Runs nothing.\n\nArgs:\n    env_fns: One function per environment")
    assert "\n    copy: Means something\n        else.\n\nIt has an end." in text
    assert SHARED_ARGUMENTS["copy"] not in text
