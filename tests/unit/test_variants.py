"""What the examples of one's own algorithms show: that an algorithm is given enough for the known variants."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from selection import left_to_test_all

from envfleet import make_vec
from envfleet.train import A2CConfig, PPOConfig, begin, collect, evaluate, load_agent, read_metrics, resume, train
from envfleet.train.algorithms.learner import Task, make_batch
from envfleet.train.folders.weights import load_tensors

EXAMPLES = Path(__file__).parents[2] / "examples"
CPU = torch.device("cpu")


def example(name: str) -> ModuleType:
    """An example as a module, under a name that no other module has."""
    full = f"example_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


SMALL: dict[str, Any] = {
    "num_envs": 2,
    "backend": "sync",
    "hidden_sizes": (8,),
    "rollout_steps": 16,
    "total_steps": 256,
}
PPO_SMALL: dict[str, Any] = {**SMALL, "minibatch_size": 16, "epochs": 2}


def variant(name: str) -> tuple[Any, Any]:
    """A small configuration, and the algorithm."""
    module = example(name)
    if name == "shared_trunk":
        return PPOConfig("CartPole-v1", **PPO_SMALL), module.SharedTrunk
    if name == "clipped_values":
        return module.ClippedConfig("CartPole-v1", **PPO_SMALL, value_clip=0.1), module.ClippedValues
    if name == "curiosity":
        return module.CuriousConfig("CartPole-v1", **SMALL, bonus=0.5), module.Curious
    return PPOConfig(module.Recall, **PPO_SMALL), module.RecurrentPPO


def tensors_of(run: Path) -> dict[str, Any]:
    tensors, _ = load_tensors(run / "checkpoint" / "latest.safetensors", "checkpoint")
    return {name: tensor.numpy() for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", ["shared_trunk", "clipped_values", "curiosity", "memory"])
def test_a_variant_is_resumed_exactly_and_plays(name: str, tmp_path: Path) -> None:
    config, learner = variant(name)
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(config, learner=learner, run_dir=whole, progress=False, loggers=())
    stop = {"callback": lambda progress: progress.step < 96, "progress": False, "loggers": ()}
    assert not train(config, learner=learner, run_dir=run, **stop).finished
    assert resume(run, progress=False, loggers=()).finished
    np.testing.assert_equal(tensors_of(run), tensors_of(whole))
    agent = load_agent(run)
    assert agent.config == config
    assert len(evaluate(agent, episodes=2, num_envs=2, backend="sync").returns) == 2


def task_of(env_id: str, num_envs: int = 2) -> Task:
    with make_vec(env_id, num_envs, "sync") as envs:
        return Task(envs.single_observation_space, envs.single_action_space, num_envs, CPU)


def rollout_of(learner: Any, env_id: str, steps: int = 16) -> Any:
    with make_vec(env_id, 2, "sync") as envs:
        return collect(envs, learner.act, steps, begin(envs, 0))


class TestSharedTrunk:
    def test_one_optimiser_moves_the_shared_layers_by_both_losses(self) -> None:
        config, kind = variant("shared_trunk")
        learner = kind(config, task_of("CartPole-v1"))
        shared = learner.actor.body.layers[0].weight
        assert any(parameter is shared for parameter in learner.critic.parameters())
        moved = [id(one) for group in learner.optimizer.param_groups for one in group["params"]]
        assert sorted(moved) == sorted({id(one) for one in learner.networks.parameters()})
        before = shared.detach().clone()
        learner.learn(rollout_of(learner, "CartPole-v1"), 0.0)
        assert not torch.equal(shared, before)

    def test_observations_are_counted_once(self) -> None:
        config, kind = variant("shared_trunk")
        assert config.normalize_observations
        learner = kind(config, task_of("CartPole-v1"))
        rollout = rollout_of(learner, "CartPole-v1")
        learner.learn(rollout, 0.0)
        counts = [tensor.item() for name, tensor in learner.actor.named_buffers() if name.endswith("count")]
        assert counts == [rollout.transitions]


class TestClippedValues:
    def test_the_old_values_are_in_the_batch(self) -> None:
        config, kind = variant("clipped_values")
        learner = kind(config, task_of("CartPole-v1"))
        rollout = rollout_of(learner, "CartPole-v1")
        batch = make_batch(rollout, learner.critic, CPU, reward_scale=1.0, gamma=0.9, lam=0.9)
        with torch.no_grad():
            torch.testing.assert_close(batch.values, learner.critic(batch.observations))
        rows = torch.tensor([3, 1])
        torch.testing.assert_close(batch.at(rows).values, batch.values[rows])

    @pytest.mark.parametrize(
        ("value", "gradient"),
        [(0.05, 0.05 - 1.0), (0.5, 0.0), (-0.5, -0.5 - 1.0)],
        ids=["near", "far, towards the return", "far, away from it"],
    )
    def test_its_gradient_is_cut_where_the_value_has_gone_far(self, value: float, gradient: float) -> None:
        loss = example("clipped_values").value_loss
        values = torch.tensor([value], requires_grad=True)
        loss(values, torch.tensor([0.0]), torch.tensor([1.0]), 0.1).backward()
        assert values.grad is not None
        assert values.grad.item() == pytest.approx(gradient)


class TestCuriosity:
    def test_what_was_seen_becomes_worth_less_and_returns_are_told_without_it(self, tmp_path: Path) -> None:
        module = example("curiosity")
        config = module.CuriousConfig("CartPole-v1", **{**SMALL, "total_steps": 64 * 32}, bonus=100.0, actor_lr=1e-2)
        run = train(config, learner=module.Curious, run_dir=tmp_path / "run", progress=False, loggers=()).run_dir
        metrics = read_metrics(run)
        assert metrics["bonus"][-1] < 0.5 * metrics["bonus"][0]
        told = ~np.isnan(metrics["episode_return"])
        np.testing.assert_array_equal(metrics["episode_return"][told], metrics["episode_length"][told])

    def test_the_bonus_is_learnt_from(self) -> None:
        module = example("curiosity")
        seen: dict[float, Any] = {}
        for bonus in (0.0, 10.0):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                config = module.CuriousConfig("CartPole-v1", **SMALL, bonus=bonus, normalize_rewards=False)
                learner = module.Curious(config, task_of("CartPole-v1"))
                rollout = rollout_of(learner, "CartPole-v1")
                target = learner.target[0].weight.clone()
                learner.learn(rollout, 0.0)
                assert torch.equal(learner.target[0].weight, target)
                seen[bonus] = learner.critic.body.layers[-1].bias.item(), rollout.rewards.sum()
        assert seen[0.0][1] == seen[10.0][1]
        assert seen[0.0][0] != seen[10.0][0]


RECALL: dict[str, Any] = {
    "num_envs": 16,
    "backend": "sync",
    "rollout_steps": 20,
    "hidden_sizes": (16,),
    "actor_lr": 1e-2,
}


def test_memory_learns_what_nobody_can_without(tmp_path: Path) -> None:
    """Without memory one of two is right: the last observation says nothing."""
    module = example("memory")
    config = PPOConfig(module.Recall, **RECALL, total_steps=6_400)
    agent = train(config, learner=module.RecurrentPPO, run_dir=tmp_path / "run", progress=False, loggers=()).agent
    assert evaluate(agent, episodes=64, num_envs=16, backend="sync").mean_return >= 0.95


@left_to_test_all()
@pytest.mark.parametrize("seed", range(5))
def test_memory_with_five_seeds(seed: int, tmp_path: Path) -> None:
    module = example("memory")
    config = PPOConfig(module.Recall, **RECALL, total_steps=12_800, seed=seed)
    remembers = train(config, learner=module.RecurrentPPO, run_dir=tmp_path / "with", progress=False, loggers=()).agent
    forgets = train(config, run_dir=tmp_path / "without", progress=False, loggers=()).agent
    scores = [evaluate(one, episodes=200, num_envs=16, backend="sync").mean_return for one in (remembers, forgets)]
    assert scores[0] >= 0.95
    assert scores[1] == pytest.approx(0.5, abs=0.15)


def test_the_variants_are_what_the_settings_say() -> None:
    assert issubclass(example("curiosity").CuriousConfig, A2CConfig)
    assert issubclass(example("clipped_values").ClippedConfig, PPOConfig)
