"""Minari datasets from fleets: whole episodes, the same as by hand, on every backend and in every mode; and back."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import envfleet
from envfleet.train import DQNConfig, SACConfig, Task, Transitions, evaluate, load_agent, resume, train

minari = pytest.importorskip("minari")

from envfleet.adapters.minari import MinariRecorder, record, replay_from  # noqa: E402
from envfleet.train.algorithms.dqn import DQN  # noqa: E402
from envfleet.train.folders.checkpoint import load_checkpoint  # noqa: E402
from envfleet.train.folders.folder import RunFolder  # noqa: E402

MODES = list(AutoresetMode)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    return tmp_path / "datasets"


class Walk(gym.Env[Any, Any]):
    """A random walk with nested spaces: it ends at a border, or is cut off after eight steps."""

    observation_space = spaces.Dict(
        where=spaces.Box(-9.0, 9.0, (2,), np.float64),
        kind=spaces.Tuple([spaces.Discrete(5, start=-2), spaces.MultiBinary(2)]),
    )
    action_space = spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(-1.0, 3.0, (2,), np.float32)])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at, self._steps = self.np_random.normal(size=2), 0
        if options:
            self._at[:] = options["at"]
        return self._observe(), {"steps": 0, "lucky": float(self.np_random.random()), "first": True}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        self._steps += 1
        self._at = (self._at + 0.5 * action[1] + self.np_random.normal(size=2)).clip(-9, 9)
        over = bool(np.abs(self._at).max() > 4)
        info = {"steps": self._steps, "lucky": float(self.np_random.random()), "gear": int(action[0])}
        return self._observe(), float(self._at.sum() * action[0]), over, not over and self._steps == 8, info

    def _observe(self) -> Any:
        kind = np.int64(self._steps % 5 - 2), np.array([self._steps % 2, 1], np.int8)
        return {"where": self._at.copy(), "kind": kind}


class Actions:
    """Actions that only depend on what an environment sees, so that they are the same wherever it lives."""

    def __call__(self, observations: Any) -> Any:
        where = np.atleast_2d(observations["where"])
        gears = 1 + (np.abs(where).sum(-1) * 7).astype(np.int64) % 3
        return gears, np.sin(3 * where).astype(np.float32)

    def single(self, observation: Any) -> Any:
        gears, numbers = self(observation)
        return gears[0], numbers[0]


def by_hand(seed: int | None, count: int, options: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The first episodes of one environment, as lists of what it gave."""
    env, episodes = Walk(), []
    for number in range(count):
        observation, info = env.reset(seed=seed if number == 0 else None, options=options if number == 0 else None)
        episode: dict[str, Any] = {"observations": [observation], "actions": [], "rewards": [], "infos": [info]}
        terminated = truncated = False
        while not (terminated or truncated):
            action = Actions().single(observation)
            observation, reward, terminated, truncated, info = env.step(action)
            episode["observations"].append(observation)
            episode["actions"].append(action)
            episode["rewards"].append(reward)
            episode["infos"].append(info)
        episodes.append({**episode, "terminated": terminated, "truncated": truncated})
    return episodes


def assert_same(recorded: Any, expected: dict[str, Any]) -> None:
    where = np.stack([each["where"] for each in expected["observations"]])
    assert recorded.observations["where"].tobytes() == where.tobytes()
    for place in (0, 1):
        kinds = np.stack([each["kind"][place] for each in expected["observations"]])
        assert recorded.observations["kind"][place].dtype == kinds.dtype
        np.testing.assert_array_equal(recorded.observations["kind"][place], kinds)
        actions = np.stack([action[place] for action in expected["actions"]])
        assert recorded.actions[place].dtype == actions.dtype
        assert recorded.actions[place].tobytes() == actions.tobytes()
    assert recorded.rewards.tobytes() == np.array(expected["rewards"]).tobytes()
    last = len(expected["rewards"]) - 1
    np.testing.assert_array_equal(
        recorded.terminations, [i == last and expected["terminated"] for i in range(last + 1)]
    )
    np.testing.assert_array_equal(recorded.truncations, [i == last and expected["truncated"] for i in range(last + 1)])


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("backend", ["sync", "process"])
def test_episodes_are_those_of_single_environments(backend: str, mode: AutoresetMode, copy: bool) -> None:
    with envfleet.make_vec(Walk, 3, backend, vector_kwargs={"autoreset_mode": mode, "copy": copy}) as envs:
        dataset = record(envs, Actions(), 8, "walk/test-v0", seed=5, record_infos=True)
    assert (dataset.total_episodes, dataset.storage.total_episodes) == (8, 8)
    expected = [by_hand(5 + env, 3 if env < 2 else 2) for env in range(3)]
    assert dataset.total_steps == sum(len(episode["rewards"]) for plays in expected for episode in plays)
    by_first = {tuple(episode["observations"][0]["where"]): episode for plays in expected for episode in plays}
    seeds = []
    for recorded, about in zip(dataset.iterate_episodes(), dataset.storage.get_episode_metadata(range(8)), strict=True):
        episode = by_first.pop(tuple(recorded.observations["where"][0]))
        assert_same(recorded, episode)
        # Entries that all infos of an episode have: "first" and "gear" are not among them.
        assert sorted(recorded.infos) == ["lucky", "steps"]
        np.testing.assert_array_equal(recorded.infos["lucky"], [info["lucky"] for info in episode["infos"]])
        np.testing.assert_array_equal(recorded.infos["steps"], np.arange(len(recorded) + 1))
        assert about["rewards_sum"] == pytest.approx(sum(episode["rewards"]))
        seeds.append(about.get("seed"))
    assert not by_first
    assert sorted(seed for seed in seeds if seed is not None) == [5, 6, 7]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_compiled_environments(mode: AutoresetMode) -> None:
    def policy(observations: Any) -> Any:
        return (observations[:, 2] > 0).astype(np.int64)

    episodes = {}
    for backend in ("native", "sync"):
        with envfleet.make_vec("CartPole-v1", 2, backend, vector_kwargs={"autoreset_mode": mode}) as envs:
            dataset = record(envs, policy, 3, f"cartpole/{backend}-v0", seed=1, metadata={"author": "us"})
        assert dataset.storage.metadata["author"] == {"us"}
        assert dataset.recover_environment().spec.id == "CartPole-v1"
        episodes[backend] = list(dataset.iterate_episodes())
    for native, python in zip(episodes["native"], episodes["sync"], strict=True):
        assert native.observations.tobytes() == python.observations.tobytes()
        assert native.observations.dtype == np.float32
        assert native.terminations[-1]
        np.testing.assert_array_equal(native.actions, python.actions)


def test_metadata_says_what_was_recorded(datasets: Path) -> None:
    about = {"author": "a", "author_email": "a@b", "algorithm_name": "x", "code_permalink": "y", "description": "z"}
    with envfleet.make_vec("Pendulum-v1", 2, "sync", g=9.0, max_episode_steps=5) as envs:
        dataset = record(envs, lambda _: np.zeros((2, 1), np.float32), 4, "pendulum/short-v3", metadata=about)
        assert envs.reset()  # still open
    raw = json.loads((datasets / "pendulum" / "short-v3" / "data" / "metadata.json").read_text())
    assert {key: raw[key] for key in ("total_steps", "total_episodes", "dataset_id")} == {
        "total_steps": 20,
        "total_episodes": 4,
        "dataset_id": "pendulum/short-v3",
    }
    assert raw["algorithm_name"] == "x"
    assert raw["minari_version"] == minari.__version__
    spec = dataset.env_spec
    assert (spec.id, spec.kwargs["g"], spec.max_episode_steps) == ("Pendulum-v1", 9.0, 5)
    loaded = minari.load_dataset("pendulum/short-v3")
    assert loaded.observation_space == envs.single_observation_space
    assert loaded.action_space == envs.single_action_space
    assert all(episode.truncations[-1] and not episode.terminations[-1] for episode in loaded.iterate_episodes())


def test_a_loop_of_one_s_own(datasets: Path) -> None:
    """With resets of some environments, options, seeds of one's own, and episodes that are cut off."""
    fleet = envfleet.make_vec(Walk, 2, "sync", autoreset_mode="NEXT_STEP")
    with closing(MinariRecorder(fleet, "walk-v0")) as envs:
        observations, _ = envs.reset(seed=[3, None])
        observations, *_ = envs.step(Actions()(observations))
        # What has begun is cut off, so that nothing of it is recorded.
        mask = np.array([True, False])
        observations, _ = envs.reset(seed=[9, None], options={"reset_mask": mask, "at": 1.5})
        ended = 0
        while ended < 3:
            observations, _, terminated, truncated, _ = envs.step(Actions()(observations))
            ended += int((terminated | truncated)[0])
        recorded = list(envs.dataset.iterate_episodes())
    starts = {tuple(each.observations["where"][0]): each for each in recorded}
    for episode in by_hand(9, 3, {"at": 1.5}):
        assert_same(starts[tuple(episode["observations"][0]["where"])], episode)
    about = list(minari.load_dataset("walk-v0").storage.get_episode_metadata(range(len(recorded))))
    (seeded,) = [each for each in about if each.get("seed") is not None]
    assert seeded["seed"] == 9
    assert seeded["options"] == {"at": 1.5}


def test_an_episode_that_a_failure_cut_off_is_left_out() -> None:
    with envfleet.make_vec(Breaks, 1, "sync", vector_kwargs={"on_failure": "restart"}) as envs:
        dataset = record(envs, lambda _: np.zeros(1, np.int64), 3, "breaks-v0", seed=0)
    assert [len(episode) for episode in dataset.iterate_episodes()] == [4, 4, 4]


class Breaks(gym.Env[Any, Any]):
    """Four steps an episode; the very second step of all raises."""

    observation_space = spaces.Box(0, 9, (1,))
    action_space = spaces.Discrete(2)
    steps_of_all = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        type(self).steps_of_all += 1
        if type(self).steps_of_all == 2:
            raise RuntimeError("as planned")
        self._steps += 1
        return np.full(1, self._steps, np.float32), 1.0, self._steps == 4, False, {}


def test_what_cannot_be_is_refused_before_anything_is_played(datasets: Path) -> None:
    with envfleet.make_vec("CartPole-v1", 2, "sync") as envs:
        record(envs, lambda _: np.zeros(2, np.int64), 1, "cartpole/once-v0")
        with pytest.raises(ValueError, match=r"There is a dataset 'cartpole/once-v0' already.*minari.delete_dataset"):
            record(envs, lambda _: np.zeros(2, np.int64), 1, "cartpole/once-v0")
        with pytest.raises(ValueError, match=r"metadata may have algorithm_name, .* got 'auther'"):
            record(envs, lambda _: np.zeros(2, np.int64), 1, "cartpole/twice-v0", metadata={"auther": "me"})
        with pytest.raises(ValueError, match="episodes must be a positive integer, got 0"):
            record(envs, lambda _: np.zeros(2, np.int64), 0, "cartpole/twice-v0")
    assert not (datasets / "cartpole" / "twice-v0").exists()


class TestReplay:
    def recorded(self) -> Any:
        with envfleet.make_vec(Walk, 3, "sync") as envs:
            return record(envs, Actions(), 20, "walk/replay-v0", seed=5)

    def test_transitions_are_those_of_the_episodes(self) -> None:
        dataset = self.recorded()
        replay = replay_from(dataset)
        assert len(replay) == dataset.total_steps
        batch = replay.sample(500, CPU, gamma=0.9)
        # A first observation names its transition.
        steps = {}
        for episode in dataset.iterate_episodes():
            for t in range(len(episode)):
                steps[tuple(episode.observations["where"][t])] = episode, t
        assert isinstance(batch.observations, dict)
        seen = set()
        for row, where in enumerate(batch.observations["where"].tolist()):
            episode, t = steps[tuple(where)]
            seen.add(tuple(where))
            assert isinstance(batch.next_observations, dict)
            assert batch.next_observations["where"][row].tolist() == episode.observations["where"][t + 1].tolist()
            assert batch.next_observations["kind"][0][row] == episode.observations["kind"][0][t + 1]
            # The gear as it is, the numbers in units: -1 to 3 are the bounds.
            expected = [episode.actions[0][t], *((episode.actions[1][t] - 1) / 2)]
            np.testing.assert_allclose(batch.actions[row], expected, rtol=1e-6, atol=1e-7)
            assert batch.rewards[row] == np.float32(episode.rewards[t])
            assert batch.terminated[row] == episode.terminations[t]
        assert len(seen) > 0.8 * len(replay)

    def test_several_steps_at_once_stay_within_an_episode(self) -> None:
        dataset = self.recorded()
        batch = replay_from(dataset).sample(300, CPU, steps=50, gamma=1.0)
        returns = {}
        for episode in dataset.iterate_episodes():
            for t in range(len(episode)):
                returns[tuple(episode.observations["where"][t])] = episode.rewards[t:].sum(), episode.terminations[-1]
        assert isinstance(batch.observations, dict)
        for row, where in enumerate(batch.observations["where"].tolist()):
            total, terminated = returns[tuple(where)]
            assert batch.rewards[row].item() == pytest.approx(total, rel=1e-4, abs=1e-4)
            assert batch.terminated[row] == terminated

    def test_the_latest_transitions_are_kept(self) -> None:
        dataset = self.recorded()
        assert len(replay_from(dataset, capacity=10)) == 10

    def test_a_critic_learns_from_a_dataset(self) -> None:
        """Of a chain that pays 1 a step and ends after four: 4, 3, 2, 1."""
        with envfleet.make_vec(Countdown, 4, "sync") as envs:
            dataset = record(envs, lambda _: np.zeros((4, 1), np.float32), 8, "countdown-v0", seed=0)
        replay = replay_from(dataset)
        batch: Transitions = replay.sample(200, CPU, gamma=1.0)
        # Least squares: what a state is worth is its reward and what the next is worth.
        shown, following = batch.observations, batch.next_observations
        assert isinstance(shown, torch.Tensor)
        assert isinstance(following, torch.Tensor)
        differences = shown - (1 - batch.terminated)[:, None] * following
        values = torch.linalg.lstsq(differences, batch.rewards[:, None]).solution.flatten()
        np.testing.assert_allclose(values, [4, 3, 2, 1], atol=1e-4)


class Countdown(gym.Env[Any, Any]):
    observation_space = spaces.Box(0, 1, (4,))
    action_space = spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._state = 0
        return np.eye(4, dtype=np.float32)[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._state += 1
        return np.eye(4, dtype=np.float32)[self._state % 4], 1.0, self._state == 4, False, {}


class Aim(gym.Env[Any, Any]):
    """Pays the more, the nearer the action is to what is shown, or nothing at all; an episode is four steps."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Box(-2, 2, (1,))

    def __init__(self, pays: bool = True) -> None:
        self._pays = pays

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = -float(np.abs(action - self._shown)[0]) if self._pays else 0.0
        return self._show(), reward, False, False, {}

    def _show(self) -> Any:
        self._shown = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self._shown


gym.register("minari-test/Aim-v0", Aim, max_episode_steps=4, disable_env_checker=True)


class TestDemonstrations:
    """SAC that begins with what a dataset shows."""

    def config(self, **changes: Any) -> SACConfig:
        small: dict[str, Any] = {"num_envs": 2, "backend": "sync", "hidden_sizes": (32,), "total_steps": 16}
        rates = {"actor_lr": 3e-3, "critic_lr": 3e-3, "tau": 0.05, "anneal": False, "initial_temperature": 0.05}
        rewards = {"gamma": 0.0, "normalize_rewards": False, "reward_scale": 10.0}
        learning = {"learning_starts": 4, "updates_per_step": 30.0, "batch_size": 64}
        return SACConfig("minari-test/Aim-v0", **{**small, **rates, **rewards, **learning, **changes})

    def recorded(self, name: str = "aim/random-v0") -> Any:
        with envfleet.make_vec("minari-test/Aim-v0", 4, "sync") as envs:
            envs.action_space.seed(0)
            return record(envs, lambda _: envs.action_space.sample(), 250, name, seed=0)

    def test_it_learns_from_them(self, tmp_path: Path) -> None:
        assert self.recorded().total_steps == 1000
        config = self.config(demonstrations="aim/random-v0", env_kwargs={"pays": False})
        agent = train(config, run_dir=tmp_path / "run", progress=False).agent
        scores = evaluate(agent, episodes=50, backend="sync", env_kwargs={"pays": True})
        # Whoever always acts 0 is wrong by 0.5 a step, and the run's own environments pay nothing.
        assert -scores.mean_return / 4 < 0.15

    def test_a_resumed_run_ends_as_if_it_had_not_been_stopped(self, tmp_path: Path) -> None:
        self.recorded()
        config = self.config(demonstrations="aim/random-v0", updates_per_step=1.0, total_steps=40)
        whole = train(config, run_dir=tmp_path / "whole", progress=False)
        stopped = train(config, run_dir=tmp_path / "run", progress=False, callback=lambda progress: progress.step < 20)
        assert not stopped.finished
        assert resume(stopped.run_dir, progress=False).finished
        seen = np.linspace(-1, 1, 9, dtype=np.float32)[:, None]
        np.testing.assert_array_equal(load_agent(stopped.run_dir).act(seen), load_agent(whole.run_dir).act(seen))

    def test_dqn_begins_with_choices(self, tmp_path: Path) -> None:
        with envfleet.make_vec("CartPole-v1", 2, "sync") as envs:
            recorded = record(envs, lambda _: envs.action_space.sample(), 20, "cartpole/random-v0", seed=0)
        settings: dict[str, Any] = {"num_envs": 2, "backend": "sync", "hidden_sizes": (8,), "learning_starts": 8}
        config = DQNConfig("CartPole-v1", **settings, total_steps=64, demonstrations="cartpole/random-v0")
        run = train(config, run_dir=tmp_path / "run", progress=False).run_dir
        checkpoint = load_checkpoint(RunFolder(run))
        assert checkpoint is not None
        assert len(checkpoint.group("extra")["replay.rewards"]) == recorded.total_steps + 64
        other = Task(recorded.observation_space, spaces.Discrete(2, start=1), 2, CPU)
        said = r"with actions Discrete\(2\), but in this run they are Discrete\(2, start=1\)"
        with pytest.raises(ValueError, match=said):
            DQN(config, other)

    def test_a_dataset_of_another_environment_is_refused(self, tmp_path: Path) -> None:
        with envfleet.make_vec("Pendulum-v1", 2, "sync", max_episode_steps=5) as envs:
            record(envs, lambda _: np.zeros((2, 1), np.float32), 2, "pendulum-v0")
        with pytest.raises(ValueError, match=r"'pendulum-v0' is a dataset with observations Box.*same environment"):
            train(self.config(demonstrations="pendulum-v0"), run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()
