"""Many steps in one call: the same bits as step by step, the same errors, and Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from envfleet import EnvRaisedError, choice, make_vec, native, uniform
from envfleet.errors import ResetNeeded
from envfleet.train.at_once import can_be_made_at_once, make_at_once
from envfleet.train.collecting import Rollout, begin, collect
from envfleet.train.networks.compiled_policy import CompiledPolicy, why_no_compiled_policy
from envfleet.train.networks.distributions import distribution_for
from envfleet.train.networks.networks import Actor, Layout, Perceptron
from envfleet.train.watch import Shielded
from envfleet.wrappers import BoundedAction, NormalizeReward

SAME_STEP, NEXT_STEP = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP
ROLLOUTS = (40, 1, 25)
"""Steps of rollouts one after another: none of them as many as noise is drawn for at once."""


@pytest.fixture(scope="module")
def fuse(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("fuse") / "fuse.so"
    source = Path(__file__).with_name("fuse.c")
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared"]
    subprocess.run([*command, f"-I{native.include_dir()}", str(source), "-o", str(library), "-lm"], check=True)
    return native.load(library)


def actor_for(observation_space: Any, action_space: Any, activation: str = "tanh", normalize: bool = False) -> Actor:
    torch.manual_seed(5)
    distribution = distribution_for(action_space)
    outputs = distribution.outputs // 2 if distribution.learns_std else distribution.outputs
    layout = Layout((32, 16), activation, normalize)
    actor = Actor(Perceptron(observation_space, outputs, layout, last_gain=1.0), distribution).eval()
    if normalize:
        body: Any = actor.body
        body.encoder.observe(torch.randn(50, *observation_space.shape) * 3 + 1)
    return actor


@contextmanager
def fleet(
    env: Any, num_envs: int = 6, mode: AutoresetMode = SAME_STEP, threads: int = 2, **kwargs: Any
) -> Iterator[Any]:
    vector_kwargs = {"autoreset_mode": mode, "copy": False, "threads": threads}
    with make_vec(env, num_envs, "native", vector_kwargs=vector_kwargs, **kwargs) as envs:
        yield BoundedAction(envs) if isinstance(envs.single_action_space, spaces.Box) else envs


def policy_for(envs: Any, **kwargs: Any) -> CompiledPolicy:
    actor = actor_for(envs.single_observation_space, envs.unwrapped.single_action_space, **kwargs)
    assert why_no_compiled_policy(actor) is None
    return CompiledPolicy(actor, noise_steps=16)


def rollouts(env: Any, names: tuple[str, ...], kwargs: Any, layout: Any, *, at_once: bool) -> list[Rollout]:
    with fleet(env, **kwargs) as envs:
        policy = policy_for(envs, **layout)
        torch.manual_seed(9)
        position, found = begin(envs, seed=3), []
        assert can_be_made_at_once(envs, policy)
        for steps in ROLLOUTS:
            act = Shielded(lambda seen, _: policy(seen), policy if at_once else None)
            found.append(collect(envs, act, steps, position, names))
            position = found[-1].end
        return [*found, torch.random.get_rng_state()]  # type: ignore[list-item]


def assert_same(one: Rollout, other: Rollout) -> None:
    for name in ("observations", "actions", "rewards", "terminated", "truncated", "valid", "final_observations"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs, err_msg=name)
    np.testing.assert_array_equal(one.end.observations, other.end.observations)
    np.testing.assert_array_equal(one.end.resetting, other.end.resetting)
    assert one.fresh == other.fresh
    assert one.final_infos.keys() == other.final_infos.keys()
    for name, column in one.final_infos.items():
        np.testing.assert_array_equal(column, other.final_infos[name])
    assert one.restarted is None
    assert other.restarted is None


LIMIT = {"max_episode_steps": 9}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a block of rows": ("CartPole-v1", {"num_envs": 70}, {}),
    "time limits": ("CartPole-v1", LIMIT, {"activation": "relu"}),
    "resets in steps of their own": ("CartPole-v1", {**LIMIT, "mode": NEXT_STEP}, {}),
    "one thread": ("Acrobot-v1", {**LIMIT, "threads": 1}, {}),
    "more threads than cores": ("MountainCar-v0", {**LIMIT, "threads": 5}, {}),
    "continuous": ("Pendulum-v1", LIMIT, {"normalize": True}),
    "parameters anew in every episode": ("Pendulum-v1", {**LIMIT, "randomize": {"g": uniform(5.0, 15.0)}}, {}),
    "infos and float64": ("InvertedPendulum-v5", {**LIMIT, "mode": NEXT_STEP}, {"normalize": True}),
    "infos, reset in the same step": ("Hopper-v5", LIMIT, {}),
}
INFOS = ("x_position", "reward_survive", "is_success")


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_single_steps(case: str) -> None:
    env, kwargs, layout = CASES[case]
    if env in ("InvertedPendulum-v5", "Hopper-v5"):
        pytest.importorskip("mujoco")
    *quick, after = rollouts(env, INFOS, kwargs, layout, at_once=True)
    *single, other = rollouts(env, INFOS, kwargs, layout, at_once=False)
    for one, another in zip(quick, single, strict=True):
        assert_same(one, another)
    assert torch.equal(after, other)  # type: ignore[arg-type]
    assert sum(len(one.final_observations) for one in quick) > 5
    positions = np.concatenate([one.final_infos["x_position"] for one in quick])
    assert np.isnan(positions).all() if env != "Hopper-v5" else np.isfinite(positions).all()


def test_several_choices(fuse: Any) -> None:
    *quick, _ = rollouts(fuse, (), {"threads": 3, "randomize": {"pull": uniform(0.2, 0.8)}}, {}, at_once=True)
    *single, _ = rollouts(fuse, (), {"threads": 1, "randomize": {"pull": uniform(0.2, 0.8)}}, {}, at_once=False)
    for one, another in zip(quick, single, strict=True):
        assert_same(one, another)
    assert {tuple(choice) for choice in quick[0].actions.reshape(-1, 2).tolist()} == {
        (first, second) for first in range(2) for second in range(3)
    }


def test_what_is_not_finite_is_seen_as_zero(fuse: Any) -> None:
    kwargs = {"odd": 4}
    *quick, _ = rollouts(fuse, (), kwargs, {}, at_once=True)
    *single, _ = rollouts(fuse, (), kwargs, {}, at_once=False)
    assert np.isnan(quick[0].observations).any()
    for one, another in zip(quick, single, strict=True):
        assert_same(one, another)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_failure_is_that_of_a_single_step(fuse: Any, at_once: bool) -> None:
    with fleet(fuse, num_envs=5, fuse=7) as envs:
        policy = policy_for(envs)
        envs.set_attr("fuse", [20, 12, 7, 7, 30])
        torch.manual_seed(9)
        start = begin(envs, seed=3)
        with pytest.raises(EnvRaisedError, match="the fuse has blown") as caught:
            collect(envs, Shielded(lambda seen, _: policy(seen), policy if at_once else None), 29, start)
        assert caught.value.env_indices == (2,)
        with pytest.raises(ResetNeeded, match="Environment 2 failed"):
            envs.step(np.zeros((5, 2), np.int64))
        envs.set_attr("fuse", 0)
        assert collect(envs, policy, 3, begin(envs)).transitions == 15


def test_parameters_go_on_as_in_single_steps(fuse: Any) -> None:
    """Those of the present episodes, and what happens when some that were drawn cannot be."""
    tables, errors = [], []
    for at_once in (True, False):
        with fleet(fuse, randomize={"pull": uniform(0.2, 0.8)}, randomize_seed=1) as envs:
            policy = policy_for(envs)
            torch.manual_seed(2)
            act = Shielded(lambda seen, _, policy=policy: policy(seen), policy if at_once else None)
            collect(envs, act, 200, begin(envs, seed=1))
            tables.append(np.asarray(envs.parameters["pull"]))
        naps = choice([0] * 40 + [0.5])
        with fleet(fuse, randomize={"nap": naps}, randomize_seed=1, max_episode_steps=3) as envs:
            policy = policy_for(envs)
            act = Shielded(lambda seen, _, policy=policy: policy(seen), policy if at_once else None)
            start = begin(envs)
            with pytest.raises(EnvRaisedError) as caught:
                collect(envs, act, 2000, start)
            errors.append(str(caught.value))
    np.testing.assert_array_equal(*tables)
    assert errors[0] == errors[1]
    assert "nap must be an integer" in errors[0]


def test_an_action_that_is_none_is_an_error() -> None:
    with fleet("Pendulum-v1") as envs:
        actor = actor_for(envs.single_observation_space, envs.unwrapped.single_action_space)
        policy = CompiledPolicy(actor, 8)
        start = begin(envs, seed=0)
        with torch.no_grad():
            actor.body.layers[-1].bias.fill_(float("inf"))  # type: ignore[index, union-attr, operator]
        with pytest.raises(Exception, match="action for environment 0 is inf"):
            collect(envs, Shielded(lambda seen, _: policy(seen), policy), 20, start)
        with pytest.raises(ResetNeeded, match="interrupted"):
            envs.step(np.zeros((6, 1), np.float32))


def test_wrappers_and_other_policies_keep_the_loop() -> None:
    with fleet("CartPole-v1") as envs:
        policy = policy_for(envs)
        assert not can_be_made_at_once(NormalizeReward(envs), policy)
        assert not can_be_made_at_once(envs, lambda seen: policy(seen))
        assert make_at_once(envs, policy, 4, begin(envs).observations) is not None
    with make_vec("CartPole-v1", 2, "sync") as others:
        assert not can_be_made_at_once(others, policy)


def test_ctrl_c_is_noticed(fuse: Any) -> None:
    with fleet(fuse, num_envs=2, nap=1000) as envs:
        policy = policy_for(envs)
        start = begin(envs, seed=0)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            collect(envs, policy, 60_000, start)  # a minute
        timer.join()
        assert time.monotonic() - started < 30
        with pytest.raises(ResetNeeded, match="interrupted"):
            envs.step(np.zeros((2, 2), np.int64))
        assert collect(envs, policy, 3, begin(envs)).transitions == 6


def test_closing_ends_it(fuse: Any) -> None:
    with fleet(fuse, num_envs=2, nap=1000) as envs:
        policy = policy_for(envs)
        start = begin(envs, seed=0)
        timer = threading.Timer(0.2, envs.close)
        timer.start()
        with pytest.raises(Exception, match="closed"):
            collect(envs, policy, 60_000, start)
        timer.join()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(5, start=2),
        spaces.MultiDiscrete([2, 4], start=[1, 0]),
        spaces.MultiBinary((2, 3)),
        spaces.Box(-2, 2, (2, 2)),
    ],
    ids=["Discrete", "MultiDiscrete", "MultiBinary", "Box"],
)
@pytest.mark.parametrize("normalize", [False, True])
def test_actions_are_those_of_the_distribution(space: Any, normalize: bool) -> None:
    """Against torch, given the same noise; and the likeliest ones."""
    seen = np.random.default_rng(0).normal(size=(40, 7)).astype(np.float32)
    actor = actor_for(spaces.Box(-9, 9, (7,)), space, normalize=normalize)
    torch.manual_seed(1)
    actions = CompiledPolicy(actor, 1)(seen)
    torch.manual_seed(1)
    outputs = actor(torch.from_numpy(seen)).detach()
    if isinstance(space, spaces.Box):
        mean, log_std = outputs.chunk(2, -1)
        expected = (mean + log_std.exp() * torch.empty(1, *mean.shape).normal_()[0]).reshape(-1, 2, 2)
        np.testing.assert_allclose(actions, expected.numpy(), rtol=1e-5, atol=1e-6)
    elif isinstance(space, spaces.MultiBinary):
        drawn = torch.empty(1, *outputs.shape).uniform_()[0] < torch.sigmoid(outputs)
        np.testing.assert_array_equal(actions, drawn.reshape(-1, 2, 3).numpy())
    else:
        noisy = outputs - torch.empty(1, *outputs.shape).exponential_()[0].log()
        np.testing.assert_array_equal(actions, actor.distribution.mode(noisy).numpy())
    assert actions.dtype == np.asarray(space.sample()).dtype or isinstance(space, spaces.Box)
    likeliest = CompiledPolicy(actor, 0).likeliest(seen)
    assert likeliest is not None
    np.testing.assert_allclose(likeliest, actor.distribution.mode(outputs).numpy(), rtol=1e-5, atol=1e-6)


def test_frequencies_of_actions() -> None:
    """Drawn actions are as frequent as the distribution says: within five standard errors."""
    space = spaces.Discrete(4)
    actor = actor_for(spaces.Box(-9, 9, (3,)), space)
    one = np.array([[0.5, -1.0, 2.0]], np.float32)
    policy = CompiledPolicy(actor, 1)
    drawn = policy(np.repeat(one, 40_000, axis=0))
    chances = torch.softmax(actor(torch.from_numpy(one)), -1)[0].detach().numpy()
    found = np.bincount(drawn, minlength=4) / len(drawn)
    assert (np.abs(found - chances) < 5 * np.sqrt(chances * (1 - chances) / len(drawn))).all()
