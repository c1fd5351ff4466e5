"""A small network that picks the actions: what users really run between two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gymnasium.spaces import Box, Space
from torch import nn

HIDDEN = 64


def make_policy(observation_space: Space[Any], action_space: Space[Any]) -> Callable[[Any], Any]:
    """A function from observations [rows, ...] to actions [rows, ...], both NumPy arrays.

    Two layers of 64 units on one thread; actions are drawn from its probabilities, or with continuous actions from
    a normal distribution around its answer.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    assert observation_space.shape is not None
    continuous = isinstance(action_space, Box)
    outputs = action_space.shape[0] if isinstance(action_space, Box) else int(action_space.n)  # type: ignore[attr-defined]
    network = nn.Sequential(
        nn.Linear(observation_space.shape[0], HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, outputs),
    )

    def act(observations: Any) -> Any:
        with torch.inference_mode():
            answer = network(torch.as_tensor(observations).float())
            if continuous:
                return torch.normal(answer, 0.5).clamp_(-1.0, 1.0).numpy()
            return torch.multinomial(answer.softmax(-1), 1).squeeze(-1).numpy()

    return act
