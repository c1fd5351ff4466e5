"""What a fleet asks of its shards, and what they answer beside the block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet.vector.failures import Failure
from envfleet.vector.infos import InfoReport

Options: TypeAlias = "dict[str, Any] | None"


@final
@dataclass(frozen=True)
class ResetOrder:
    """Reset the environments for which ``mask`` holds; one seed and one options dict an environment."""

    seeds: Sequence[int | None]
    options: Sequence[Options]
    mask: npt.NDArray[np.bool_]

    def part(self, first: int, last: int) -> ResetOrder:
        """What concerns the environments first..last-1."""
        return ResetOrder(self.seeds[first:last], self.options[first:last], self.mask[first:last])


@final
@dataclass(frozen=True)
class StepOrder:
    """Step every environment. ``loose_actions``: for each loose leaf of the action space, one value each."""

    loose_actions: Sequence[Sequence[Any]] = ()

    def part(self, first: int, last: int) -> StepOrder:
        """What concerns the environments first..last-1."""
        return StepOrder([values[first:last] for values in self.loose_actions]) if self.loose_actions else self


@final
@dataclass(frozen=True)
class CallOrder:
    """Get an attribute of, or call a method of, the environments for which ``mask`` holds."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    mask: npt.NDArray[np.bool_]

    def part(self, first: int, last: int) -> CallOrder:
        """What concerns the environments first..last-1."""
        return CallOrder(self.name, self.args, self.kwargs, self.mask[first:last])


@final
@dataclass(frozen=True)
class SetAttrOrder:
    """Set an attribute of the environments for which ``mask`` holds; one value an environment."""

    name: str
    values: Sequence[Any]
    mask: npt.NDArray[np.bool_]

    def part(self, first: int, last: int) -> SetAttrOrder:
        """What concerns the environments first..last-1."""
        return SetAttrOrder(self.name, self.values[first:last], self.mask[first:last])


Order: TypeAlias = ResetOrder | StepOrder | CallOrder | SetAttrOrder


@dataclass(slots=True)
class Report:
    """A shard's answer to an order, as far as it does not lie in the block.

    Attributes:
        loose_observations: For each loose leaf of the observation space, one value a row.
        infos: The infos that do not lie in the block.
        results: Of a CallOrder: ``(env index, result)`` for each environment asked.
        failures: In the order of the environments.
    """

    loose_observations: list[list[Any]] = field(default_factory=list)
    infos: InfoReport | None = None
    results: list[tuple[int, Any]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
