"""TorchRL: a collector alone, and with updates of A2C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, ParallelEnv, SerialEnv
from torchrl.modules import MLP, OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import A2CLoss
from torchrl.objectives.value import GAE

from envfleet.adapters.torchrl import make_torchrl_env
from trainers.measuring import ENV_ID, Loops, Sides, Turn

BASELINE = "SerialEnv"
SIDES: Sides = {
    BASELINE: lambda n: SerialEnv(n, lambda: GymEnv(ENV_ID)),
    "ParallelEnv": lambda n: ParallelEnv(n, lambda: GymEnv(ENV_ID), mp_start_method="fork"),
    "envfleet, sync": lambda n: make_torchrl_env(ENV_ID, n, backend="sync"),
    "envfleet, process": lambda n: make_torchrl_env(ENV_ID, n, backend="process", vector_kwargs={"context": "fork"}),
    "envfleet, native": lambda n: make_torchrl_env(ENV_ID, n, backend="native"),
}


def _actor() -> Any:
    torch.manual_seed(0)
    net = MLP(in_features=8, out_features=4, num_cells=[64, 64], activation_class=torch.nn.Tanh)
    module = TensorDictModule(net, in_keys=["observation"], out_keys=["logits"])
    return ProbabilisticActor(module, in_keys=["logits"], distribution_class=OneHotCategorical, return_log_prob=True)


def _batches(env: Any, actor: Any, each: int) -> Iterator[Any]:
    env.set_seed(0)
    return iter(Collector(env, actor, frames_per_batch=each * env.batch_size[0], total_frames=-1))


def collecting(env: Any, each: int = 40) -> Turn:
    """Batches of a collector."""
    batches = _batches(env, _actor(), each)
    return lambda: int(next(batches).numel())


def training(env: Any, each: int = 40) -> Turn:
    """A2C: a batch of the collector, advantages, one gradient step."""
    actor = _actor()
    net = MLP(in_features=8, out_features=1, num_cells=[64, 64], activation_class=torch.nn.Tanh)
    critic = ValueOperator(net, in_keys=["observation"])
    loss = A2CLoss(actor, critic)
    advantages = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    optimizer = torch.optim.Adam(loss.parameters(), lr=3e-4)
    batches = _batches(env, actor, each)

    def turn() -> int:
        batch = next(batches)
        with torch.no_grad():
            advantages(batch)
        losses = loss(batch.reshape(-1))
        optimizer.zero_grad()
        (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
        optimizer.step()
        return int(batch.numel())

    return turn


LOOPS: Loops = {"Collector": collecting, "A2C": training}
