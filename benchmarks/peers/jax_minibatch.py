"""PPO's minibatches in JAX, jitted and scanned: answers each line it reads with the microseconds a minibatch took.

Run by the Python that has JAX, with a request as JSON: features, actions, hidden, minibatch, rows.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

RATE, BETA1, BETA2, EPSILON, LONGEST = 1e-3, 0.9, 0.99, 1e-8, 0.5
CLIP, ENTROPY = 0.2, 0.01


def make_network(key: Any, sizes: list[int]) -> list[tuple[Any, Any]]:
    """Weights and biases of every layer."""
    keys = jax.random.split(key, len(sizes) - 1)
    shapes = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [(jax.random.normal(k, (a, b)) / a**0.5, jnp.zeros(b)) for k, a, b in shapes]


def forward(network: Any, values: Any) -> Any:
    """Outputs of a perceptron with tanh between its layers."""
    for weight, bias in network[:-1]:
        values = jnp.tanh(values @ weight + bias)
    weight, bias = network[-1]
    return values @ weight + bias


def policy_loss(actor: Any, batch: Any) -> Any:
    """The clipped surrogate with the entropy bonus, and what PPO reports beside it."""
    logs = jax.nn.log_softmax(forward(actor, batch["observations"]))
    log_ratio = jnp.take_along_axis(logs, batch["actions"][:, None], 1)[:, 0] - batch["log_probs"]
    ratio = jnp.exp(log_ratio)
    advantages = batch["advantages"]
    advantages = (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8)
    surrogate = jnp.minimum(ratio * advantages, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantages).mean()
    entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
    clipped = (jnp.abs(ratio - 1) > CLIP).mean()
    return -surrogate - ENTROPY * entropy, jnp.stack([entropy, (ratio - 1 - log_ratio).mean(), clipped])


def value_loss(critic: Any, batch: Any) -> Any:
    """Half the mean squared error."""
    return 0.5 * jnp.square(forward(critic, batch["observations"])[:, 0] - batch["returns"]).mean()


def adam(network: Any, memory: Any, gradient: Any) -> tuple[Any, Any]:
    """One step with the gradient shortened."""
    norm = jnp.sqrt(sum(jnp.vdot(each, each) for each in jax.tree.leaves(gradient)))
    scale = jnp.minimum(1.0, LONGEST / (norm + 1e-6))
    steps = memory["steps"] + 1
    mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g * scale, memory["mean"], gradient)
    square = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * jnp.square(g * scale), memory["square"], gradient)
    first, second = 1 - BETA1**steps, 1 - BETA2**steps
    moved = jax.tree.map(
        lambda w, m, v: w - RATE * (m / first) / (jnp.sqrt(v / second) + EPSILON), network, mean, square
    )
    return moved, {"mean": mean, "square": square, "steps": steps}


def step(state: Any, batch: Any) -> Any:
    """One minibatch: the critic's step, then the actor's."""
    actor, critic, actor_memory, critic_memory = state
    error, gradient = jax.value_and_grad(value_loss)(critic, batch)
    critic, critic_memory = adam(critic, critic_memory, gradient)
    (loss, told), gradient = jax.value_and_grad(policy_loss, has_aux=True)(actor, batch)
    actor, actor_memory = adam(actor, actor_memory, gradient)
    return (actor, critic, actor_memory, critic_memory), jnp.concatenate([jnp.stack([loss, error]), told])


def steps(state: Any, data: Any, order: Any) -> Any:
    """All minibatches of an epoch; order [minibatches, rows]."""
    return jax.lax.scan(lambda s, rows: step(s, jax.tree.map(lambda each: each[rows], data)), state, order)


def main() -> None:
    """Compile, then answer."""
    epoch = jax.jit(steps)
    request = json.loads(sys.argv[1])
    features, actions, hidden = request["features"], request["actions"], request["hidden"]
    rows, minibatch = request["rows"], request["minibatch"]
    keys = iter(jax.random.split(jax.random.key(0), 8))
    actor = make_network(next(keys), [features, *hidden, actions])
    critic = make_network(next(keys), [features, *hidden, 1])
    zeros = [jax.tree.map(jnp.zeros_like, network) for network in (actor, critic)]
    memories = [{"mean": each, "square": each, "steps": jnp.zeros(())} for each in zeros]
    state = (actor, critic, *memories)
    observations = jax.random.normal(next(keys), (rows, features))
    chosen = jax.random.randint(next(keys), (rows,), 0, actions)
    logs = jax.nn.log_softmax(forward(actor, observations))
    data = {
        "observations": observations,
        "actions": chosen,
        "log_probs": jnp.take_along_axis(logs, chosen[:, None], 1)[:, 0],
        "advantages": jax.random.normal(next(keys), (rows,)),
        "returns": jax.random.normal(next(keys), (rows,)),
    }
    minibatches = rows // minibatch
    order = jax.random.permutation(next(keys), rows)[: minibatches * minibatch].reshape(minibatches, minibatch)
    state, _ = jax.block_until_ready(epoch(state, data, order))
    print(json.dumps({"jax": jax.__version__}), flush=True)
    for line in sys.stdin:
        epochs = json.loads(line)["epochs"]
        started = time.process_time()
        for _ in range(epochs):
            state, _ = jax.block_until_ready(epoch(state, data, order))
        took = (time.process_time() - started) / epochs / minibatches
        print(json.dumps({"microseconds": 1e6 * took}), flush=True)


if __name__ == "__main__":
    main()
