"""One number that is not finite: it stops a run before anything is saved, or costs its episode, and is never scored."""

from __future__ import annotations

import dataclasses
import math
import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from players import Player
from small_runs import outcome, stop_at
from torch import nn

from envfleet.errors import FleetError, NonFiniteError
from envfleet.train.agent import Agent
from envfleet.train.config import A2CConfig, DQNConfig, PPOConfig, SACConfig, TD3Config, TrainConfig
from envfleet.train.filming.showcase import showcase
from envfleet.train.folders.checkpoint import load_agent
from envfleet.train.folders.weights import load_tensors, save_tensors
from envfleet.train.judging.evaluation import evaluate, evaluate_sweep
from envfleet.train.networks.networks import Networks
from envfleet.train.running.metrics import read_metrics
from envfleet.train.running.reporting import Progress
from envfleet.train.running.run import resume, train

LIMIT = 10
"""Every episode has as many steps."""


@dataclass(frozen=True)
class Flaw:
    """What is wrong, and when: in which steps of the environments whose seed is odd.

    In `what`, "observation", "reward" and "final" come with a step, "first" with the reset that follows one.
    """

    what: str
    value: float
    steps: tuple[int, ...] = (43,)


class FlawedEnv(gym.Env[Any, Any]):
    """Random observations and rewards, some of them as the current flaw says."""

    flaw: Flaw | None = None

    def __init__(self, continuous: bool = False, nested: bool = False, shift: float = 0.0) -> None:
        self._box = spaces.Box(-np.inf, np.inf, (3,), np.float64 if nested else np.float32)
        self.observation_space: Any = self._box
        if nested:
            self.observation_space = spaces.Dict({"kind": spaces.Discrete(2, start=1), "where": self._box})
        self.action_space: Any = spaces.Box(-1, 1, (2,), np.float32) if continuous else spaces.Discrete(2)
        self._nested, self._shift, self._odd, self._steps = nested, shift, False, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self._odd, self._steps = bool(seed % 2), 0
        return self._observe("first"), {}

    def step(self, action: Any) -> Any:
        assert np.isfinite(action).all()
        self._steps += 1
        over = self._steps % LIMIT == 0
        observation = self._observe("final" if over else "observation")
        reward = float(self.np_random.normal()) + self._shift
        return observation, self._flawed("reward", reward), False, over, {}

    def _observe(self, what: str) -> Any:
        where = self.np_random.normal(size=3).astype(self._box.dtype)
        where[1] = self._flawed(what, where[1])
        return {"kind": 1 + self.np_random.integers(2), "where": where} if self._nested else where

    def _flawed(self, what: str, value: Any) -> Any:
        flaw = type(self).flaw
        here = flaw is not None and self._odd and flaw.what == what and self._steps in flaw.steps
        return flaw.value if flaw is not None and here else value


FLAWED = "tiny/Flawed-v0"
gym.register(FLAWED, FlawedEnv, disable_env_checker=True)

SMALL: dict[str, Any] = {"num_envs": 2, "backend": "sync", "hidden_sizes": (8,), "normalize_observations": True}
ROLLOUT = 32
OFF_POLICY: dict[str, Any] = {
    "total_steps": 6 * ROLLOUT,
    "learning_starts": 20,
    "batch_size": 8,
    "updates_per_step": 0.15,
    "return_steps": 3,
}
CONFIGS: dict[str, TrainConfig] = {
    "a2c": A2CConfig(FLAWED, **SMALL, rollout_steps=16, critic_updates=2, total_steps=6 * ROLLOUT),
    "ppo": PPOConfig(
        FLAWED,
        **SMALL,
        rollout_steps=16,
        minibatch_size=16,
        epochs=2,
        total_steps=6 * ROLLOUT,
        env_kwargs={"continuous": True},
    ),
    "sac": SACConfig(FLAWED, **SMALL, **OFF_POLICY, env_kwargs={"continuous": True}),
    "td3": TD3Config(FLAWED, **SMALL, **OFF_POLICY, env_kwargs={"continuous": True}),
    "dqn": DQNConfig(FLAWED, **SMALL, **OFF_POLICY),
}
EVERY = pytest.mark.parametrize("algo", list(CONFIGS))
CHECKPOINT = "checkpoint/latest.safetensors"


def saved(run: Path) -> list[bytes]:
    """The weights and the checkpoint, as they lie in the run's folder; DQN has no critic."""
    weights = sorted(run.glob("*.safetensors"))
    assert weights
    return [path.read_bytes() for path in (*weights, run / CHECKPOINT)]


FLAWS = {
    "nan reward": (Flaw("reward", math.nan), "reward"),
    "infinite reward": (Flaw("reward", -math.inf), "reward"),
    "overflowing reward": (Flaw("reward", 1e300), "reward"),
    "reward whose square overflows": (Flaw("reward", -1e38), "reward"),
    "nan observation": (Flaw("observation", math.nan), "observation"),
    "infinite observation": (Flaw("observation", math.inf), "observation"),
    "nan final observation": (Flaw("final", math.nan, (50,)), "final observation"),
    "nan first observation": (Flaw("first", math.nan, (50,)), "observation"),
}


@pytest.fixture
def flawed() -> Iterator[Callable[[Flaw | None], None]]:
    """A function that sets what is wrong with the environments."""
    yield lambda flaw: setattr(FlawedEnv, "flaw", flaw)
    FlawedEnv.flaw = None


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """One run of every algorithm, whole or stopped after two rollouts; made once, for copies to be taken of."""
    folder = tmp_path_factory.mktemp("runs")

    def run(algo: str, kind: str) -> Path:
        path = folder / f"{algo}-{kind}"
        if not path.exists():
            callback = stop_at([2 * ROLLOUT]) if kind == "part" else None
            train(CONFIGS[algo], run_dir=path, callback=callback, progress=False)
        return path

    return run


def odd_env(config: TrainConfig) -> int:
    """The environment of a run that is flawed: the one with an odd seed."""
    from envfleet.train.environments import env_seed

    return 1 - env_seed(config.seed, 0) % 2


class TestStop:
    @pytest.mark.parametrize("case", FLAWS)
    @EVERY
    def test_it_is_named_nothing_is_saved_and_the_run_goes_on(
        self, algo: str, case: str, runs: Any, flawed: Any, tmp_path: Path
    ) -> None:
        run = shutil.copytree(runs(algo, "part"), tmp_path / "run")
        flaw, quantity = FLAWS[case]
        before = saved(run)
        flawed(flaw)
        env, step = odd_env(CONFIGS[algo]), 2 * flaw.steps[0]
        with pytest.raises(NonFiniteError, match=rf"^The {quantity} of environment {env} at step {step} is ") as caught:
            resume(run, progress=False)
        assert (caught.value.quantity, caught.value.env_index, caught.value.step) == (quantity, env, step)
        assert f"{flaw.value:g}" in str(caught.value)
        assert f"resume({str(run)!r}) goes on from there" in str(caught.value)
        assert saved(run) == before
        flawed(None)
        assert resume(run, progress=False).finished
        if case == "nan reward":
            np.testing.assert_equal(outcome(run), outcome(runs(algo, "whole")))

    @EVERY
    def test_entries_of_a_dict_are_named(self, algo: str, flawed: Any, tmp_path: Path) -> None:
        flawed(Flaw("observation", 1e39, (3,)))  # float64 holds it, the networks' float32 does not
        config = CONFIGS[algo]
        config = dataclasses.replace(config, env_kwargs={**config.env_kwargs, "nested": True})
        with pytest.raises(NonFiniteError, match=r"is 1e\+39 at \['where'\]\[1\], more than the 3\.40282e\+38 that fl"):
            train(config, run_dir=tmp_path / "run", progress=False)
        assert_as_it_began(tmp_path / "run")

    @EVERY
    def test_before_the_first_step(self, algo: str, flawed: Any, tmp_path: Path) -> None:
        flawed(Flaw("first", math.inf, (0,)))
        env = odd_env(CONFIGS[algo])
        with pytest.raises(NonFiniteError, match=rf"The observation of environment {env} at step 0 is inf at \[1\]\."):
            train(CONFIGS[algo], run_dir=tmp_path / "run", progress=False)

    @EVERY
    def test_where_the_first_ones_to_be_ready_act(self, algo: str, flawed: Any, tmp_path: Path) -> None:
        flawed(Flaw("reward", math.nan))
        config = dataclasses.replace(CONFIGS[algo], first_ready=1, backend="process")
        with pytest.raises(NonFiniteError, match=rf"The reward of environment {odd_env(config)} at step [0-9]+ is nan"):
            train(config, run_dir=tmp_path / "run", progress=False)

    def test_a_large_reward_may_be_scaled(self, flawed: Any, tmp_path: Path) -> None:
        flawed(Flaw("reward", 1e16))
        config = dataclasses.replace(CONFIGS["a2c"], normalize_rewards=False)
        with pytest.raises(NonFiniteError, match=r"is 1e\+16, too large to learn from: times reward_scale=1 it must"):
            train(config, run_dir=tmp_path / "large", progress=False)
        result = train(dataclasses.replace(config, reward_scale=0.01), run_dir=tmp_path / "scaled", progress=False)
        assert result.finished
        assert all(parameter.isfinite().all() for parameter in result.agent.actor.parameters())

    @EVERY
    def test_a_large_reward_is_normalised(self, algo: str, flawed: Any, tmp_path: Path) -> None:
        flawed(Flaw("reward", 1e29))
        assert train(CONFIGS[algo], run_dir=tmp_path / "large", progress=False).finished
        flawed(Flaw("reward", 1e31))
        message = (
            r"is 1e\+31, too large to learn from: it must lie within ±1e\+30, or sums overflow in float32\. Nothing"
        )
        with pytest.raises(NonFiniteError, match=message) as caught:
            train(CONFIGS[algo], run_dir=tmp_path / "too large", progress=False)
        assert "reward_scale" not in str(caught.value)

    def test_it_can_be_pickled(self) -> None:
        error = pickle.loads(pickle.dumps(NonFiniteError("no", quantity="reward", env_index=3, step=7)))
        assert (str(error), error.quantity, error.env_index, error.step) == ("no", "reward", 3, 7)
        assert isinstance(error, FleetError)
        assert isinstance(error, ValueError)


class Flood(nn.Module):
    """A linear layer whose gradient, outputs or both become what they should not when the switch is set."""

    def __init__(self, outputs: int, switch: dict[str, str]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, outputs)
        self.switch = switch

    def forward(self, observations: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layer(observations)
        kind = self.switch.get("kind")
        if kind == "outputs":
            return outputs * torch.tensor(torch.inf)
        # The square root has an infinite slope at 0.
        return outputs + (0 * self.layer.weight.sum()).sqrt() if kind == "gradient" else outputs


class TestUpdates:
    """What the algorithm itself makes of finite numbers."""

    def failing(self, algo: str, kind: str, who: str, run: Path, max_grad_norm: float = 0.5) -> NonFiniteError:
        switch: dict[str, str] = {}
        actor_outputs = {"a2c": 2, "ppo": 2, "sac": 4, "td3": 2, "dqn": 2}[algo]
        other = nn.Linear(3, actor_outputs if who == "critic" else 1)
        flood = Flood({"actor": actor_outputs, "critic": 2 if algo in ("sac", "td3") else 1}[who], switch)

        class Pair(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(5, 2)

            def forward(self, observations: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
                outputs: torch.Tensor = self.layer(torch.cat([observations, actions], -1))
                return outputs

        critic = flood if who == "critic" else Pair() if algo in ("sac", "td3") else other
        networks = Networks(flood if who == "actor" else other, None if algo == "dqn" else critic)

        def flooding(progress: Progress) -> bool:
            switch["kind"] = kind
            return True

        config = dataclasses.replace(CONFIGS[algo], max_grad_norm=max_grad_norm)  # type: ignore[call-arg]
        with pytest.raises(NonFiniteError) as caught:
            train(config, run_dir=run, networks=networks, callback=flooding, progress=False)
        assert_as_it_began(run)
        assert "no checkpoint yet" in str(caught.value) or "goes on from there" in str(caught.value)
        return caught.value

    @pytest.mark.parametrize(
        ("algo", "who"),
        [(algo, who) for algo in CONFIGS for who in ("actor", "critic") if (algo, who) != ("dqn", "critic")],
    )
    def test_gradients(self, algo: str, who: str, tmp_path: Path) -> None:
        error = self.failing(algo, "gradient", who, tmp_path / "run")
        assert error.quantity == f"{who} gradient"
        assert error.step is not None
        assert f"at step {error.step:,}" in str(error)

    def test_gradients_that_are_not_shortened_show_in_the_next_loss(self, tmp_path: Path) -> None:
        error = self.failing("sac", "gradient", "critic", tmp_path / "run", max_grad_norm=0.0)
        assert "critic's layer.weight is not finite since the last update" in str(error)

    @pytest.mark.parametrize(
        ("algo", "who", "quantity"),
        [
            ("a2c", "critic", "value of a state"),
            ("a2c", "actor", "actor loss"),
            ("ppo", "actor", "action"),
            ("sac", "critic", "critic loss"),
            ("td3", "critic", "critic loss"),
            ("dqn", "actor", "actor loss"),
        ],
    )
    def test_outputs(self, algo: str, who: str, quantity: str, tmp_path: Path) -> None:
        error = self.failing(algo, "outputs", who, tmp_path / "run")
        assert error.quantity == quantity
        assert (error.env_index is None) == quantity.endswith("loss")

    @pytest.mark.parametrize("at", [2, 6], ids=["in the middle", "at the end"])
    @pytest.mark.parametrize("value", [math.nan, math.inf])
    @EVERY
    def test_weights_written_by_a_callback(self, algo: str, value: float, at: int, runs: Any, tmp_path: Path) -> None:
        run = shutil.copytree(runs(algo, "part"), tmp_path / "run")
        before = saved(run)

        def spoiling(progress: Progress) -> None:
            if progress.step >= at * ROLLOUT:
                next(progress.agent.actor.parameters()).data.view(-1)[0] = value

        with pytest.raises(NonFiniteError, match=r"The actor's weights at step [0-9]+ are not finite: [a-z0-9_.]+ con"):
            resume(run, callback=spoiling, progress=False)
        assert saved(run) == before
        assert resume(run, progress=False).finished

    def test_an_optimizer_that_overflowed_is_not_saved(self, runs: Any, tmp_path: Path) -> None:
        run = shutil.copytree(runs("a2c", "part"), tmp_path / "run")
        tensors, notes = load_tensors(run / "checkpoint/latest.safetensors", "checkpoint")
        tensors["optimizer/critic/0/exp_avg_sq"].fill_(torch.inf)
        save_tensors(run / "checkpoint/latest.safetensors", "checkpoint", tensors, notes)
        with pytest.raises(NonFiniteError, match=r"The critic's optimizer at step [0-9]+ is not finite: its exp_"):
            resume(run, progress=False)

    def test_a_checkpoint_that_is_not_finite_is_refused(self, runs: Any, tmp_path: Path) -> None:
        run = shutil.copytree(runs("a2c", "part"), tmp_path / "run")
        tensors, notes = load_tensors(run / "checkpoint/latest.safetensors", "checkpoint")
        tensors["module/critic/body.layers.0.bias"][3] = torch.nan
        save_tensors(run / "checkpoint/latest.safetensors", "checkpoint", tensors, notes)
        with pytest.raises(NonFiniteError, match=r"critic's weights .* body\.layers\.0\.bias contains nan"):
            resume(run, progress=False)


def dropping(algo: str, **changes: Any) -> TrainConfig:
    return dataclasses.replace(CONFIGS[algo], non_finite="drop", **changes)


def assert_all_finite(run: Path) -> None:
    """Networks, optimisers and replay buffer; what environments show may be what it likes."""
    tensors, _ = load_tensors(run / "checkpoint/latest.safetensors", "checkpoint")
    odd = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
    assert [name for name in odd if not name.startswith("position")] == []


class TestDrop:
    # In episodes of 10 steps: the 5th, the 8th and the 9th one of the environment, twice in the 8th.
    SEVERAL = (43, 72, 75, 89)

    @pytest.mark.parametrize("case", FLAWS)
    @EVERY
    def test_the_episode_is_left_out_and_counted(self, algo: str, case: str, flawed: Any, tmp_path: Path) -> None:
        flaw = FLAWS[case][0]
        steps = (50, 80, 90) if flaw.steps == (50,) else self.SEVERAL
        flawed(dataclasses.replace(flaw, steps=steps))
        result = train(dropping(algo), run_dir=tmp_path / "run", progress=False)
        metrics = read_metrics(result.run_dir)
        assert (result.finished, result.step) == (True, 6 * ROLLOUT)
        assert metrics["dropped_episodes"][-1] == 3
        assert (np.diff(metrics["dropped_episodes"]) >= 0).all()
        # 96 steps of two environments: the last episode of each is not over, and neither is one that begins badly.
        unfinished = 1 if flaw.what == "first" else 0
        assert metrics["episodes"][-1] == 9 + 9 - (3 - unfinished)
        assert set(metrics["episode_length"][~np.isnan(metrics["episode_length"])]) == {LIMIT}
        assert_all_finite(result.run_dir)
        load_agent(result.run_dir)

    @EVERY
    def test_a_resumed_run_drops_the_same(self, algo: str, flawed: Any, tmp_path: Path) -> None:
        flawed(Flaw("observation", math.nan, self.SEVERAL))
        whole = train(dropping(algo), run_dir=tmp_path / "whole", progress=False)
        stops = [
            3 * ROLLOUT if algo in ("a2c", "ppo") else 44 * 2
        ]  # in the middle of the first episode that is dropped
        part = train(dropping(algo), run_dir=tmp_path / "part", callback=stop_at(stops), progress=False)
        assert not part.finished
        resume(part.run_dir, progress=False)
        np.testing.assert_equal(outcome(part.run_dir), outcome(whole.run_dir))

    @EVERY
    def test_nothing_but_bad_episodes(self, algo: str, flawed: Any, tmp_path: Path) -> None:
        flawed(Flaw("reward", math.nan, tuple(range(1000))))
        config = dropping(algo, num_envs=1, total_steps=96, seed=next(s for s in range(9) if odd_env_first(s)))
        result = train(config, run_dir=tmp_path / "run", progress=False)
        assert (result.finished, result.mean_return, result.step) == (True, None, 96)
        assert read_metrics(result.run_dir)["dropped_episodes"][-1] == 10
        assert_all_finite(result.run_dir)

    @EVERY
    def test_a_run_that_could_not_learn_anything_yet_is_resumed(self, algo: str, flawed: Any, tmp_path: Path) -> None:
        flawed(Flaw("reward", math.nan, tuple(range(64))))
        config = dropping(algo, num_envs=1, total_steps=96, seed=next(s for s in range(9) if odd_env_first(s)))
        whole = train(config, run_dir=tmp_path / "whole", progress=False)
        part = train(config, run_dir=tmp_path / "part", callback=stop_at([48]), progress=False)
        assert (part.finished, part.step) == (False, 48)
        assert resume(part.run_dir, progress=False).finished
        np.testing.assert_equal(outcome(part.run_dir), outcome(whole.run_dir))

    @pytest.mark.parametrize("algo", ["a2c", "sac", "dqn"])
    def test_where_the_first_ones_to_be_ready_act(self, algo: str, flawed: Any, tmp_path: Path) -> None:
        flawed(Flaw("observation", math.nan, tuple(range(5, 1000, LIMIT))))
        config = dropping(algo, first_ready=1, backend="process")
        result = train(config, run_dir=tmp_path / "run", progress=False)
        assert result.finished
        assert read_metrics(result.run_dir)["dropped_episodes"][-1] > 3
        assert_all_finite(result.run_dir)

    @EVERY
    def test_without_a_flaw_it_learns_the_same(self, algo: str, runs: Any, tmp_path: Path) -> None:
        result = train(dropping(algo), run_dir=tmp_path / "run", progress=False)
        found, expected = outcome(result.run_dir), outcome(runs(algo, "whole"))
        assert set(found["metrics"].pop("dropped_episodes")) == {0}
        np.testing.assert_equal(found, expected)

    def test_the_good_environment_teaches_as_if_alone(self, flawed: Any, tmp_path: Path) -> None:
        """A loss over the rows that are left is the same, whatever the dropped ones held."""
        steps = tuple(range(1000))
        found = []
        for what, value in (("reward", math.nan), ("reward", 1e300), ("reward", math.inf)):
            flawed(Flaw(what, value, steps))
            run = train(dropping("a2c"), run_dir=tmp_path / f"{value}", progress=False).run_dir
            found.append(load_tensors(run / "actor.safetensors", "actor weights")[0])
        for other in found[1:]:
            for name, tensor in found[0].items():
                assert torch.equal(tensor, other[name]), name


def odd_env_first(seed: int) -> bool:
    return odd_env(A2CConfig(FLAWED, seed=seed)) == 0


class TestScores:
    @pytest.fixture
    def agent(self, runs: Any) -> Agent:
        return load_agent(runs("a2c", "whole"))

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_an_agent_with_such_weights_is_not_scored(self, value: float, agent: Agent) -> None:
        next(agent.actor.parameters()).data.view(-1)[0] = value
        for play in (evaluate, lambda agent: evaluate_sweep(agent, None), showcase_nowhere):
            with pytest.raises(NonFiniteError, match=r"actor's weights of this agent are not finite: body\.layers\.0"):
                play(agent)

    def test_statistics_of_observations_are_weights_too(self, agent: Agent) -> None:
        agent.actor.get_buffer("body.encoder.normalizer.m2")[1] = torch.inf
        with pytest.raises(NonFiniteError, match=r"body\.encoder\.normalizer\.m2 contains inf"):
            evaluate(agent)

    @EVERY
    def test_such_weights_are_not_loaded(self, algo: str, runs: Any, tmp_path: Path) -> None:
        run = shutil.copytree(runs(algo, "whole"), tmp_path / "run")
        tensors, _ = load_tensors(run / "actor.safetensors", "actor weights")
        tensors["body.layers.2.weight"][0, 0] = torch.nan
        save_tensors(run / "actor.safetensors", "actor weights", tensors, {})
        for load in load_agent, evaluate:
            with pytest.raises(NonFiniteError, match=r"actor\.safetensors are not finite: body\.layers\.2\.weight con"):
                load(run)

    @EVERY
    def test_an_observation_no_action_follows_from(self, algo: str, runs: Any, flawed: Any) -> None:
        flawed(Flaw("observation", math.nan, (7,)))
        with pytest.raises(
            NonFiniteError, match=r"because the observation is nan at \[1\]; .* after 7 steps"
        ) as caught:
            evaluate(load_agent(runs(algo, "whole")), episodes=4, num_envs=2, backend="sync", max_steps=50)
        assert (caught.value.quantity, caught.value.step) == ("observation", 7)

    @pytest.mark.parametrize("value", [math.nan, -math.inf, 1e300])
    def test_a_reward_without_a_return(self, value: float, agent: Agent, flawed: Any) -> None:
        flawed(Flaw("reward", value, (17,)))
        with pytest.raises(
            NonFiniteError, match=r"The reward of environment [01] at step 7 of its episode is "
        ) as caught:
            evaluate(agent, episodes=4, num_envs=2, backend="sync")
        assert f"is {value:g}," in str(caught.value)

    def test_only_episodes_that_count_matter(self, agent: Agent, flawed: Any) -> None:
        flawed(Flaw("reward", math.nan, (17, 27)))
        assert evaluate(agent, episodes=2, num_envs=2, backend="sync").episodes == 2
        flawed(Flaw("observation", math.nan, (17, 27)))
        assert evaluate(agent, episodes=2, num_envs=2, backend="sync").episodes == 2

    def test_a_scenario_without_a_return_costs_only_itself(self, flawed: Any, agent: Agent) -> None:
        from envfleet.scenarios import Sweep

        sweep = Sweep("shift", (0.0, math.inf))
        good, bad = evaluate_sweep(agent, sweep, episodes=2, num_envs=2, backend="sync")
        assert good.evaluation is not None
        assert bad.evaluation is None
        assert "at step 1 of its episode is inf" in str(bad.error)

    def test_logits_of_minus_infinity_forbid_actions(self, runs: Any) -> None:
        config = CONFIGS["a2c"]

        class Masked(nn.Linear):
            def forward(self, observations: torch.Tensor) -> torch.Tensor:
                return super().forward(observations) + torch.tensor([0.0, -torch.inf])

        agent = load_agent(runs("a2c", "whole"))
        agent.actor.body = Masked(3, 2)
        assert agent.act(np.ones((4, 3), np.float32)).tolist() == [0] * 4
        assert config.algo == "a2c"

    def test_what_plays_without_a_network_is_scored_as_before(self) -> None:
        assert evaluate(Player(), episodes=2, num_envs=2).episodes == 2  # type: ignore[arg-type]


def showcase_nowhere(agent: Agent) -> Any:
    return showcase(agent, path="never.mp4")


class EmptyEnv(gym.Env[Any, Any]):
    """Spaces with nothing in them, or hardly anything."""

    KINDS: dict[str, Any] = {  # noqa: RUF012
        "box": spaces.Box(-1, 1, (0,), np.float32),
        "matrix": spaces.Box(-1, 1, (3, 0), np.float32),
        "image": spaces.Box(0, 255, (0, 40, 40), np.uint8),
        "multi-discrete": spaces.MultiDiscrete([]),
        "dict": spaces.Dict({}),
        "entry": spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Dict({"c": spaces.Box(-1, 1, (0,), np.float32)})}),
        "one": spaces.Discrete(1),
        "ones": spaces.MultiDiscrete([1, 1]),
    }

    def __init__(self, observations: str = "one", actions: str = "one") -> None:
        self.observation_space, self.action_space = self.KINDS[observations], self.KINDS[actions]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, False, False, {}


EMPTY = "tiny/Empty-v0"
gym.register(EMPTY, EmptyEnv, max_episode_steps=5, disable_env_checker=True)


class TestEmptySpaces:
    def config(self, algo: str, **kinds: str) -> TrainConfig:
        return dataclasses.replace(CONFIGS[algo], env_id=EMPTY, env_kwargs=kinds)

    @pytest.mark.parametrize(
        ("kind", "named"),
        [
            *(
                ("box", "Box"),
                ("matrix", "Box"),
                ("image", "Box"),
                ("multi-discrete", "MultiDiscrete"),
                ("dict", "Dict"),
            ),
            ("entry", "Box"),
        ],
    )
    @pytest.mark.parametrize("what", ["observation", "action"])
    @EVERY
    def test_they_are_refused_by_name_before_there_is_a_folder(
        self, algo: str, what: str, kind: str, named: str, tmp_path: Path
    ) -> None:
        entry = "'s entry 'b''s entry 'c'" if kind == "entry" else ""
        with pytest.raises(ValueError, match=rf"The {what} space{entry} has no numbers in it: {named}\("):
            train(self.config(algo, **{f"{what}s": kind}), run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("kind", ["one", "ones"])
    @pytest.mark.parametrize("algo", ["a2c", "ppo"])
    def test_a_single_choice_is_fine(self, algo: str, kind: str, tmp_path: Path) -> None:
        result = train(self.config(algo, observations=kind, actions=kind), run_dir=tmp_path / "run", progress=False)
        assert result.finished
        assert evaluate(result.agent, episodes=1, num_envs=1, backend="sync").returns == (5.0,)


def assert_as_it_began(run: Path) -> None:
    """Nothing was saved but what a run begins with, which is finite."""
    tensors, notes = load_tensors(run / "checkpoint" / "latest.safetensors", "checkpoint")
    assert notes["step"] == 0
    for path in run.glob("*.safetensors"):
        tensors |= load_tensors(path, f"{path.stem} weights")[0]
    assert all(tensor.isfinite().all() for tensor in tensors.values() if tensor.is_floating_point())
