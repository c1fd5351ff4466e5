"""`train(config, learner=...)`: an algorithm of one's own for one run, without registering it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from small_runs import CONFIGS, ROLLOUT, outcome, stop_at
from torch.nn import functional

from envfleet.cli import main
from envfleet.train import (
    A2CConfig,
    Actor,
    Batch,
    DQNConfig,
    OffPolicyLearner,
    OnPolicyLearner,
    PPOConfig,
    SACConfig,
    TrainConfig,
    Transitions,
    evaluate,
    gradient_step,
    load_agent,
    make_optimizer,
    register_algorithm,
    resume,
    train,
)
from envfleet.train.algorithms.dqn import DQN
from envfleet.train.algorithms.ppo import PPO
from envfleet.train.algorithms.registry import _SEEN, ALGORITHMS, learner_class
from envfleet.train.judging.curves import group_runs, load_run


class Hoarder(OffPolicyLearner[DQNConfig]):
    """Learns the value of each choice one step ahead, without a target network."""

    metrics = ("critic_loss",)

    def __init__(self, config: DQNConfig, task: Any) -> None:
        super().__init__(config, task)
        self.assemble({"actor": self.actor}, {}, {"actor": make_optimizer(self.actor, 1e-3)})

    @classmethod
    def actor_for(cls, config: DQNConfig, task: Any) -> Actor:
        return DQN.actor_for(config, task)

    def act(self, observations: Any, env_ids: Any = None) -> Any:
        with torch.no_grad():
            return self.as_actions(self.actor.distribution.sample(self.outputs(observations)))

    def update(self, batch: Transitions) -> torch.Tensor:
        rewards = self.reward_factor * batch.rewards
        loss = functional.mse_loss(self.actor(batch.observations).gather(-1, batch.actions.long() - 2)[:, 0], rewards)
        gradient_step(loss, self.optimizers["actor"])
        return loss.detach().reshape(1)

    def step_size_of(self, optimizer: str) -> float:
        return 2e-3


class Timid(OnPolicyLearner[PPOConfig]):
    """One step of each network a rollout."""

    metrics = ("actor_loss", "critic_loss")

    def update(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        value_loss = functional.mse_loss(self.critic(batch.observations), batch.returns)
        gradient_step(value_loss, self.critic_optimizer)
        log_prob = self.actor.distribution.log_prob(self.actor(batch.observations), batch.actions)
        loss = -(batch.advantages * log_prob).mean()
        gradient_step(loss, self.actor_optimizer)
        return {"actor_loss": loss.item(), "critic_loss": value_loss.item()}


@dataclass(frozen=True, kw_only=True)
class RichConfig(PPOConfig):
    """Settings of every kind that JSON can hold.

    Attributes:
        weights: a number for each layer.
        pairs: lists of pairs.
        table: numbers by name.
        bounds: two numbers, or none.
    """

    weights: tuple[float, ...] = (0.5, 1.0)
    pairs: tuple[tuple[int, str], ...] = ((1, "one"),)
    table: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=lambda: {"a": (1, 2)})
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class LonelyConfig(PPOConfig):
    """Its name is nobody's."""

    algo: ClassVar[str] = "lonely"


@pytest.fixture(autouse=True)
def _unseen() -> Iterator[None]:
    yield
    _SEEN.clear()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(
        CONFIGS["ppo"], learner=Timid, run_dir=tmp_path_factory.mktemp("timid") / "run", progress=False
    ).run_dir


def content(run: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((run / "config.json").read_text())
    return read


class TestARun:
    def test_it_is_trained_with_it_and_says_so(self, trained: Path, tmp_path: Path) -> None:
        said = content(trained)
        assert said["algo"] == "ppo"
        assert said["learner_class"] == f"{__name__}:Timid"
        usual = train(CONFIGS["ppo"], run_dir=tmp_path / "usual", progress=False).run_dir
        assert "learner_class" not in content(usual)
        assert outcome(usual)["metrics"].keys() != outcome(trained)["metrics"].keys()
        assert learner_class(CONFIGS["ppo"]) is PPO, "the built-in algorithm stays what it is"

    def test_it_goes_on_as_if_it_had_not_been_stopped(self, trained: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        stopped = train(CONFIGS["ppo"], learner=Timid, run_dir=run, callback=stop_at([3 * ROLLOUT]), progress=False)
        assert not stopped.finished
        assert resume(run, progress=False).finished
        np.testing.assert_equal(outcome(run), outcome(trained))

    def test_its_agent_plays_also_the_best_one(self, tmp_path: Path) -> None:
        config = dataclasses.replace(CONFIGS["ppo"], eval_every=5 * ROLLOUT, eval_episodes=2)
        run = train(config, learner=Timid, run_dir=tmp_path / "run", progress=False).run_dir
        for folder in (run, run / "best"):
            assert len(evaluate(folder, episodes=2, num_envs=2, backend="sync").returns) == 2

    def test_it_is_no_seed_of_the_built_in_one(self, trained: Path, tmp_path: Path) -> None:
        usual = train(CONFIGS["ppo"], run_dir=tmp_path / "usual", progress=False).run_dir
        assert len(group_runs([load_run(trained), load_run(usual)])) == 2


class TestFindingItAgain:
    def renamed(self, run: Path, tmp_path: Path, name: str) -> Path:
        copied = Path(shutil.copytree(run, tmp_path / "copy"))
        changed = {**content(copied), "learner_class": name}
        (copied / "config.json").write_text(json.dumps(changed))
        return copied

    def test_in_a_program_that_has_imported_it(self, trained: Path) -> None:
        assert load_agent(trained).config == CONFIGS["ppo"]

    def test_a_program_that_does_not_know_it_is_told_what_to_do(self, trained: Path, tmp_path: Path) -> None:
        run = self.renamed(trained, tmp_path, "elsewhere:Timid")
        for call in (load_agent, resume):
            with pytest.raises(ValueError, match=r"of your own, elsewhere:Timid, .*does not know.*learner=Timid"):
                call(run)
        assert load_agent(run, learner=Timid).config == CONFIGS["ppo"]
        assert resume(run, learner=Timid, progress=False).finished
        assert "elsewhere" not in sys.modules

    def test_nothing_else_of_that_name_is_taken_for_it(
        self, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stranger: Any = ModuleType("stranger")
        calls: list[Any] = []
        stranger.Timid = type("Timid", (), {"__init__": lambda self, *given: calls.append(given)})
        monkeypatch.setitem(sys.modules, "stranger", stranger)
        with pytest.raises(TypeError, match="Timid lacks actor_for, act, learn"):
            load_agent(self.renamed(trained, tmp_path, "stranger:Timid"))
        assert not calls

    def test_another_class_is_refused(self, trained: Path, tmp_path: Path) -> None:
        class Other(Timid):
            """Something else."""

        with pytest.raises(ValueError, match=r"was trained with .*:Timid; expected learner=Timid, got Other"):
            resume(trained, learner=Other)
        usual = train(CONFIGS["ppo"], run_dir=tmp_path / "usual", progress=False).run_dir
        with pytest.raises(ValueError, match=r"its configuration stands for, 'ppo'; leave learner= out"):
            load_agent(usual, learner=Timid)


class TestRefusals:
    def test_what_is_no_algorithm(self, tmp_path: Path) -> None:
        class Unfinished(OnPolicyLearner[PPOConfig]):
            """It has no update."""

        class Halfway:
            def act(self) -> None:
                """All it can."""

        for learner, error in (
            (Halfway, "Halfway lacks actor_for, learn, has_learned, extra_tensors, load_extra_tensors"),
            (Unfinished, "Unfinished is abstract: it must define update"),
            ("compiled", "must be a class .*, got 'compiled'. A setting of that name belongs into the configuration"),
            (Timid(CONFIGS["ppo"], _task()), "must be a class"),
        ):
            given: Any = learner
            with pytest.raises(TypeError, match=error):
                train(CONFIGS["ppo"], learner=given, run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()

    def test_one_with_a_replay_buffer_goes_on_exactly(self, tmp_path: Path) -> None:
        whole, run = tmp_path / "whole", tmp_path / "run"
        train(CONFIGS["dqn"], learner=Hoarder, run_dir=whole, progress=False)
        train(CONFIGS["dqn"], learner=Hoarder, run_dir=run, callback=stop_at([9 * ROLLOUT]), progress=False)
        assert resume(run, learner=Hoarder, progress=False).finished
        np.testing.assert_equal(outcome(run), outcome(whole))
        with pytest.raises(TypeError, match="Hoarder learns with a DQNConfig, got a SACConfig"):
            train(CONFIGS["sac"], learner=Hoarder, run_dir=tmp_path / "other", progress=False)

    def test_another_kind_of_configuration(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="Timid learns with a PPOConfig, got a SACConfig"):
            train(CONFIGS["sac"], learner=Timid, run_dir=tmp_path / "run", progress=False)
        no_config: Any = "CartPole-v1"
        with pytest.raises(TypeError, match="needs an A2CConfig"):
            train(no_config, learner=Timid)

    def test_one_without_the_attributes(self, tmp_path: Path) -> None:
        class Empty(Timid):
            """It forgets what it has."""

            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                del self.optimizers

        class Nameless(Timid):
            """Its policy has another name."""

            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                self.modules = {"policy": self.actor}

        with pytest.raises(TypeError, match=r"Empty must have the attributes .* it lacks optimizers"):
            train(CONFIGS["ppo"], learner=Empty, run_dir=tmp_path / "run", progress=False)
        with pytest.raises(ValueError, match=r"Nameless.modules must hold .* 'actor', got \['policy'\]"):
            train(CONFIGS["ppo"], learner=Nameless, run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()

    def test_envfleets_own_algorithms_are_not_replaced(self) -> None:
        with pytest.raises(ValueError, match=r"envfleet's own 'ppo', which stays .* train\(config, learner=Timid\)"):
            register_algorithm(PPOConfig, Timid)
        assert learner_class(PPOConfig("CartPole-v1")) is PPO


class TestConfigurations:
    CHANGED: ClassVar[dict[str, Any]] = {
        "weights": (1.0, 2.0, 3.0),
        "pairs": ((2, "two"), (3, "three")),
        "table": MappingProxyType({"b": (3,)}),
        "bounds": (0.0, 1.0),
    }

    def config(self, **changes: Any) -> RichConfig:
        small = {entry.name: getattr(CONFIGS["ppo"], entry.name) for entry in dataclasses.fields(PPOConfig)}
        return RichConfig(**small, **changes)

    @pytest.mark.parametrize("learner", [None, Timid])
    def test_new_settings_are_read_again(self, learner: type[Timid] | None, tmp_path: Path) -> None:
        for name, changes in (("default", {}), ("changed", self.CHANGED)):
            config = self.config(**changes)
            run = tmp_path / name
            train(config, learner=learner, run_dir=run, callback=stop_at([ROLLOUT]), progress=False)
            assert content(run)["config_class"] == f"{__name__}:RichConfig"
            read = load_agent(run).config
            assert read == config
            assert isinstance(read, RichConfig)
            assert type(read.bounds) is type(config.bounds)
            assert resume(run, progress=False).finished

    def test_one_with_a_name_of_its_own_needs_no_registration(self, tmp_path: Path) -> None:
        small = {entry.name: getattr(CONFIGS["ppo"], entry.name) for entry in dataclasses.fields(PPOConfig)}
        config = LonelyConfig(**small)
        with pytest.raises(TypeError, match=r"register its algorithm beforehand, or give it: train\(config, learner="):
            train(config, progress=False)
        run = train(config, learner=Timid, run_dir=tmp_path / "run", progress=False).run_dir
        assert "lonely" not in ALGORITHMS
        assert load_agent(run).config == config
        assert resume(run, progress=False).finished

    def test_a_class_that_nobody_knows(self, tmp_path: Path) -> None:
        run = tmp_path / "run"
        train(self.config(), run_dir=run, callback=stop_at([ROLLOUT]), progress=False)
        for name in ("elsewhere:RichConfig", "subprocess:Popen"):
            (run / "config.json").write_text(json.dumps({**content(run), "config_class": name}))
            with pytest.raises(ValueError, match=rf"of your own, {name}, .*Import the module that defines it"):
                load_agent(run)

    def test_what_config_json_could_not_give_back(self) -> None:
        @dataclass(frozen=True, kw_only=True)
        class Odd(A2CConfig):
            """Settings without a type that says what they are."""

            anything: Any = None

        assert Odd("CartPole-v1", anything={"a": [1, None]}).anything == {"a": [1, None]}
        for odd in ((1, 2), {1: 2}, object(), float("nan"), {"a"}):
            with pytest.raises(ValueError, match=r"Odd: anything must be what config.json can give back"):
                Odd("CartPole-v1", anything=odd)

    def test_the_command_line_reads_and_describes_them(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(RichConfig, "algo", "rich")
        register_algorithm(RichConfig, Timid)
        try:
            assert main(["train", "--algo", "rich", "--help"]) == 0
            text = " ".join(capsys.readouterr().out.split())
            assert "--weights" in text
            assert "a number for each layer" in text
            assert "numbers by name" in text
            run = tmp_path / "run"
            argv = ["train", "CartPole-v1", "--algo", "rich", "--weights", "1", "2", "--bounds", "0", "1"]
            argv += ["--num-envs", "2", "--backend", "sync", "--rollout-steps", "16", "--total-steps", "32"]
            assert main([*argv, "--run-dir", str(run), "--eval-episodes", "0", "--no-showcase"]) == 0
            config = load_agent(run).config
            assert isinstance(config, RichConfig)
            assert (config.weights, config.bounds, config.table) == ((1.0, 2.0), (0.0, 1.0), {"a": (1, 2)})
        finally:
            del ALGORITHMS["rich"]


class TestOtherNetworks:
    def test_there_may_be_no_critic(self, tmp_path: Path) -> None:
        class Lone(Timid):
            """Its critic is nobody's business."""

            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                self.modules = {"actor": self.actor}

        run = train(CONFIGS["ppo"], learner=Lone, run_dir=tmp_path / "run", progress=False).run_dir
        assert not (run / "critic.safetensors").exists()
        assert load_agent(run).config == CONFIGS["ppo"]
        other = train(CONFIGS["ppo"], learner=Lone, init_from=run, run_dir=tmp_path / "other", progress=False)
        assert other.finished


class TestOtherOptimisers:
    def test_they_are_saved_too(self, tmp_path: Path) -> None:
        class Plain(Timid):
            """Two optimisers that remember other things than Adam does."""

            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                self.actor_optimizer = torch.optim.SGD(self.actor.parameters(), 1e-2)
                self.critic_optimizer = torch.optim.RMSprop(
                    [{"params": [one]} for one in self.critic.parameters()], 1e-3, momentum=0.5
                )
                self.optimizers = {"actor": self.actor_optimizer, "critic": self.critic_optimizer}

        whole, run = tmp_path / "whole", tmp_path / "run"
        train(CONFIGS["ppo"], learner=Plain, run_dir=whole, progress=False)
        train(CONFIGS["ppo"], learner=Plain, run_dir=run, callback=stop_at([3 * ROLLOUT]), progress=False)
        assert resume(run, learner=Plain, progress=False).finished
        np.testing.assert_equal(outcome(run), outcome(whole))


def _task() -> Any:
    from envfleet.train.environments import make_task, spaces_of

    config: TrainConfig = CONFIGS["ppo"]
    assert not isinstance(config, SACConfig)
    return make_task(config, *spaces_of(config), None)
