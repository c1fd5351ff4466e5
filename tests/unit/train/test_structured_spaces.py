"""Training with Tuple observations and with Dict and Tuple actions, from the configuration to the film."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from small_runs import CONFIGS, ROLLOUT, changed, outcome, stop_at
from tiny_envs import NESTED_ACTION_SPACES, OBSERVATION_SPACES
from torch import nn

from envfleet import InvalidActionError, NonFiniteError
from envfleet.train import Networks, Task, distribution_for, evaluate, load_agent, resume, showcase, train
from envfleet.train.actions import EnvActions
from envfleet.train.agent import Agent
from envfleet.train.algorithms.registry import make_learner
from envfleet.train.config import PPOConfig, SACConfig, TrainConfig

CPU = torch.device("cpu")
ON_POLICY = pytest.mark.parametrize("algo", ["a2c", "ppo"])
BOTH = {"observations": "tuple", "actions": "both"}


def drawn(space: spaces.Space[Any], batch: int) -> Any:
    batched = batch_space(space, batch)
    batched.seed(0)
    return batched.sample()


def agent_for(actions: str, config: TrainConfig | None = None) -> Agent:
    task = Task(OBSERVATION_SPACES["tuple"], NESTED_ACTION_SPACES[actions], 2, CPU)
    config = config or PPOConfig("unused", normalize_observations=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        learner = make_learner(config, task)
    return Agent(config, learner.actor, task.observation_space, task.action_space, CPU)


class TestRuns:
    @ON_POLICY
    @pytest.mark.parametrize("actions", list(NESTED_ACTION_SPACES))
    def test_a_run_leaves_an_agent(self, algo: str, actions: str, tmp_path: Path) -> None:
        config = changed(algo, env_kwargs={**BOTH, "actions": actions}, total_steps=2 * ROLLOUT)
        result = train(config, run_dir=tmp_path / "run", progress=False)
        assert result.step == 2 * ROLLOUT
        agent = load_agent(result.run_dir)
        assert agent.action_space == NESTED_ACTION_SPACES[actions]
        observations = drawn(OBSERVATION_SPACES["tuple"], 5)
        assert repr(agent.act(observations)) == repr(result.agent.act(observations))
        scores = evaluate(result.run_dir, episodes=4, num_envs=2, backend="sync")
        assert len(scores.returns) == 4

    @pytest.mark.parametrize("algo", ["sac", "td3"])
    def test_sac_and_td3_take_nested_boxes(self, algo: str, tmp_path: Path) -> None:
        changes = {"env_kwargs": {**BOTH, "actions": "numbers"}, "total_steps": 2 * ROLLOUT, "learning_starts": 32}
        result = train(changed(algo, **changes), run_dir=tmp_path / "run", progress=False)
        agent = load_agent(result.run_dir)
        actions = agent.act(drawn(OBSERVATION_SPACES["tuple"], 3))
        batched = batch_space(agent.action_space, 3)
        assert all(action in agent.action_space for action in iterate(batched, actions))

    def test_sac_refuses_choices(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match=r"SAC needs continuous actions .* got Dict.*use A2C or PPO"):
            train(changed("sac", env_kwargs=BOTH), run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        ("algo", "actions"), [("a2c", "both"), ("ppo", "both"), ("sac", "numbers"), ("td3", "numbers")]
    )
    def test_a_resumed_run_ends_as_if_it_had_not_been_stopped(self, algo: str, actions: str, tmp_path: Path) -> None:
        kwargs = {"observations": "tuple", "actions": actions}
        config = changed(algo, env_kwargs=kwargs, total_steps=6 * ROLLOUT)
        whole = train(config, run_dir=tmp_path / "whole", progress=False)
        stopped = train(config, run_dir=tmp_path / "run", progress=False, callback=stop_at([3 * ROLLOUT]))
        assert not stopped.finished
        assert resume(stopped.run_dir, progress=False).finished
        np.testing.assert_equal(outcome(stopped.run_dir), outcome(whole.run_dir))

    @ON_POLICY
    def test_worker_processes_give_the_same_run(self, algo: str, tmp_path: Path) -> None:
        config = changed(algo, env_kwargs=BOTH, total_steps=3 * ROLLOUT)
        here = train(config, run_dir=tmp_path / "here", progress=False)
        there = train(dataclasses.replace(config, backend="process"), run_dir=tmp_path / "there", progress=False)
        np.testing.assert_equal(outcome(there.run_dir), outcome(here.run_dir))

    def test_whichever_environments_are_ready(self, tmp_path: Path) -> None:
        changes = {"env_kwargs": BOTH, "backend": "process", "first_ready": 1, "total_steps": 2 * ROLLOUT}
        assert train(changed("ppo", **changes), run_dir=tmp_path / "run", progress=False).finished

    def test_networks_of_one_s_own(self, tmp_path: Path) -> None:
        class Net(nn.Module):
            def __init__(self, outputs: int) -> None:
                super().__init__()
                self.layer = nn.Linear(7, outputs)

            def forward(self, observations: Any) -> Any:
                kind, inner, (image,) = observations
                parts = [kind[:, None], inner["far"], inner["lamps"], image.flatten(1)[:, :2]]
                return self.layer(torch.cat([part.float() for part in parts], -1))

        # 2 means, 4 options, 2 + 3 options, a mean, 4 switches.
        networks = Networks(Net(2 + 4 + 5 + 1 + 4), Net(1))
        result = train(
            changed("ppo", env_kwargs=BOTH, total_steps=ROLLOUT), run_dir=tmp_path, networks=networks, progress=False
        )
        assert result.agent.actor.log_std is not None
        assert len(result.agent.actor.log_std) == 3

    def test_an_unbounded_part_is_refused_where_bounds_are_needed(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="SAC needs actions with finite bounds"):
            train(SACConfig("unbounded/Parts-v0", backend="sync", num_envs=1), run_dir=tmp_path / "run", progress=False)


class Unbounded(gym.Env[Any, Any]):
    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Tuple([spaces.Box(-1, 1, (1,)), spaces.Box(0, np.inf, (1,))])


gym.register("unbounded/Parts-v0", Unbounded, disable_env_checker=True)


class Drawn(gym.Env[Any, Any]):
    """A square that its action moves, for a film."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  Gymnasium's name and type
    observation_space = spaces.Tuple([spaces.Discrete(30), spaces.Box(0, 60, (1,))])
    action_space = spaces.Dict(jump=spaces.Discrete(2), by=spaces.Box(0.0, 4.0, (1,)))

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at, self._steps = float(self.np_random.uniform(0, 9)), 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        self._steps += 1
        self._at += float(action["by"][0]) * float(action["jump"])
        return self._observe(), self._at, self._steps == 10, False, {}

    def _observe(self) -> Any:
        return np.int64(self._steps), np.array([self._at], np.float32)

    def render(self) -> Any:
        picture = np.full((24, 60, 3), 40, np.uint8)
        picture[8:12, int(self._at) : int(self._at) + 4] = 255
        return picture


gym.register("drawn/Square-v0", Drawn, disable_env_checker=True)


def test_the_film_shows_the_episodes_of_the_evaluation(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    config = dataclasses.replace(CONFIGS["ppo"], env_id="drawn/Square-v0", env_kwargs={}, total_steps=2 * ROLLOUT)
    run = train(config, run_dir=tmp_path / "run", progress=False).run_dir
    shown = showcase(run, episodes=3, seed=4, path=tmp_path / "film.mp4")
    evaluated = evaluate(run, episodes=3, num_envs=3, seed=4, backend="sync")
    assert shown.path.stat().st_size
    np.testing.assert_allclose(shown.returns, evaluated.returns, rtol=1e-6)


class TestAgents:
    @pytest.mark.parametrize("deterministic", [True, False])
    @pytest.mark.parametrize("actions", list(NESTED_ACTION_SPACES))
    def test_actions_are_the_environment_s(self, actions: str, deterministic: bool) -> None:
        agent = agent_for(actions)
        space = NESTED_ACTION_SPACES[actions]
        batch = agent.act(drawn(OBSERVATION_SPACES["tuple"], 6), deterministic)
        singles = list(iterate(batch_space(space, 6), batch))
        assert len(singles) == 6
        assert all(single in space for single in singles)

    @pytest.mark.parametrize(
        ("observations", "said"),
        [
            ((np.zeros(2, np.int64),), "observations must be a tuple of 3, got one of 1"),
            (np.zeros((2, 3)), "observations must be a tuple of 3, got ndarray"),
        ],
    )
    def test_observations_of_another_form_are_refused(self, observations: Any, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            agent_for("both").act(observations)

    def test_outputs_that_pick_no_action_are_refused(self) -> None:
        agent = agent_for("both")
        observations = drawn(OBSERVATION_SPACES["tuple"], 2)
        observations[1]["far"][1, 0] = np.nan
        with pytest.raises(NonFiniteError, match=r"row 1 of the observations .* is nan at \[1\]\['far'\]"):
            agent.act(observations)
        observations[1]["far"][1, 0] = 0
        with torch.no_grad():
            agent.actor.body.layers[-1].bias[0] = -np.inf  # a mean; a logit might be
        with pytest.raises(NonFiniteError, match="weights of this agent are not finite"):
            agent.act(observations)


class TestJointDistribution:
    @pytest.mark.parametrize("actions", list(NESTED_ACTION_SPACES))
    def test_it_is_the_product_of_its_parts(self, actions: str) -> None:
        space = NESTED_ACTION_SPACES[actions]
        joint = distribution_for(space)
        leaves = leaves_of(space)
        parts = [distribution_for(leaf) for leaf in leaves]
        assert joint.outputs == sum(part.outputs for part in parts)
        outputs = torch.randn(5, joint.outputs, generator=torch.Generator().manual_seed(1))
        rows = joint.sample(outputs, torch.Generator().manual_seed(2))
        dtypes = {"choices": torch.int64, "numbers": torch.float32, "both": torch.float64}
        assert rows.dtype == dtypes[actions]
        # One generator, in the order of the space.
        generator = torch.Generator().manual_seed(2)
        log_prob, entropy = torch.zeros(5), torch.zeros(5)
        given, learned, column = 0, joint.network_outputs, 0
        for part, leaf in zip(parts, leaves, strict=True):
            stds = part.outputs - part.network_outputs
            own = torch.cat(
                [outputs[:, given : given + part.network_outputs], outputs[:, learned : learned + stds]], -1
            )
            given, learned = given + part.network_outputs, learned + stds
            action = part.sample(own, generator)
            width = int(np.prod(leaf.shape))
            columns = rows[:, column : column + width].reshape(action.shape)
            assert torch.equal(columns.to(action.dtype), action)
            column += width
            log_prob, entropy = log_prob + part.log_prob(own, action), entropy + part.entropy(own)
        torch.testing.assert_close(joint.log_prob(outputs, rows), log_prob)
        torch.testing.assert_close(joint.entropy(outputs), entropy)

    def test_rows_become_actions_within_their_bounds(self) -> None:
        space = NESTED_ACTION_SPACES["both"]
        # In the order of the space, which sorts its keys: arm, gear, inner, lamps.
        rows = np.array([[1.0, -9.0, 2, 0, 6, 0.5, 1, 0, 0, 1]], np.float64)
        actions = EnvActions(space)(rows)
        assert actions["gear"].dtype == np.int32
        assert actions["gear"].tolist() == [2]
        assert actions["arm"].tolist() == [[3.0, -2.0]]  # -1 to 1 spans -2 to 3, and what lies outside is clipped
        assert actions["inner"][0].tolist() == [[0, 6]]
        assert actions["inner"][1].tolist() == [[0.5]]
        assert actions["lamps"].tolist() == [[[1, 0], [0, 1]]]
        with pytest.raises(InvalidActionError, match="rows of 10 numbers"):
            EnvActions(space)(rows[:, :9])


def leaves_of(space: Any) -> list[Any]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return [leaf for part in parts for leaf in leaves_of(part)]
    return [space]
