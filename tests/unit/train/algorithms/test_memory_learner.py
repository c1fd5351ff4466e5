"""Policies that remember: who is told where episodes begin, and what is carried along."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from small_runs import outcome, stop_at
from tiny_envs import NEXT_STEP, SAME_STEP, scripted_fleet

from envfleet.train import (
    MemoryActor,
    MemoryLearner,
    PPOConfig,
    Sequences,
    begin,
    collect,
    evaluate,
    gradient_step,
    load_agent,
    resume,
    showcase,
    train,
)
from envfleet.train.algorithms.learner import Task
from envfleet.train.algorithms.memory import MemoryLearner as Base
from envfleet.train.algorithms.returns import gae

CPU = torch.device("cpu")


class Remembering(MemoryLearner[PPOConfig]):
    """The plain policy gradient on sequences."""

    metrics = ("loss",)

    def update(self, batch: Sequences, entropy_coef: float) -> dict[str, float]:
        log_prob, entropy, values = self.along(batch)
        gain = batch.mean(batch.advantages * log_prob + entropy_coef * entropy)
        loss = batch.mean((values - batch.returns).square()) - gain
        gradient_step(loss, self.optimizer, self.config.max_grad_norm)
        return {"loss": loss.item()}


class Recall(gym.Env[Any, Any]):
    """Shows a number at first and nothing later; the last of some actions is to be that number."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  as Gymnasium has it
    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, steps: int = 3, render_mode: str | None = None) -> None:
        self._steps, self.render_mode = steps, render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._right, self._step = int(self.np_random.integers(2)), 0
        # Episodes differ in length, so that environments begin theirs at different times.
        self._length = int(self.np_random.integers(2, self._steps + 1))
        return np.array([2 * self._right - 1], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        over = self._step == self._length
        return np.zeros(1, np.float32), float(over and action == self._right), over, False, {}

    def render(self) -> Any:
        return np.full((16, 16, 3), 50 * self._step, np.uint8)


CONFIG = PPOConfig(
    Recall, num_envs=4, backend="sync", rollout_steps=8, hidden_sizes=(8,), total_steps=20 * 32, actor_lr=1e-2
)


class TestResets:
    @pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP])
    def test_they_are_where_episodes_begin(self, mode: Any) -> None:
        """The first number of an observation says how many steps its episode has had."""
        told: list[np.ndarray] = []

        def policy(observations: Any, resets: np.ndarray) -> np.ndarray:
            told.append(resets.copy())
            return np.zeros(2, np.int64)

        with scripted_fleet(mode) as envs:
            first = collect(envs, policy, 7, begin(envs, 0), tell_resets=True)
            second = collect(envs, policy, 9, first.end, tell_resets=True)
        for rollout in (first, second):
            assert rollout.resets is not None
            assert isinstance(rollout.observations, np.ndarray)
            np.testing.assert_array_equal(rollout.resets, rollout.observations[..., 0] % 10 == 0)
        np.testing.assert_array_equal(np.concatenate([first.resets, second.resets]), told)  # type: ignore[list-item]
        assert first.resets is not None
        assert 2 < first.resets.sum() < first.resets.size

    def test_nobody_else_is_told(self) -> None:
        with scripted_fleet(SAME_STEP) as envs:
            rollout = collect(envs, lambda observations: np.zeros(2, np.int64), 3, begin(envs, 0))
        assert rollout.resets is None
        with scripted_fleet(SAME_STEP) as envs:
            start = dataclasses.replace(begin(envs, 0), starting=None)
            with pytest.raises(ValueError, match="where a rollout ended, or at begin"):
                collect(envs, lambda observations, resets: np.zeros(2, np.int64), 3, start, tell_resets=True)

    @pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP])
    def test_next_observations_are_those_of_the_same_episode(self, mode: Any) -> None:
        with scripted_fleet(mode) as envs:
            rollout = collect(envs, lambda observations: np.zeros(2, np.int64), 12, begin(envs, 0))
        assert isinstance(rollout.observations, np.ndarray)
        assert isinstance(rollout.next_observations, np.ndarray)
        before, after = rollout.observations[rollout.valid], rollout.next_observations[rollout.valid]
        np.testing.assert_array_equal(after[:, 0], before[:, 0] + 1)


class Adding(torch.nn.Module):
    """A memory whose state is the sum of what it has seen."""

    def forward(self, observations: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return state + observations[:, :1].float()


class Summing(Remembering):
    """Its state, and so its values, can be worked out by hand."""

    @classmethod
    def memory_for(cls, config: PPOConfig, task: Task, size: int) -> torch.nn.Module:
        return Adding()


class TestSequences:
    @pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP])
    def test_values_and_advantages(self, mode: Any) -> None:
        config = dataclasses.replace(CONFIG, num_envs=2, hidden_sizes=(1,), normalize_rewards=False)
        box = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        learner = Summing(config, Task(box, spaces.Discrete(3), 2, CPU))
        with torch.no_grad():
            learner.critic.body.weight.fill_(0.5)
            learner.critic.body.bias.fill_(1.0)
        with scripted_fleet(mode) as envs:
            start, sums = begin(envs, 0), np.zeros(2)
            for _ in range(3):
                rollout = collect(envs, learner.act, 5, start, tell_resets=True)
                batch = learner._sequences(rollout, learner._start)
                values, next_values, sums = by_hand(rollout, sums)
                ends = rollout.done
                ends[:-1] |= ~rollout.valid[1:]
                wanted = gae(rollout.rewards, values, next_values, rollout.terminated, ends, config.gamma, 0.95)
                np.testing.assert_array_equal(batch.valid.numpy(), rollout.valid)
                rows = rollout.valid
                np.testing.assert_allclose(batch.values.numpy(), values, rtol=1e-5)
                np.testing.assert_allclose(batch.advantages.numpy()[rows], wanted[rows], rtol=1e-4, atol=1e-3)
                np.testing.assert_allclose(batch.returns.numpy()[rows], (wanted + values)[rows], rtol=1e-4, atol=1e-3)
                learner._start, start = learner._states, rollout.end
                one = batch.at(torch.tensor([1]))
                torch.testing.assert_close(one.observations, batch.observations[:, 1:])
                torch.testing.assert_close(one.start, batch.start[1:])

    def test_what_was_acted_by_is_what_is_learnt_from(self) -> None:
        """The log-probabilities of the actions, worked out along the sequence, are those they were drawn with."""
        learner = Remembering(dataclasses.replace(CONFIG, num_envs=2), task_of(Recall(), 2))
        drawn: list[torch.Tensor] = []
        sample = learner.actor.distribution.sample

        def noting(outputs: torch.Tensor, *rest: Any) -> torch.Tensor:
            drawn.append(outputs.clone())
            return sample(outputs, *rest)

        learner.actor.distribution.sample = noting  # type: ignore[method-assign]
        envs = two_recalls()
        rollout = collect(envs, learner.act, 6, begin(envs, 0), tell_resets=True)
        batch = learner._sequences(rollout, learner._start)
        outputs, _ = learner.actor.along(batch.observations, batch.start, batch.resets)
        torch.testing.assert_close(outputs, torch.stack(drawn))
        envs.close()


def by_hand(rollout: Any, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values 0.5 * sum + 1 of the observations of each episode so far, and of what came next."""
    values, next_values = np.zeros(rollout.rewards.shape), np.zeros(rollout.rewards.shape)
    following = rollout.next_observations
    for step in range(len(values)):
        sums = np.where(rollout.resets[step], 0, sums) + rollout.observations[step, :, 0]
        values[step] = 0.5 * sums + 1
        next_values[step] = 0.5 * (sums + following[step, :, 0]) + 1
    return values, next_values, sums


def task_of(env: Any, num_envs: int) -> Task:
    return Task(env.observation_space, env.action_space, num_envs, CPU)


def two_recalls() -> Any:
    from envfleet import make_vec

    return make_vec(Recall, 2, "sync", vector_kwargs={"autoreset_mode": SAME_STEP})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = dataclasses.replace(CONFIG, eval_every=320, eval_episodes=4)
    run = tmp_path_factory.mktemp("memory") / "run"
    return train(config, learner=Remembering, run_dir=run, progress=False).run_dir


class TestARun:
    def test_a_stopped_run_goes_on_exactly(self, trained: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        config = load_agent(trained).config
        train(config, learner=Remembering, run_dir=run, callback=stop_at([3 * 32]), progress=False)
        resume(run, callback=stop_at([11 * 32]), progress=False)
        assert resume(run, progress=False).finished
        np.testing.assert_equal(outcome(run), outcome(trained))

    def test_its_agent_plays_the_same_however_many_at_once(self, trained: Path, tmp_path: Path) -> None:
        agent = load_agent(trained)
        assert agent.needs_resets
        film = showcase(agent, episodes=4, path=tmp_path / "film.mp4", mosaic=True, progress=False)
        score = evaluate(agent, episodes=4, num_envs=4, backend="sync")
        assert (film.returns, film.lengths) == (score.returns, score.lengths)
        one_by_one = showcase(agent, episodes=4, path=tmp_path / "film.mp4", progress=False)
        assert one_by_one.returns == film.returns

    def test_first_ready_is_refused(self, tmp_path: Path) -> None:
        config = dataclasses.replace(CONFIG, first_ready=2)
        with pytest.raises(ValueError, match="does not go together with Remembering, which must know where episodes"):
            train(config, learner=Remembering, run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()


class TestAgent:
    @pytest.fixture
    def agent(self, tmp_path: Path) -> Any:
        run = tmp_path / "run"
        return train(CONFIG, learner=Remembering, run_dir=run, callback=stop_at([32]), progress=False, loggers=()).agent

    def outputs(self, agent: Any, seen: Any) -> Any:
        """What the actor says after a sequence from the beginning of an episode."""
        state = torch.zeros(1, agent.actor.state_size)
        for number, one in enumerate(seen):
            _, state = agent.actor(torch.tensor([[one]]), state, torch.tensor([number == 0]))
        return state

    def test_it_carries_a_state_for_every_environment(self, agent: Any) -> None:
        assert isinstance(agent.actor, MemoryActor)
        seen = np.array([[1.0], [-1.0]], np.float32)
        agent.act(seen, resets=np.array([True, True]))
        agent.act(0 * seen, resets=np.array([False, False]))
        agent.act(seen, resets=np.array([False, True]))
        states = agent._states.read(torch.tensor([0, 1]), torch.tensor([False, False]))
        torch.testing.assert_close(states[:1], self.outputs(agent, [1.0, 0.0, 1.0]))
        torch.testing.assert_close(states[1:], self.outputs(agent, [-1.0]))
        agent.act(seen[:1], resets=np.array([False]), env_ids=np.array([1]))
        states = agent._states.read(torch.tensor([0, 1]), torch.tensor([False, False]))
        torch.testing.assert_close(states[:1], self.outputs(agent, [1.0, 0.0, 1.0]))
        torch.testing.assert_close(states[1:], self.outputs(agent, [-1.0, 1.0]))

    def test_an_evaluation_meanwhile_changes_nothing_of_it(self, agent: Any) -> None:
        agent.act(np.ones((2, 1), np.float32), resets=np.array([True, True]))
        before = agent._states.read(torch.tensor([0, 1]), torch.tensor([False, False])).clone()
        evaluate(agent, episodes=2, num_envs=2, backend="sync")
        torch.testing.assert_close(agent._states.read(torch.tensor([0, 1]), torch.tensor([False, False])), before)

    def test_who_does_not_say_where_episodes_begin_is_told(self, agent: Any) -> None:
        seen = np.zeros((2, 1), np.float32)
        with pytest.raises(TypeError, match=r"This policy remembers: .* agent\.act\(observations, resets=\.\.\.\)"):
            agent.act(seen)
        with pytest.raises(ValueError, match="environment 1 has begun no episode yet"):
            agent.act(seen, resets=np.array([True, False]))
        with pytest.raises(ValueError, match=r"resets must be bool\[2\], one per observation, got shape \(3,\)"):
            agent.act(seen, resets=np.ones(3, np.bool_))


def test_a_memory_of_the_wrong_shape() -> None:
    class Wide(Base[PPOConfig]):
        metrics = ()
        update = Remembering.update  # type: ignore[assignment]

        @classmethod
        def memory_for(cls, config: PPOConfig, task: Task, size: int) -> torch.nn.Module:
            return Doubled()

    learner = Wide(CONFIG, task_of(Recall(), 4))
    with pytest.raises(ValueError, match=r"The memory must give states \[4, 8\], got \[4, 16\]"):
        learner.act(np.zeros((4, 1), np.float32), resets=np.ones(4, np.bool_))


class Doubled(torch.nn.Module):
    def forward(self, observations: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return torch.cat([state, state], -1)
