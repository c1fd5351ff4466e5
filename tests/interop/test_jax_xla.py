"""`envs.xla()`: compiled environments inside compiled functions of JAX, to the bit."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from envfleet import make_vec, native, uniform
from envfleet.errors import FleetInUseError

MODES = ["NextStep", "SameStep"]
N = 7


def _actions(envs: Any, steps: int) -> list[Any]:
    envs.action_space.seed(3)
    return [envs.action_space.sample() for _ in range(steps)]


def _plain(tree: Any) -> Any:
    """As JAX holds it: numbers of 64 bits in 32."""
    return jax.tree.map(lambda leaf: np.asarray(leaf).astype(jax.dtypes.canonicalize_dtype(leaf.dtype)), tree)


def _assert_same_step(mine: Any, theirs: Any) -> None:
    for one, other in zip(mine[:4], _plain(theirs[:4]), strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)


CASES = [
    ("CartPole-v1", {}, 90),
    ("Pendulum-v1", {"max_episode_steps": 20}, 70),
    ("Blackjack-v1", {}, 20),
    ("FrozenLake-v1", {}, 40),
    ("HalfCheetah-v5", {"max_episode_steps": 8}, 20),
    ("Acrobot-v1", {"max_episode_steps": 30}, 70),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("env_id", "arguments", "steps"), CASES, ids=[case[0] for case in CASES])
def test_steps_in_a_scan_are_those_outside(env_id: str, arguments: dict[str, Any], steps: int, mode: str) -> None:
    made = {"backend": "native", "autoreset_mode": mode, **arguments}
    with make_vec(env_id, N, **made) as inside, make_vec(env_id, N, **made) as outside:
        actions = _actions(inside, steps)
        jax.tree.map(np.testing.assert_array_equal, inside.reset(seed=5)[0], outside.reset(seed=5)[0])
        handle, _, step = inside.xla()
        stacked = jax.tree.map(lambda *rows: jnp.stack(rows), *actions)
        handle, seen = jax.jit(lambda handle, actions: lax.scan(step, handle, actions))(handle, stacked)
        ends = 0
        for number, some in enumerate(actions):
            expected = outside.step(some)
            row = jax.tree.map(lambda leaf, at=number: leaf[at], seen)
            _assert_same_step(row, expected)
            ended = expected[2] | expected[3]
            ends += int(ended.sum())
            if mode == "SameStep":
                assert np.asarray(row[4]["_final_obs"]).tolist() == ended.tolist()
                for env in np.flatnonzero(ended):
                    mine = jax.tree.map(lambda leaf, at=env: leaf[at], row[4]["final_obs"])
                    jax.tree.map(np.testing.assert_array_equal, mine, _plain_row(expected[4]["final_obs"][env]))
        assert ends >= N
        # And on from there, outside.
        _assert_same_step(_plain(inside.step(actions[0])), outside.step(actions[0]))


def _plain_row(value: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)), value)


def test_one_step_a_call_and_resets_of_some() -> None:
    with (
        make_vec("CartPole-v1", N, "native", autoreset_mode="Disabled") as inside,
        make_vec("CartPole-v1", N, "native", autoreset_mode="Disabled") as outside,
    ):
        inside.reset(seed=1), outside.reset(seed=1)
        handle, reset, step = inside.xla()
        step, reset, resets = jax.jit(step), jax.jit(reset), 0
        for actions in _actions(inside, 100):
            handle, mine = step(handle, actions)
            expected = outside.step(actions)
            _assert_same_step(mine, expected)
            if (mask := expected[2] | expected[3]).any():
                handle, (observations, infos) = reset(handle, mask)
                assert infos == {}
                np.testing.assert_array_equal(observations, outside.reset(options={"reset_mask": mask})[0])
                resets += 1
        assert resets >= N
        handle, (observations, _) = reset(handle)
        np.testing.assert_array_equal(observations, outside.reset()[0])


def test_ended_environments_are_not_stepped_without_a_reset() -> None:
    with make_vec("CartPole-v1", N, "native", autoreset_mode="Disabled") as envs:
        envs.reset(seed=1)
        handle, _, step = envs.xla()
        with pytest.raises(jax.errors.JaxRuntimeError, match="autoreset is disabled"):
            jax.block_until_ready(lax.scan(step, handle, jnp.ones((100, N), jnp.int32)))


def test_results_that_nobody_uses_are_computed_all_the_same() -> None:
    with make_vec("CartPole-v1", N, "native") as inside, make_vec("CartPole-v1", N, "native") as outside:
        inside.reset(seed=1), outside.reset(seed=1)
        handle, _, step = inside.xla()
        ones = np.ones(N, np.int64)
        loop = jax.jit(lambda handle: lax.fori_loop(0, 5, lambda _, h: step(h, ones)[0], handle))
        jax.block_until_ready(loop(handle))
        for _ in range(5):
            outside.step(ones)
        _assert_same_step(_plain(inside.step(ones)), outside.step(ones))


def test_numbers_of_64_bits_where_jax_is_set_to_them() -> None:
    script = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from envfleet import make_vec
with make_vec("HalfCheetah-v5", 3, "native") as inside, make_vec("HalfCheetah-v5", 3, "native") as outside:
    inside.reset(seed=0), outside.reset(seed=0)
    handle, _, step = inside.xla()
    inside.action_space.seed(0)
    for actions in [inside.action_space.sample() for _ in range(5)]:
        handle, mine = jax.jit(step)(handle, actions)
        for one, other in zip(mine[:4], outside.step(actions)[:4]):
            assert one.dtype == other.dtype, (one.dtype, other.dtype)
            np.testing.assert_array_equal(one, other)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- what is refused -----------------------------------------------------------------------------------------


def test_a_handle_that_was_used_is_refused_and_nothing_is_stepped() -> None:
    with make_vec("CartPole-v1", N, "native") as envs, make_vec("CartPole-v1", N, "native") as outside:
        envs.reset(seed=0), outside.reset(seed=0)
        old, _, step = envs.xla()
        ones = np.ones(N, np.int64)
        _, first = step(old, ones)
        with pytest.raises(jax.errors.JaxRuntimeError, match="handle is of turn 0, and the fleet is at turn 1"):
            jax.block_until_ready(step(old, ones))
        _assert_same_step(first, outside.step(ones))
        _assert_same_step(step(envs.xla().handle, ones)[1], outside.step(ones))


def test_a_handle_of_other_environments_is_refused() -> None:
    with make_vec("CartPole-v1", N, "native") as envs, make_vec("Acrobot-v1", N, "native") as others:
        envs.reset(seed=0), others.reset(seed=0)
        step = envs.xla().step
        with pytest.raises(jax.errors.JaxRuntimeError, match="those of another fleet"):
            jax.block_until_ready(step(others.xla().handle, np.ones(N, np.int64)))


@pytest.mark.parametrize("wrong", [np.ones(N - 1, np.int64), np.ones(N), np.ones((N, 1), np.int64)])
def test_actions_of_another_shape_or_type_are_refused(wrong: Any) -> None:
    with make_vec("CartPole-v1", N, "native") as envs:
        envs.reset(seed=0)
        handle, _, step = envs.xla()
        with pytest.raises(ValueError, match="Nothing was stepped"):
            step(handle, wrong)


def test_actions_outside_the_space_are_refused_and_nothing_is_stepped() -> None:
    with make_vec("CartPole-v1", N, "native") as envs, make_vec("CartPole-v1", N, "native") as outside:
        envs.reset(seed=0), outside.reset(seed=0)
        handle, _, step = envs.xla()
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"action\[3\] of environment 3 .*: 5"):
            jax.block_until_ready(step(handle, np.array([0, 1, 0, 5, 0, 0, 0])))
        ones = np.ones(N, np.int64)
        _assert_same_step(step(handle, ones)[1], outside.step(ones))


def test_what_must_be_done_outside_is_said() -> None:
    with make_vec("CartPole-v1", N, "native") as envs, pytest.raises(Exception, match="reset"):
        envs.xla()
    with make_vec("Pendulum-v1", N, "native", randomize={"g": uniform(9, 10)}) as envs:
        envs.reset(seed=0)
        with pytest.raises(TypeError, match="randomize_on='make'"):
            envs.xla()


def test_a_closed_fleet_is_not_stepped() -> None:
    envs = make_vec("CartPole-v1", N, "native")
    envs.reset(seed=0)
    handle, _, step = envs.xla()
    compiled = jax.jit(step)
    handle, _ = compiled(handle, np.ones(N, np.int64))
    envs.close()
    with pytest.raises(jax.errors.JaxRuntimeError, match="closed"):
        jax.block_until_ready(compiled(handle, np.ones(N, np.int64)))
    with pytest.raises(Exception, match="closed"):
        envs.xla()


def test_a_fleet_that_is_dropped_is_not_stepped() -> None:
    envs = make_vec("CartPole-v1", N, "native")
    envs.reset(seed=0)
    handle, _, step = envs.xla()
    del envs
    with pytest.raises(jax.errors.JaxRuntimeError, match="closed"):
        jax.block_until_ready(step(handle, np.ones(N, np.int64)))


# --- what goes wrong -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuse(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A walk in C with two choices a step, which fails at its step number `fuse`, or naps in every step."""
    source = Path(__file__).parents[1] / "unit" / "train" / "fuse.c"
    library = tmp_path_factory.mktemp("fuse") / "fuse.so"
    command = ["cc", "-std=c11", "-O2", "-fPIC", "-shared", f"-I{native.include_dir()}"]
    subprocess.run([*command, str(source), "-o", str(library), "-lm"], check=True)
    return native.load(library)


def test_what_an_environment_says_when_it_fails_comes_out(fuse: Any) -> None:
    with make_vec(fuse, 3, "native", fuse=2) as envs:
        envs.reset(seed=0)
        handle, _, step = envs.xla()
        actions = jnp.zeros((9, 3, 2), jnp.int32)
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"environment 0 failed: .*the fuse has blown"):
            jax.block_until_ready(jax.jit(lambda h: lax.scan(step, h, actions))(handle))
        with pytest.raises(RuntimeError, match="the fuse has blown"):  # and outside, as after any failed step
            envs.step(np.zeros((3, 2), np.int64))
        envs.reset(seed=0)
        handle, _, step = envs.xla()
        jax.block_until_ready(step(handle, actions[0]))


def test_a_fleet_in_use_by_a_compiled_function_refuses_others_and_close_ends_it(fuse: Any) -> None:
    envs = make_vec(fuse, 2, "native", nap=500, vector_kwargs={"threads": 1})
    envs.reset(seed=0)
    handle, _, step = envs.xla()
    actions = jnp.zeros((20_000, 2, 2), jnp.int32)  # twenty seconds, if nobody ended it
    scan = jax.jit(lambda h: lax.scan(step, h, actions)).lower(handle).compile()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            jax.block_until_ready(scan(handle))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while envs._for_xla().handle()[1] == 0:
        thread.join(0.001)
    refused = 0
    while not refused and thread.is_alive():
        try:
            envs.step(np.zeros((2, 2), np.int64))
        except FleetInUseError:
            refused += 1
    envs.close()
    thread.join(10)
    assert not thread.is_alive()
    assert refused
    assert "closed" in str(failures[0])
