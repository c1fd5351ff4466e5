"""The caller's view on the memory of one fleet: actions in, results out.

``FleetBlock`` is what a fleet of Python environments reads and writes, ``QuickSteps`` its shortest way through a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from envfleet import _core
from envfleet.vector.block import BlockRows, FleetLayout
from envfleet.vector.engine import (
    NoQuickCalls,
    Order,
    QuickCalls,
    Report,
    Rows,
    StepResult,
    first_failure,
    is_turn,
)
from envfleet.vector.failures import Failure
from envfleet.vector.infos import Info, InfoReader
from envfleet.vector.layout import Array, Columns
from envfleet.vector.pages import Pages
from envfleet.vector.pickling import without_traceback

StepAll: TypeAlias = "Callable[[], Sequence[Report | None] | None]"
"""Steps all environments with the actions in the block and waits for them; None if everything lies in the block."""


@final
class FleetBlock:
    """The caller's view on the whole block of a fleet of Python environments.

    Args:
        layout: Where everything lies.
        memory: The block itself.
        bounds: The ``(first, last + 1)`` rows of each shard.
        keeps_last: Whether environments are made again after failures. Then the last observation of each is kept, as
            the true end of an episode that a failure cuts off.
    """

    def __init__(
        self,
        layout: FleetLayout,
        memory: npt.NDArray[np.uint8],
        bounds: Sequence[tuple[int, int]],
        *,
        keeps_last: bool = False,
    ) -> None:
        rows = layout.rows(memory, 0, layout.num_envs)
        self._layout, self._bounds, self._rows = layout, bounds, rows
        self._columns: Columns = layout.observations.columns(rows.observation_arrays, layout.num_envs)
        self._info_reader = InfoReader(rows.info_rows, rows.info_kinds, bounds)
        self.rewards, self.terminated, self.truncated = rows.rewards, rows.terminated, rows.truncated
        self.finished, self.out = np.zeros(layout.num_envs, np.bool_), np.zeros(layout.num_envs, np.bool_)
        self._last = LastObservations(self._columns, rows.restarted) if keeps_last else None
        self._keeps_last = keeps_last
        self.pages = self._make_pages(memory) if layout.pages.count else None
        self._batch = self._make_batch(rows) if layout.actions.is_single_array else None
        self._has_quick_steps = False
        self._no_reports: Sequence[Report | None] = [None] * len(bounds)

    def _make_pages(self, memory: npt.NDArray[np.uint8]) -> Pages:
        arrays = self._layout.arrays(memory)
        return Pages(self._layout.pages, arrays["pages"], arrays["open_page"], arrays["copies_made"])

    def _make_batch(self, rows: BlockRows) -> _core.Batch:
        alone = self._layout.observations.is_single_array
        observations = rows.observation_arrays[0] if alone else self.observations
        flags = rows.terminated, rows.truncated
        return _core.Batch(rows.action_arrays[0], observations, rows.rewards, *flags, rows.info_kinds)

    def quick_calls(self, exclusive: _core.Exclusive, step_all: StepAll) -> QuickCalls:
        """Quick steps by ``step_all``; none where every step has more to do than to pass results on."""
        mode = self._layout.autoreset_mode
        if self._batch is None or self._last is not None or mode is AutoresetMode.DISABLED:
            return NoQuickCalls()
        self._has_quick_steps = True
        return QuickSteps(self, self._batch, exclusive, step_all)

    def store_actions(self, actions: Any, rows: Rows | None = None, *, were_tried: bool = False) -> list[list[Any]]:
        """Checks all actions, then writes them into all rows, or into the given ones.

        Returns those of the loose leaves, which travel beside the block.
        """
        if not (were_tried and self._has_quick_steps) and self._has_put(actions, rows):
            return []
        columns = self._layout.actions.checked(actions, self._layout.num_envs if rows is None else len(rows))
        where = ... if rows is None else rows
        for (leaf, _, _), array in zip(self._layout.actions.array_leaves, self._rows.action_arrays, strict=True):
            array[where] = columns[leaf]
        return [list(columns[leaf]) for leaf in self._layout.actions.loose_leaves]

    def _has_put(self, actions: Any, rows: Rows | None) -> bool:
        """Whether compiled code could store the actions."""
        if self._batch is None:
            return False
        return self._batch.put(actions) if rows is None else self._batch.put_some(rows, actions)

    def parameter_cells(self) -> npt.NDArray[np.float64]:
        """The parameters drawn for the present episodes, as numbers: float64[num_envs, parameters]."""
        return self._rows.parameters

    def hand_over_last(self) -> LastObservations | None:
        """Leaves the last observations, if they are kept, to somebody who keeps them together with more."""
        self._keeps_last = False
        return self._last

    # -- a turn: all rows, one report per shard -------------------------------------------------------

    def absorb(self, order: Order, reports: Sequence[Report | None]) -> None:
        """Takes over what outlasts the turn that carried out an order.

        These are loose observations and schemas of infos, which travelled beside the block, and last observations.
        """
        if any(reports):
            self._info_reader.absorb([report.infos if report is not None else None for report in reports])
            for (first, last), report in zip(self._bounds, reports, strict=True):
                self._absorb_loose(report, slice(first, last))
        if self._keeps_last and self._last is not None and is_turn(order):
            self._last.keep()

    def observations(self, copy: bool) -> Any:
        """The batched observations: fresh arrays, or live views that the next step overwrites."""
        return self._layout.observations.batch(self._columns, copy)

    def observations_on(self, page: Mapping[int, Array]) -> Any:
        """The batched observations, fresh: the leaves that lie on a page from there, copies of the others."""
        columns = [page[leaf] if leaf in page else _copied(c) for leaf, c in enumerate(self._columns)]
        return self._layout.observations.batch(columns, copy=False)

    def infos(self, reports: Sequence[Report | None]) -> Info:
        """The batched infos of the turn that just ended; its reports may be left out if all lies in the block."""
        return self._info_reader.read([report.infos if report else None for report in reports or self._no_reports])

    def reset_results(self, reports: Sequence[Report | None], copy: bool) -> tuple[Any, Info]:
        """What ``reset`` returns of the turn that just ended."""
        infos = self.infos(reports)
        self._mend_restarted(np.flatnonzero(self._rows.restarted), infos)
        return self.observations(copy), infos

    def step_results(self, reports: Sequence[Report | None], copy: bool) -> StepResult:
        """What ``step`` returns of the turn that just ended."""
        infos = self.infos(reports)
        self._mend_restarted(np.flatnonzero(self._rows.restarted), infos)
        numbers = (_core.fresh_copy(column) for column in (self.rewards, self.terminated, self.truncated))
        return self.observations(copy), *numbers, infos

    # -- some rows, one report each -------------------------------------------------------------------

    def absorb_rows(self, rows: Rows, reports: Sequence[Report | None]) -> None:
        """Does what ``absorb`` does, for results that came one by one."""
        if any(reports):
            self._info_reader.absorb_rows(rows, [report.infos if report is not None else None for report in reports])
            for row, report in zip(rows.tolist(), reports, strict=True):
                self._absorb_loose(report, slice(row, row + 1))
        if self._keeps_last and self._last is not None:
            self._last.keep(rows)

    def ticket_results(self, rows: Rows, reports: Sequence[Report | None]) -> StepResult:
        """What ``recv`` returns of the given environments; fresh arrays."""
        infos = self._info_reader.read_rows(rows, [report.infos if report else None for report in reports])
        self._mend_restarted(rows[self._rows.restarted[rows]], infos, rows)
        observations = self._layout.observations.taken(self._columns, rows)
        numbers = (_core.fresh_rows(column, rows) for column in (self.rewards, self.terminated, self.truncated))
        return observations, *numbers, infos

    def _absorb_loose(self, report: Report | None, rows: slice) -> None:
        if report is not None and report.loose_observations:
            leaves = self._layout.observations.loose_leaves
            for leaf, values in zip(leaves, report.loose_observations, strict=True):
                self._columns[leaf][rows] = values

    def _mend_restarted(self, restarted: Rows, infos: Info, rows: Rows | None = None) -> None:
        """Gives episodes that a failure cut off their true last observations."""
        if self._last is None or not len(restarted):
            return
        for row in restarted.tolist():
            if not self.truncated[row]:  # it was reset by the user
                continue
            if self._layout.autoreset_mode is AutoresetMode.SAME_STEP:  # the next episode has begun already
                place = row if rows is None else int(np.flatnonzero(rows == row)[0])
                infos["final_obs"][place] = self._layout.observations.row(self._last.columns, row)
            else:
                self._last.put_back(row)
        self._last.keep_restarted(restarted)


def _copied(column: Array | list[Any]) -> Array | list[Any]:
    return _core.fresh_copy(column) if isinstance(column, np.ndarray) else deepcopy(column)


@final
class LastObservations:
    """What each environment has shown last. In the block a worker that is killed may leave half a row.

    Args:
        columns: The observations in the block, leaf by leaf.
        restarted: Which environments were made again in this turn: what these had shown last is needed once more.

    Attributes:
        columns: The observations kept, leaf by leaf.
    """

    def __init__(self, columns: Columns, restarted: npt.NDArray[np.bool_]) -> None:
        self._shown, self._restarted = columns, restarted
        self.columns = deepcopy(columns)

    def keep(self, rows: Rows | None = None) -> None:
        """Keeps what all environments show now, or the given ones; but of those restarted what they had shown."""
        if rows is None and not self._restarted.any():
            for kept, column in zip(self.columns, self._shown, strict=True):
                kept[:] = column if isinstance(column, np.ndarray) else deepcopy(column)
            return
        chosen = np.arange(len(self._restarted)) if rows is None else rows
        self.keep_restarted(chosen[~self._restarted[chosen]])

    def keep_restarted(self, rows: Rows) -> None:
        """Keeps what these show now, restarted or not."""
        for kept, column in zip(self.columns, self._shown, strict=True):
            for row in rows.tolist():
                kept[row] = deepcopy(column[row])

    def put_back(self, row: int) -> None:
        """Writes what was kept of an environment back into the block."""
        for kept, column in zip(self.columns, self._shown, strict=True):
            column[row] = kept[row]


@final
class QuickSteps:
    """Steps after a call that went well: nothing is left to check.

    They do what ``FleetVectorEnv._step`` does in fewer calls, which would cost a small fleet a tenth of its speed.
    """

    send = recv = None

    def __init__(
        self,
        block: FleetBlock,
        batch: _core.Batch,
        exclusive: _core.Exclusive,
        step_all: StepAll,
    ) -> None:
        self.ready = False
        self._block, self._batch, self._pages = block, batch, block.pages
        self._exclusive, self._step_all = exclusive, step_all
        self._error: BaseException | Failure | None = None

    def step(self, actions: Any, copy: bool) -> StepResult | None:
        """A whole step; None if it has to be taken the ordinary way, or has failed."""
        pages, page = self._pages, None
        with self._exclusive:
            if not self.ready or not self._batch.put(actions):
                return None
            self.ready = False
            try:
                if pages is not None:
                    pages.open()
                reports = self._step_all()
            except BaseException as error:
                # Its frames refer to the fleet, which whoever ends the workers of a forgotten fleet must not.
                self._error = without_traceback(error)
                raise
            finally:
                if pages is not None:
                    page = pages.close()
            if reports is not None:
                self._error = first_failure(reports)
                if self._error is not None:
                    return None
            infos = self._block.infos(reports or ()) if self._batch.has_infos() else {}
            self.ready = True
            return self._batch.results(self._block.observations_on(page) if page else None, copy, infos)

    def take_error(self) -> BaseException | Failure | None:
        """How the last step ended, if it did not end well; forgets it."""
        error, self._error = self._error, None
        return error
