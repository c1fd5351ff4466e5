"""`train` and `resume`: what they write, how they stop, and that going on gives the very same run."""

from __future__ import annotations

import dataclasses
import multiprocessing
import random
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import CONFIGS, EVERY, ROLLOUT, SMALL, changed, interrupt_at_call, outcome, stop_at
from tiny_envs import ACTION_SPACES, ANY_SPACE, OBSERVATION_SPACES, UNREPEATABLE, AnySpaceEnv
from torch import nn

from envfleet import uniform
from envfleet.train.config import A2CConfig, TrainConfig
from envfleet.train.folders.checkpoint import load_agent
from envfleet.train.folders.weights import load_tensors
from envfleet.train.networks.networks import Networks
from envfleet.train.running import journal, training
from envfleet.train.running.metrics import read_metrics
from envfleet.train.running.reporting import Progress, Reporter, TrainingResult
from envfleet.train.running.run import resume, train

ON_POLICY = pytest.mark.parametrize("algo", ["a2c", "ppo"])
COLUMNS = ["step", "seconds", "steps_per_second", "episodes", "episode_return", "episode_length"]


def with_stops(config: TrainConfig, run: Path, steps: Sequence[int]) -> TrainingResult:
    """Train, stopped by the callback at each of the steps and resumed every time."""
    result = train(config, run_dir=run, callback=stop_at(steps), progress=False)
    stops = 0
    while not result.finished:
        assert result.step in steps
        stops += 1
        result = resume(run, callback=stop_at(steps), progress=False)
    assert stops == len(steps)
    return result


def assert_same_run(config: TrainConfig, folder: Path, steps: Sequence[int]) -> None:
    whole = train(config, run_dir=folder / "whole", progress=False)
    parts = with_stops(config, folder / "parts", steps)
    np.testing.assert_equal(outcome(parts.run_dir), outcome(whole.run_dir))
    assert (parts.step, parts.mean_return, parts.finished) == (whole.step, whole.mean_return, True)


class TestResume:
    """A stopped and resumed run gives the same rows and the same weights, bit by bit."""

    @EVERY
    def test_wherever_it_was_stopped(self, algo: str, tmp_path: Path) -> None:
        assert_same_run(CONFIGS[algo], tmp_path, [ROLLOUT, 2 * ROLLOUT, 7 * ROLLOUT, 19 * ROLLOUT])

    @EVERY
    def test_with_randomised_parameters_and_normalised_dicts(self, algo: str, tmp_path: Path) -> None:
        config = changed(
            algo,
            randomize={"gain": uniform(0.5, 2.0), "shift": uniform(-1, 1)},
            normalize_observations=True,
            env_kwargs={"observations": "dict"},
        )
        assert_same_run(config, tmp_path, [11 * ROLLOUT])

    @EVERY
    @pytest.mark.parametrize("stops", [[6, 8], [7, 22]])
    def test_before_at_and_after_fresh_seeds(self, algo: str, stops: list[int], tmp_path: Path) -> None:
        # A stream holds at least ten episodes of the limit, 10 steps: every 7 rollouts of 16 steps a new one begins.
        rollouts = 24 if algo in ("a2c", "ppo") else 10
        config = changed(algo, reseed_every=1, total_steps=rollouts * ROLLOUT, normalize_observations=True)
        assert_same_run(config, tmp_path, [stop * ROLLOUT for stop in stops if stop < rollouts])

    @ON_POLICY
    def test_in_worker_processes(self, algo: str, tmp_path: Path) -> None:
        assert_same_run(changed(algo, backend="process"), tmp_path, [7 * ROLLOUT])
        assert not multiprocessing.active_children()

    @EVERY
    def test_in_the_middle_of_a_log_interval(self, algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(training, "_ROWS", 4)
        whole = train(CONFIGS[algo], run_dir=tmp_path / "whole", progress=False)
        assert read_metrics(whole.run_dir)["step"].tolist() == [160, 320, 480, 640]
        with monkeypatch.context() as patch:
            interrupt_at_call(patch, 200)
            parts = train(CONFIGS[algo], run_dir=tmp_path / "parts", progress=False)
        assert parts.step in (200, 224)
        parts = resume(parts.run_dir, progress=False)
        np.testing.assert_equal(outcome(parts.run_dir), outcome(whole.run_dir))

    @ON_POLICY
    def test_rows_written_after_the_checkpoint_are_written_again(self, algo: str, tmp_path: Path) -> None:
        """As when the machine crashed some time after the checkpoint."""
        whole = train(CONFIGS[algo], run_dir=tmp_path / "whole", progress=False)
        run = tmp_path / "crashed"
        train(CONFIGS[algo], run_dir=run, callback=stop_at([5 * ROLLOUT]), progress=False)
        early = (run / "checkpoint" / "latest.safetensors").read_bytes()
        resume(run, callback=stop_at([9 * ROLLOUT]), progress=False)
        (run / "checkpoint" / "latest.safetensors").write_bytes(early)
        with (run / "metrics.csv").open("a") as file:
            file.write("320,1.")
        resume(run, progress=False)
        np.testing.assert_equal(outcome(run), outcome(whole.run_dir))

    @ON_POLICY
    def test_with_networks_of_ones_own(self, algo: str, tmp_path: Path) -> None:
        def networks() -> Networks:
            torch.manual_seed(3)
            return Networks(nn.Linear(3, 3), nn.Linear(3, 1))

        with torch.random.fork_rng(devices=[]):
            config = CONFIGS[algo]
            whole = train(config, run_dir=tmp_path / "whole", networks=networks(), progress=False)
            parts = train(
                config, run_dir=tmp_path / "parts", networks=networks(), callback=stop_at([96]), progress=False
            )
            assert not parts.finished
            resume(parts.run_dir, networks=networks(), progress=False)
        np.testing.assert_equal(outcome(parts.run_dir), outcome(whole.run_dir))

    def test_a_finished_run_stays_as_it_is(self, tmp_path: Path) -> None:
        result = train(CONFIGS["a2c"], run_dir=tmp_path / "run", progress=False)
        before = outcome(result.run_dir)
        again = resume(result.run_dir, progress=False)
        np.testing.assert_equal(outcome(result.run_dir), before)
        assert (again.finished, again.step, again.mean_return) == (True, result.step, result.mean_return)
        assert again.seconds == result.seconds

    def test_seconds_add_up(self, tmp_path: Path) -> None:
        parts = with_stops(CONFIGS["a2c"], tmp_path / "run", [7 * ROLLOUT])
        seconds = read_metrics(parts.run_dir)["seconds"]
        assert (np.diff(seconds) > 0).all()
        assert seconds[-1] == parts.seconds

    def test_environments_that_do_not_repeat_themselves_are_noticed(self, tmp_path: Path) -> None:
        config = dataclasses.replace(CONFIGS["a2c"], env_id=UNREPEATABLE)
        result = train(config, run_dir=tmp_path / "run", callback=stop_at([7 * ROLLOUT]), progress=False)
        with pytest.warns(UserWarning, match="The environments do not repeat themselves"):
            result = resume(result.run_dir, progress=False)
        assert result.finished

    def test_the_replay_takes_no_more_memory_than_a_few_steps(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        train(CONFIGS["a2c"], run_dir=tmp_path / "run", callback=stop_at([19 * ROLLOUT]), progress=False)
        lengths: list[int] = []
        collect = journal.collect

        def watched(envs: Any, policy: Any, steps: int, start: Any) -> Any:
            lengths.append(steps)
            return collect(envs, policy, steps, start)

        monkeypatch.setattr(journal, "collect", watched)
        resume(tmp_path / "run", progress=False)
        assert sum(lengths) == 19 * 16
        assert max(lengths) <= 128


class TestSeeds:
    """Environments are seeded anew from time to time, and never twice alike."""

    # Ten episodes of the limit of 10 steps fit into a stream: every 7 rollouts of 16 steps a new one begins.
    config = changed("a2c", reseed_every=1, total_steps=22 * ROLLOUT)

    def seeds(self, config: TrainConfig, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        found: list[int] = []
        reset = AnySpaceEnv.reset

        def watched(self: AnySpaceEnv, *, seed: int | None = None, options: Any = None) -> Any:
            found.extend([] if seed is None else [seed])
            return reset(self, seed=seed, options=options)

        with monkeypatch.context() as patch:
            patch.setattr(AnySpaceEnv, "reset", watched)
            train(config, run_dir=path, progress=False)
        return found

    def test_streams_and_runs_share_no_seed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = self.seeds(self.config, tmp_path / "0", monkeypatch)
        assert len(first) == 4 * 2
        second = self.seeds(dataclasses.replace(self.config, seed=1), tmp_path / "1", monkeypatch)
        assert len({*first, *second}) == 4 * 2 * 2

    def test_0_means_never_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = dataclasses.replace(self.config, reseed_every=0)
        assert len(self.seeds(config, tmp_path / "run", monkeypatch)) == 2

    def test_a_longer_limit_makes_longer_streams(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = dataclasses.replace(self.config, env_kwargs={"max_episode_steps": 35})
        assert len(self.seeds(config, tmp_path / "run", monkeypatch)) == 2

    def test_episodes_cut_off_by_a_fresh_seed_are_not_counted(self, tmp_path: Path) -> None:
        config = dataclasses.replace(self.config, env_kwargs={"risk": 0.0})
        result = train(config, run_dir=tmp_path / "run", progress=False)
        metrics = read_metrics(result.run_dir)
        assert set(metrics["episode_length"]) == {10}
        # 3 streams of 112 steps and one of 16, in two environments.
        assert metrics["episodes"][-1] == (3 * 11 + 1) * 2


class TestInterruption:
    def test_ctrl_c_saves_and_returns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = signal.getsignal(signal.SIGINT)
        interrupt_at_call(monkeypatch, 100)
        result = train(CONFIGS["a2c"], run_dir=tmp_path / "run", progress=False)
        assert not result.finished
        assert result.step == 4 * ROLLOUT
        assert signal.getsignal(signal.SIGINT) is before
        assert load_agent(result.run_dir).act(np.zeros((1, 3), np.float32)).shape == (1,)

    def test_a_second_ctrl_c_interrupts_as_usual(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = signal.getsignal(signal.SIGINT)
        interrupt_at_call(monkeypatch, 100)
        interrupt_at_call(monkeypatch, 101)
        with pytest.raises(KeyboardInterrupt):
            train(CONFIGS["a2c"], run_dir=tmp_path / "run", progress=False)
        assert signal.getsignal(signal.SIGINT) is before

    def test_other_threads_may_train(self, tmp_path: Path) -> None:
        results: list[TrainingResult] = []
        thread = threading.Thread(
            target=lambda: results.append(train(CONFIGS["a2c"], run_dir=tmp_path / "run", progress=False))
        )
        thread.start()
        thread.join()
        assert results[0].finished


class TestFolder:
    @EVERY
    def test_everything_is_there(self, algo: str, tmp_path: Path) -> None:
        result = train(CONFIGS[algo], run_dir=tmp_path / "run", progress=False)
        assert result.run_dir == tmp_path / "run"
        names = {str(path.relative_to(tmp_path / "run")) for path in result.run_dir.rglob("*") if path.is_file()}
        (events,) = [name for name in names if name.startswith("events.out.tfevents.")]
        expected = {"config.json", "metrics.csv", "actor.safetensors", "critic.safetensors"}
        expected -= {"critic.safetensors"} if algo == "dqn" else set()
        assert names == expected | {events, "checkpoint/latest.safetensors"}

    @pytest.mark.parametrize(
        ("algo", "columns"),
        [
            ("a2c", ["actor_loss", "critic_loss", "entropy", "learning_rate", "explained_variance"]),
            (
                "ppo",
                [
                    *("actor_loss", "critic_loss", "entropy", "approx_kl", "clip_fraction", "epochs"),
                    *("learning_rate", "explained_variance"),
                ],
            ),
            ("sac", ["actor_loss", "critic_loss", "entropy", "temperature", "q_value"]),
            ("td3", ["actor_loss", "critic_loss", "q_value"]),
            ("dqn", ["critic_loss", "q_value", "epsilon"]),
        ],
    )
    def test_metrics(self, algo: str, columns: list[str], tmp_path: Path) -> None:
        result = train(CONFIGS[algo], run_dir=tmp_path / "run", progress=False)
        metrics = read_metrics(result.run_dir)
        assert list(metrics)[:6] == COLUMNS
        assert sorted(list(metrics)[6:]) == sorted(columns)
        steps = metrics["step"]
        assert steps[-1] == result.step == 20 * ROLLOUT
        assert (np.diff(metrics["episodes"]) >= 0).all()
        # About one episode in ten steps or fewer.
        assert 60 < metrics["episodes"][-1] < 200
        assert np.nanmax(metrics["episode_length"]) <= 10
        assert np.isfinite(metrics["critic_loss"][-1])

    def test_returns_are_reported_as_they_are(self, tmp_path: Path) -> None:
        config = A2CConfig("CartPole-v1", **SMALL, rollout_steps=64, total_steps=512, reward_scale=0.01)
        assert config.normalize_rewards
        result = train(config, run_dir=tmp_path / "run", progress=False)
        metrics = read_metrics(result.run_dir)
        np.testing.assert_array_equal(metrics["episode_return"], metrics["episode_length"])
        assert result.mean_return is not None
        assert result.mean_return > 8

    def test_by_default_it_lies_below_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        result = train(CONFIGS["a2c"], progress=False)
        assert result.run_dir.parent == Path("runs") / "tiny-AnySpace-v0"
        assert result.run_dir.name.startswith("a2c-seed0-")
        assert (tmp_path / result.run_dir / "config.json").exists()

    def test_steps_that_do_not_fill_a_rollout_are_left_out(self, tmp_path: Path) -> None:
        result = train(changed("a2c", total_steps=3 * ROLLOUT - 1), run_dir=tmp_path / "run", progress=False)
        assert (result.step, result.finished) == (2 * ROLLOUT, True)

    @pytest.mark.parametrize(
        ("changes", "error", "message"),
        [
            (
                {"total_steps": ROLLOUT - 1},
                ValueError,
                r"total_steps=31 is less than one rollout of 2 environments x 16 steps; give at least 32",
            ),
            ({"device": "cuda"}, ValueError, "needs a GPU .* use device='cpu'"),
            ({"env_kwargs": {"observations": "tuple with text"}}, TypeError, "Observations must be Box, "),
            ({"env_kwargs": {"observations": "text"}}, TypeError, "Observations must be Box, "),
            ({"env_kwargs": {"actions": "tuple with text"}}, TypeError, "Actions must be Discrete, "),
            ({"env_kwargs": {"actions": "integer box"}}, TypeError, "Actions must be Discrete, "),
            ({"randomize": {"speed": uniform(0, 1)}}, TypeError, "speed"),
        ],
    )
    @ON_POLICY
    def test_a_run_that_cannot_begin_leaves_nothing(
        self, algo: str, changes: Any, error: type[Exception], message: str, tmp_path: Path
    ) -> None:
        if changes.get("device") == "cuda" and torch.cuda.is_available():
            pytest.skip("there is a GPU")
        with pytest.raises(error, match=message):
            train(changed(algo, **changes), run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()

    def test_what_is_no_config_is_refused(self, tmp_path: Path) -> None:
        class Mine(TrainConfig):
            algo = "mine"

        with pytest.raises(
            TypeError, match=r"train\(\) needs an A2CConfig, a PPOConfig, a SACConfig, a TD3Config or a DQNConfig, got "
        ):
            train(Mine(ANY_SPACE, **SMALL), run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("algo", ["sac", "td3"])
    def test_discrete_actions_are_not_for_sac_and_td3(self, algo: str, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match=f"{algo.upper()} needs continuous actions.*use DQN, A2C or PPO"):
            train(changed(algo, env_kwargs={"actions": "discrete"}), run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("algo", ["sac", "td3"])
    def test_actions_without_bounds_are_not_for_sac_and_td3(self, algo: str, tmp_path: Path) -> None:
        config = changed(algo, env_kwargs={"actions": "box without bounds"})
        said = rf"{algo.upper()} needs actions with finite bounds, got Box\(-inf.* use A2C or PPO"
        with pytest.raises(ValueError, match=said):
            train(config, run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()

    @EVERY
    def test_adams_memory_is_a_setting(self, algo: str, tmp_path: Path) -> None:
        ends = []
        for beta in (0.9, CONFIGS[algo].adam_beta2):  # type: ignore[attr-defined]
            train(changed(algo, adam_beta2=beta), run_dir=tmp_path / str(beta), progress=False)
            ends.append(outcome(tmp_path / str(beta))["tensors"]["actor: body.layers.0.weight"])
        assert not np.array_equal(*ends)


class TestCallback:
    def test_it_sees_every_row(self, tmp_path: Path) -> None:
        seen: list[Progress] = []
        result = train(CONFIGS["a2c"], run_dir=tmp_path / "run", callback=seen.append, progress=False)
        metrics = read_metrics(result.run_dir)
        for name in COLUMNS:
            row = [np.nan if p.row[name] is None else p.row[name] for p in seen]
            np.testing.assert_array_equal(row, metrics[name])
        assert [p.step for p in seen] == [p.row["step"] for p in seen]
        assert [p.episodes for p in seen] == [p.row["episodes"] for p in seen]
        assert {p.total_steps for p in seen} == {20 * ROLLOUT}
        assert seen[-1].mean_return == result.mean_return
        assert seen[-1].seconds == result.seconds

    def test_it_gets_an_agent_to_play_with(self, tmp_path: Path) -> None:
        observations = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)

        def playing(progress: Progress) -> None:
            progress.agent.act(observations)

        config = changed("a2c", normalize_observations=True)
        played = train(config, run_dir=tmp_path / "played", callback=playing, progress=False)
        alone = train(config, run_dir=tmp_path / "alone", progress=False)
        np.testing.assert_equal(outcome(played.run_dir), outcome(alone.run_dir))

    def test_only_false_stops(self, tmp_path: Path) -> None:
        answers = iter([None, True, 0, "", *[None] * 16])
        result = train(CONFIGS["a2c"], run_dir=tmp_path / "run", callback=lambda _: next(answers), progress=False)  # type: ignore[arg-type,return-value]
        assert result.finished
        result = train(CONFIGS["a2c"], run_dir=tmp_path / "stopped", callback=lambda _: False, progress=False)
        assert (result.finished, result.step) == (False, ROLLOUT)


class Recorder(Reporter):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begin(self, config: TrainConfig, run_dir: Path, plan: str, step: int) -> None:
        self.told.append(("begin", config, run_dir, step))

    def report(self, progress: Progress) -> None:
        self.told.append(progress.step)

    def end(self, result: TrainingResult | None) -> None:
        self.told.append(result)


class TestReporter:
    def test_it_hears_of_everything(self, tmp_path: Path) -> None:
        reporter, config = Recorder(), changed("a2c", total_steps=3 * ROLLOUT)
        result = train(config, run_dir=tmp_path / "run", reporter=reporter, callback=stop_at([64]))
        assert reporter.told == [("begin", config, tmp_path / "run", 0), 32, 64, result]
        reporter.told.clear()
        result = resume(tmp_path / "run", reporter=reporter)
        assert reporter.told == [("begin", config, tmp_path / "run", 64), 96, result]

    def test_it_hears_of_failures(self, tmp_path: Path) -> None:
        reporter = Recorder()
        with pytest.raises(ZeroDivisionError):
            train(CONFIGS["a2c"], run_dir=tmp_path / "run", reporter=reporter, callback=lambda _: bool(1 // 0))
        assert reporter.told[1:] == [32, None]


class TestManners:
    """What a run must not do to the program it runs in."""

    @pytest.mark.parametrize("fails", [False, True])
    def test_global_generators_and_threads_are_as_before(self, fails: bool, tmp_path: Path) -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(3)
        torch.manual_seed(5)
        np.random.seed(5)
        random.seed(5)
        before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
        seen: list[int] = []

        def callback(_: Progress) -> None:
            seen.append(torch.get_num_threads())
            if fails:
                raise ZeroDivisionError

        try:
            train(CONFIGS["ppo"], run_dir=tmp_path / "run", callback=callback, progress=False)
        except ZeroDivisionError:
            assert fails
        after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
        in_the_end = torch.get_num_threads()
        torch.set_num_threads(threads)
        assert in_the_end == 3
        assert set(seen) == {1}
        assert torch.equal(before[0], after[0])
        assert before[1:] == after[1:]

    def test_global_generators_do_not_matter(self, tmp_path: Path) -> None:
        outcomes = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            np.random.seed(seed)
            result = train(CONFIGS["a2c"], run_dir=tmp_path / str(seed), progress=False)
            outcomes.append(outcome(result.run_dir))
        np.testing.assert_equal(outcomes[0], outcomes[1])

    def test_torch_may_keep_its_threads(self, tmp_path: Path) -> None:
        seen: list[int] = []
        train(
            changed("a2c", torch_threads=0, total_steps=ROLLOUT),
            run_dir=tmp_path / "run",
            callback=lambda _: seen.append(torch.get_num_threads()),
            progress=False,
        )
        assert seen == [torch.get_num_threads()]

    @pytest.mark.parametrize("culprit", ["callback", "environment", "network", "nobody"])
    def test_environments_are_closed(self, culprit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        closed: list[Any] = []
        monkeypatch.setattr(AnySpaceEnv, "close", lambda self: closed.append(self))
        networks: Networks | None = None
        callback: Any = None
        if culprit == "callback":
            callback = failing
        elif culprit == "environment":
            monkeypatch.setattr(AnySpaceEnv, "step", failing)
        elif culprit == "network":
            networks = Networks(nn.Linear(99, 3), nn.Linear(99, 1))
        arguments: Any = {"run_dir": tmp_path / "run", "callback": callback, "networks": networks, "progress": False}
        if culprit == "nobody":
            train(CONFIGS["a2c"], **arguments)
        else:
            with pytest.raises(Exception, match=r"as planned|mat1 and mat2"):
                train(CONFIGS["a2c"], **arguments)
        assert len(set(closed)) == 2

    def test_worker_processes_end_after_a_failure(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match="as planned"):
            train(changed("a2c", backend="process"), run_dir=tmp_path / "run", callback=failing, progress=False)
        assert not multiprocessing.active_children()


def failing(*_: Any) -> Any:
    raise RuntimeError("as planned")


class TestSpaces:
    """Every space we promise, from end to end, by every algorithm it suits."""

    def check(self, config: TrainConfig, path: Path, observations: str = "vector") -> None:
        result = train(config, run_dir=path / "run", progress=False)
        assert result.step == config.total_steps
        tensors, _ = load_tensors(result.run_dir / "actor.safetensors", "actor weights")
        assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
        for network in ("critic",) if config.algo == "dqn" else ("actor", "critic"):
            assert np.isfinite(read_metrics(result.run_dir)[f"{network}_loss"]).any()
        agent = load_agent(result.run_dir)
        assert agent.observation_space == OBSERVATION_SPACES[observations]

    @EVERY
    @pytest.mark.parametrize(
        ("observations", "normalize"),
        [*((name, False) for name in OBSERVATION_SPACES), ("vector", True), ("dict", True), ("small image", True)],
    )
    def test_observations(self, algo: str, observations: str, normalize: bool, tmp_path: Path) -> None:
        config = changed(
            algo,
            env_kwargs={"observations": observations},
            total_steps=2 * ROLLOUT,
            normalize_observations=normalize,
            **({} if algo in ("a2c", "ppo") else {"learning_starts": 40}),
        )
        self.check(config, tmp_path, observations)

    @ON_POLICY
    @pytest.mark.parametrize("actions", list(ACTION_SPACES))
    def test_actions(self, algo: str, actions: str, tmp_path: Path) -> None:
        self.check(changed(algo, env_kwargs={"actions": actions}, total_steps=2 * ROLLOUT), tmp_path)

    @pytest.mark.parametrize("algo", ["sac", "td3"])
    @pytest.mark.parametrize("actions", ["box", "box, 2-d, float64", "box, a number"])
    def test_actions_of_sac_and_td3(self, algo: str, actions: str, tmp_path: Path) -> None:
        config = changed(algo, env_kwargs={"actions": actions}, total_steps=2 * ROLLOUT, learning_starts=32)
        self.check(config, tmp_path)

    @ON_POLICY
    @pytest.mark.parametrize("actions", ["multi-discrete", "multi-binary", "box"])
    def test_in_worker_processes(self, algo: str, actions: str, tmp_path: Path) -> None:
        kwargs = {"actions": actions, "observations": "dict"}
        self.check(changed(algo, env_kwargs=kwargs, backend="process", total_steps=2 * ROLLOUT), tmp_path, "dict")
