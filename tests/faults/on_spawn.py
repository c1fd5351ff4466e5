"""Which tests of failures are run with workers that are spawned, which takes long."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, TypeVar

import pytest
from fleets import LOST, PLACES
from selection import left_to_test_all, without
from soaking.faulty import Fault

Test = TypeVar("Test", bound=Callable[..., None])


def on_spawn_only(**values: Sequence[Any]) -> pytest.MarkDecorator:
    """A start takes spawn a second: where it cannot matter how a worker was started, fork has to do.

    Marks tests that have the parameter `sharing`: with spawn they exist for these values of another one only.
    """
    [(name, wanted)] = values.items()
    return without(lambda given: _on_spawn(given) and given[name] not in wanted)


def by_turns_on_spawn(where: str = "", faults: Container[Fault] = LOST) -> Callable[[Test], Test]:
    """Spawn takes a second to start a worker again: there each fault meets each place once.

    By turns alone in its worker and beside others, so that each fault and each place meets both; fork has all
    combinations. Tickets are left to fork: they lie in the block, which is the same however a worker was started. So is
    what ended or stopped it: a worker that was killed and one that was stopped have to do for `make test`.

    Marks tests that have the parameters `sharing` and `fault`, and `where` unless it is always the same place. Faults
    other than `faults` start no worker again.
    """

    def is_meant(given: dict[str, Any]) -> bool:
        return _on_spawn(given) and given["fault"] in faults

    def is_anothers_turn(given: dict[str, Any]) -> bool:
        place = PLACES.index(where or given["where"])
        alone = given["sharing"].endswith("alone")
        return is_meant(given) and (place >= 3 or (given["fault"] + place) % 2 == alone)

    def is_like_another(given: dict[str, Any]) -> bool:
        return is_meant(given) and given["fault"] not in (Fault.KILL, Fault.STOP)

    return lambda test: without(is_anothers_turn)(left_to_test_all(is_like_another)(test))


def _on_spawn(given: dict[str, Any]) -> bool:
    return str(given["sharing"]).startswith("spawn")
