"""What one turn costs a fleet: nothing is done twice."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from envfleet import AsyncVectorEnv, InvalidActionError, SyncVectorEnv
from envfleet.vector.infos import InfoReader

FLEETS = {"sync": SyncVectorEnv, "process": AsyncVectorEnv}


class CountingBatch:
    """Counts how often actions are tried."""

    def __init__(self, batch: Any) -> None:
        self._batch, self.tries = batch, 0

    def put(self, actions: Any) -> bool:
        self.tries += 1
        return bool(self._batch.put(actions))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)


def cart_pole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


class Telling(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Its infos lie in the block, once their schema was told."""

    def __init__(self) -> None:
        super().__init__(cart_pole())

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"angle": float(observation[2])}


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("actions", [[0, 1], np.array([0, 1], np.int32)], ids=["a list", "int32"])
def test_actions_that_compiled_code_does_not_take_are_tried_once(fleet: str, actions: Any) -> None:
    with FLEETS[fleet]([cart_pole] * 2) as envs:
        envs.reset(seed=0)
        envs.step(np.array([0, 1]))
        batch = CountingBatch(envs._block._batch)
        envs._block._batch = envs._engine.quick._batch = batch
        envs.step(actions)
        assert batch.tries == 1
        with pytest.raises(InvalidActionError):
            envs.step([0.5, 1])
        assert batch.tries == 2


@pytest.mark.parametrize("fleet", FLEETS)
def test_reports_of_infos_are_absorbed_once_a_turn(fleet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    absorbed = []
    absorb = InfoReader.absorb

    def counting(self: InfoReader, reports: Any) -> None:
        absorbed.append(reports)
        absorb(self, reports)

    monkeypatch.setattr(InfoReader, "absorb", counting)
    with FLEETS[fleet]([Telling] * 2) as envs:
        envs.reset(seed=0)
        before = len(absorbed)
        infos = envs.step(np.zeros(2, np.int64))[-1]
        assert infos["_angle"].all()
        assert len(absorbed) == before + 1
