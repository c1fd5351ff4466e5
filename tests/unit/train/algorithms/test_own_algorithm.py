"""An algorithm of one's own: everything about it is in this one file, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pytest
from small_runs import outcome, stop_at
from torch.nn import functional

from envfleet.cli import main
from envfleet.errors import DamagedRunError
from envfleet.train import (
    A2CConfig,
    Batch,
    OnPolicyLearner,
    evaluate,
    gradient_step,
    load_agent,
    preset,
    read_metrics,
    register_algorithm,
    resume,
    train,
)
from envfleet.train.algorithms.registry import ALGORITHMS


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(A2CConfig):
    """REINFORCE with a critic for a baseline.

    Attributes:
        temper: what the advantages are multiplied by.
    """

    algo: ClassVar[str] = "reinforce"

    rollout_steps: int = 16
    gae_lambda: float = 1.0
    temper: float = 0.5
    undescribed: int = 1


@final
class Reinforce(OnPolicyLearner[ReinforceConfig]):
    """The algorithm: one step of the critic and one of the actor a rollout."""

    metrics = ("actor_loss", "critic_loss")

    def update(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        value_loss = functional.mse_loss(self.critic(batch.observations), batch.returns)
        gradient_step(value_loss, self.critic_optimizer, of="critic")
        log_prob = self.actor.distribution.log_prob(self.actor(batch.observations), batch.actions)
        loss = -(self.config.temper * batch.advantages * log_prob).mean()
        gradient_step(loss, self.actor_optimizer, of="actor")
        return {"actor_loss": loss.item(), "critic_loss": value_loss.item()}


SETTINGS: dict[str, Any] = {"num_envs": 2, "backend": "sync", "hidden_sizes": (8,), "total_steps": 20 * 32}
CONFIG = ReinforceConfig("CartPole-v1", **SETTINGS)


@pytest.fixture(autouse=True)
def _added() -> Iterator[None]:
    register_algorithm(ReinforceConfig, Reinforce)
    yield
    del ALGORITHMS["reinforce"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    register_algorithm(ReinforceConfig, Reinforce)
    return train(CONFIG, run_dir=tmp_path_factory.mktemp("reinforce") / "run", progress=False).run_dir


class TestAlgorithm:
    def test_it_trains(self, trained: Path) -> None:
        metrics = read_metrics(trained)
        assert list(metrics)[6:] == ["actor_loss", "critic_loss", "learning_rate", "explained_variance"]
        assert np.isfinite(metrics["critic_loss"]).all()
        assert metrics["step"][-1] == 640

    def test_it_goes_on_as_if_it_had_not_been_stopped(self, trained: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        assert not train(CONFIG, run_dir=run, callback=stop_at([96]), progress=False).finished
        assert resume(run, progress=False).finished
        np.testing.assert_equal(outcome(run), outcome(trained))

    def test_its_agent_is_loaded_and_plays(self, trained: Path) -> None:
        agent = load_agent(trained)
        assert agent.config == CONFIG
        assert evaluate(agent, episodes=3, num_envs=3, backend="sync").mean_return > 0

    def test_it_has_presets_as_others_have(self) -> None:
        assert preset("CartPole-v1", "reinforce") == ReinforceConfig("CartPole-v1")

    def test_the_command_line_trains_and_resumes_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run = tmp_path / "run"
        argv = ["train", "CartPole-v1", "--algo", "reinforce", "--temper", "0.25", "--num-envs", "2", "--backend"]
        rest = ["--eval-episodes", "0", "--no-showcase"]
        assert main([*argv, "sync", "--total-steps", "64", "--run-dir", str(run), *rest]) == 0
        config = load_agent(run).config
        assert isinstance(config, ReinforceConfig)
        assert config.temper == 0.25
        assert main(["train", "--resume", str(run), *rest]) == 0
        assert main(["evaluate", str(run), "--episodes", "2"]) == 0
        assert "mean return" in capsys.readouterr().out

    def test_the_command_line_describes_it(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        assert main(["train", "--algo", "reinforce", "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "{a2c,ppo,sac,td3,dqn,reinforce}" in text
        assert "what the advantages are multiplied by" in text
        assert "--undescribed INT" in text
        others = "--algo a2c, --algo ppo, --algo sac, --algo td3 or --algo dqn"
        assert f"the settings of reinforce; for the others add {others}." in text
        assert main(["train", "--help"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "for the others add --algo a2c, --algo sac, --algo td3, --algo dqn or --algo reinforce." in text

    def test_without_it_its_runs_are_refused_with_the_reason(
        self, trained: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delitem(ALGORITHMS, "reinforce")
        said = r"one of a2c, ppo, sac, td3, dqn, got 'reinforce'; .* register_algorithm\(\)"
        with pytest.raises(DamagedRunError, match=said):
            load_agent(trained)
        with pytest.raises(TypeError, match=r"needs an A2CConfig, .* or a DQNConfig, got ReinforceConfig"):
            train(CONFIG, progress=False)

    def test_registering_it_again_replaces_it(self) -> None:
        register_algorithm(ReinforceConfig, Reinforce)
        assert list(ALGORITHMS) == ["a2c", "ppo", "sac", "td3", "dqn", "reinforce"]

    def test_names_that_are_taken_or_no_names(self) -> None:
        @dataclass(frozen=True, kw_only=True)
        class Nameless(A2CConfig):
            """Its name is A2C's."""

        with pytest.raises(ValueError, match="'a2c' is the name of A2CConfig; give Nameless an `algo` of its own"):
            register_algorithm(Nameless, Reinforce)
        Nameless.algo = "two words"
        with pytest.raises(ValueError, match=r"Nameless.algo must be a name such as .*, got 'two words'"):
            register_algorithm(Nameless, Reinforce)
        no_config: Any = Reinforce
        with pytest.raises(TypeError, match="must be a dataclass derived from TrainConfig"):
            register_algorithm(no_config, Reinforce)
