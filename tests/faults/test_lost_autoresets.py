"""An environment that is lost in the very step that resets it, in every autoreset mode."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import BAD_OUTPUTS, LOST, STEP_TIMEOUT, OnceEnv, Oracle, fleet, soon, zeros
from gymnasium.vector import AutoresetMode
from soaking.faulty import Fault, Habits

from envfleet.testing import assert_same
from envfleet.vector import AsyncVectorEnv

VICTIM = 1  # shares its worker with one that is reset before it
LENGTH = 5 + VICTIM
CAUSES = {
    Fault.RAISE: "was told to raise",
    Fault.NAN: BAD_OUTPUTS[Fault.NAN],
    Fault.KILL: LOST[Fault.KILL],
    Fault.LOOP: LOST[Fault.LOOP],
}


class TiredEnv(OnceEnv):
    """Fails once in a reset that nobody gave a seed, which here is its first autoreset."""

    def __init__(self, habits: Habits, fault: Fault, mark: str) -> None:
        super().__init__(habits)
        self.order = {"fault": int(fault), "mark": mark}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        fails = seed is None and self.index == VICTIM
        return super().reset(seed=seed, options=self.order if fails else options)


def tired_fleet(fault: Fault, mode: AutoresetMode, folder: Path) -> Any:
    """Fork has to do: how a worker was started cannot matter to its environments' resets."""
    fns = [partial(TiredEnv, Habits(i, 5 + i), fault, str(folder / "mark")) for i in range(4)]
    return fleet(env_fns=fns, on_failure="restart", step_timeout=STEP_TIMEOUT, autoreset_mode=mode)


def step(envs: AsyncVectorEnv, how: str) -> Any:
    """A step of all; by tickets in the order in which they come, which is put right."""
    if how == "step":
        return envs.step(zeros(envs))
    envs.send(zeros(envs))
    *outputs, infos = envs.recv()
    order = np.argsort(infos.pop("env_id"))
    sort = partial(sorted_rows, order)
    return (*map(sort, outputs), sort(infos))


def sorted_rows(order: Any, rows: Any) -> Any:
    return {key: sorted_rows(order, own) for key, own in rows.items()} if isinstance(rows, dict) else rows[order]


def row_of(observations: Any, env: int) -> Any:
    return {key: column[env].copy() for key, column in observations.items()}


@pytest.mark.parametrize("how", ["step", "send"])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.value)
@pytest.mark.parametrize("fault", CAUSES, ids=lambda fault: fault.name)
def test_its_row_is_truncated_with_the_last_observation_that_was_shown(
    fault: Fault, mode: AutoresetMode, how: str, tmp_path: Path
) -> None:
    with tired_fleet(fault, mode, tmp_path) as envs:
        oracle = Oracle(4, mode)
        shown, _ = envs.reset(seed=0)
        resetting = LENGTH + (mode is AutoresetMode.NEXT_STEP)
        for number in range(1, resetting + 15):
            with soon():
                result = step(envs, how)
            if number == resetting:
                infos = result[4]
                assert re.search(CAUSES[fault], infos["restart_cause"][VICTIM])
                last = infos["final_obs"][VICTIM] if "final_obs" in infos else row_of(result[0], VICTIM)
                assert_same(last, row_of(shown, VICTIM))
            if number == resetting + 1:  # the step after that resets, or goes on where the mode has reset already
                assert result[0]["count"][VICTIM, 2] == (mode is AutoresetMode.SAME_STEP)
            shown = result[0]
            oracle.assert_step(result, zeros(envs), [VICTIM] if number == resetting else [])


@pytest.mark.parametrize("fault", CAUSES, ids=lambda fault: fault.name)
def test_a_masked_reset_in_which_it_is_lost_tells(fault: Fault, tmp_path: Path) -> None:
    mode = AutoresetMode.DISABLED
    with tired_fleet(fault, mode, tmp_path) as envs:
        oracle = Oracle(4, mode)
        envs.reset(seed=0)
        for _ in range(20):
            finished = np.array([lone.finished for lone in oracle.lone])
            if finished.any():
                lost = [VICTIM] if finished[VICTIM] and not oracle.lone[VICTIM].restarts else []
                with soon():
                    observations, infos = envs.reset(options={"reset_mask": finished})
                assert np.flatnonzero(infos.get("restarted", [])).tolist() == lost
                for env in np.flatnonzero(finished).tolist():
                    lone = oracle.lone[env]
                    own, _ = lone.restart_and_reset() if env in lost else lone.reset()
                    assert_same(row_of(observations, env), own)
            oracle.assert_step(envs.step(zeros(envs)), zeros(envs))
        assert oracle.lone[VICTIM].restarts == 1
