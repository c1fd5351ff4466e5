"""Fleets in actors of a real Ray: the same numbers, failures told and survived, nothing left behind.

One actor takes about a second to start, so a few fleets serve many tests. The contract is in test_ray_contract.py.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from process_fleets import SOON, assert_gone, within

from envfleet import RayVectorEnv, SyncVectorEnv, make_vec, uniform
from envfleet.errors import ClosedEnvironmentError, EnvRaisedError, ResetNeeded, WorkerDiedError, WorkerStuckError
from envfleet.testing import assert_same
from envfleet.testing.envs import Command, counter_fns, trouble_fns
from envfleet.testing.timeouts import make_fifo, release

pytestmark = pytest.mark.ray

NUM_ENVS = 5
ZEROS = np.zeros(NUM_ENVS, np.int64)
SECOND_ACTOR = (2, 3, 4)
# A new actor is a new interpreter that imports everything.
START = 60.0


def order(commands: dict[int, int]) -> Any:
    """Action 0 for all but those with commands."""
    actions = ZEROS.copy()
    for env, command in commands.items():
        actions[env] = command
    return actions


@pytest.fixture(scope="module")
def fifo(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_fifo(tmp_path_factory.mktemp("ray"))


@pytest.fixture(scope="module")
def envs(ray_cluster: None, fifo: str) -> Iterator[RayVectorEnv]:
    """One fleet for all: whatever a test does to it, the next begins with a reset that must revive it."""
    with RayVectorEnv(trouble_fns(NUM_ENVS, fifo=fifo), num_workers=2, batch_size=1, num_cpus=0.5) as one:
        yield one


@pytest.fixture(scope="module")
def lasting(ray_cluster: None, fifo: str) -> Iterator[RayVectorEnv]:
    """The same, restarted when it fails and with little patience."""
    with RayVectorEnv(
        trouble_fns(NUM_ENVS, fifo=fifo), num_workers=2, num_cpus=0.5, on_failure="restart", step_timeout=0.5
    ) as one:
        yield one


def trajectory(envs: Any, steps: int = 12) -> list[Any]:
    """All that comes out of a fleet."""
    envs.action_space.seed(1)
    return [envs.reset(seed=7), *(envs.step(envs.action_space.sample()) for _ in range(steps))]


@pytest.mark.parametrize(
    ("num_workers", "mode", "steps"), [(1, "NextStep", 12), (2, "SameStep", 12), (3, "Disabled", 1)]
)
def test_trajectories_are_those_of_sync(num_workers: int, mode: str, steps: int) -> None:
    fns = counter_fns(NUM_ENVS)
    with (
        SyncVectorEnv(fns, autoreset_mode=mode) as sync,
        RayVectorEnv(fns, num_workers=num_workers, num_cpus=0, autoreset_mode=mode) as ours,
    ):
        assert ours.num_workers == num_workers
        assert_same(trajectory(ours, steps), trajectory(sync, steps))


def test_parameters_of_every_episode_are_those_of_sync() -> None:
    make = partial(
        make_vec,
        "Pendulum-v1",
        3,
        randomize={"g": uniform(5, 15)},
        randomize_on="reset",
        randomize_seed=1,
        max_episode_steps=4,
    )
    with make(backend="sync") as sync, make(backend="ray", vector_kwargs={"num_workers": 2, "num_cpus": 0}) as ours:
        assert type(ours) is RayVectorEnv
        assert ours.plan == "ray: 3 environments in 2 Ray actors on 1 machine."
        assert_same(trajectory(ours), trajectory(sync))
        assert ours.parameters == sync.parameters
        assert ours.spec is not None
        assert ours.spec.kwargs["vectorization_mode"] == "ray"


def test_what_the_program_defines_travels(envs: RayVectorEnv) -> None:
    class Local(Exception):  # noqa: N818
        pass

    envs.reset(seed=0)
    envs.set_attr("tag", [Local(str(i)) for i in range(NUM_ENVS)])
    assert [type(tag) for tag in envs.get_attr("tag")] == [Local] * NUM_ENVS


def test_first_ready(envs: RayVectorEnv, fifo: str) -> None:
    envs.reset(seed=0)
    envs.send(order({0: Command.HANG}))
    came = [int(envs.recv()[-1]["env_id"][0]) for _ in SECOND_ACTOR]
    assert sorted(came) == list(SECOND_ACTOR)
    release(fifo)
    assert sorted(int(envs.recv()[-1]["env_id"][0]) for _ in range(2)) == [0, 1]


def test_an_exception_is_told_with_its_traceback(envs: RayVectorEnv) -> None:
    envs.reset(seed=0)
    with pytest.raises(EnvRaisedError, match="environment 3 was told to raise") as caught:
        envs.step(order({3: Command.RAISE}))
    assert isinstance(caught.value, ZeroDivisionError)
    assert (caught.value.worker, caught.value.env_indices) == (1, (3,))
    assert "in obey" in caught.value.traceback_text
    with pytest.raises(ResetNeeded):
        envs.step(ZEROS)


def kill_one(envs: RayVectorEnv) -> Any:
    """Have the second actor killed while it has nothing to do."""
    os.kill(envs.call("process_id")[3], signal.SIGKILL)
    return envs.step(ZEROS)


@pytest.mark.parametrize(
    "die",
    [
        kill_one,
        lambda envs: envs.step(order({3: Command.EXIT})),
        lambda envs: envs.call("obey", int(Command.CRASH), indices=[3]),
    ],
    ids=["killed", "exits", "crashes"],
)
def test_a_death_is_told_and_survived(envs: RayVectorEnv, die: Callable[[RayVectorEnv], Any]) -> None:
    envs.reset(seed=0)
    pids = envs.call("process_id")
    with (
        within(SOON),
        pytest.raises(WorkerDiedError, match=r"Ray says: .*process.*reset\(\) starts it again") as caught,
    ):
        die(envs)
    assert (caught.value.worker, caught.value.env_indices) == (1, SECOND_ACTOR)
    assert f"pid {pids[3]} on " in str(caught.value)
    with pytest.raises(WorkerDiedError):
        envs.step(ZEROS)
    with within(START):
        observations, _ = envs.reset(seed=3)
    with SyncVectorEnv(counter_fns(NUM_ENVS)) as sync:
        assert_same(observations[:, 4], sync.reset(seed=3)[0][:, 4])
    assert envs.step(ZEROS)[0][:, 2].tolist() == [1] * NUM_ENVS


def test_those_lost_are_restarted_and_the_others_never_notice(lasting: RayVectorEnv) -> None:
    lasting.reset(seed=0)
    lasting.step(ZEROS)
    with within(START):
        observations, _, _, truncated, infos = lasting.step(order({3: Command.KILL}))
    assert truncated.tolist() == infos["restarted"].tolist() == [False, False, True, True, True]
    assert observations[:, 2].tolist() == [2, 2, 1, 1, 1]
    assert "worker 1 is gone" in infos["restart_cause"][4]
    assert lasting.step(ZEROS)[0][:, 2].tolist() == [3, 3, 0, 0, 0]


def test_those_stuck_are_restarted(lasting: RayVectorEnv) -> None:
    lasting.reset(seed=0)
    with within(START):
        _, _, _, truncated, infos = lasting.step(order({1: Command.HANG}))
    assert truncated.tolist() == [True, True, False, False, False]
    assert "environments 0..1 had not finished after 1 s (step_timeout, 0.5 s each)" in infos["restart_cause"][0]


def test_an_interruption_leaves_a_fleet_that_goes_on(envs: RayVectorEnv, fifo: str) -> None:
    envs.reset(seed=0)
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with within(SOON), pytest.raises(KeyboardInterrupt):
        envs.step(order({1: Command.HANG}))
    interrupt.join()
    release(fifo)
    with pytest.raises(ResetNeeded, match="interrupted"):
        envs.step(ZEROS)
    envs.reset(seed=0)
    assert envs.step(ZEROS)[0][:, 2].tolist() == [1] * NUM_ENVS


def test_an_interrupted_fleet_that_hangs_can_be_closed(fifo: str) -> None:
    envs = RayVectorEnv(trouble_fns(2, fifo=fifo), num_workers=1, num_cpus=0)
    envs.reset()
    pids = envs.call("process_id")
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        envs.step(np.array([Command.HANG, 0]))
    interrupt.join()
    with within(SOON):
        envs.close(timeout=0.2)
        envs.close()
    assert_gone(pids)
    with pytest.raises(ClosedEnvironmentError):
        envs.reset()


def test_closing_closes_the_environments_and_leaves_no_actor(tmp_path: Path) -> None:
    envs = RayVectorEnv(trouble_fns(3, close_log=str(tmp_path)), num_workers=2, num_cpus=0)
    pids = envs.call("process_id")
    os.kill(pids[0], signal.SIGKILL)
    with within(SOON):
        envs.close()
    assert_gone(pids)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]  # the first was in the actor that was killed


def test_a_fleet_that_nobody_closed_leaves_no_actor() -> None:
    envs = RayVectorEnv(trouble_fns(1), num_cpus=0)
    pids = envs.call("process_id")
    del envs
    assert_gone(pids)


def test_a_cluster_without_room_is_told_and_not_waited_for() -> None:
    with within(START), pytest.raises(WorkerStuckError, match=r"need 10 CPU \(5 each\), the cluster has 4") as caught:
        RayVectorEnv(trouble_fns(2), num_workers=2, num_cpus=5, start_timeout=0.5)
    assert "had found no place after 0.5 s (start_timeout)" in str(caught.value)
    assert "num_cpus=0.5" in str(caught.value)


def test_by_default_there_are_as_many_actors_as_there_is_room() -> None:
    with RayVectorEnv(counter_fns(3), num_cpus=2) as envs:
        assert envs.num_workers in (1, 2)  # the fleets of other tests may hold some of the 4 CPUs
        assert len(set(envs.call("describe", "I"))) == 3


def test_a_machine_that_cannot_load_an_environment_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    function = "def make():\n    import gymnasium\n    return gymnasium.make('CartPole-v1')\n"
    (tmp_path / "only_here.py").write_text(function)
    import only_here  # type: ignore[import-not-found]

    (tmp_path / "only_here.py").unlink()
    with pytest.raises(ModuleNotFoundError, match="install what it needs on every machine") as caught:
        RayVectorEnv([only_here.make], num_cpus=0)
    assert isinstance(caught.value, EnvRaisedError)


def test_actors_find_what_was_imported_after_ray_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    function = "import gymnasium\n\n\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    (tmp_path / "found_by_actors.py").write_text(function)
    with make_vec(f"{tmp_path}/found_by_actors.py:make", 2, "ray", {"num_cpus": 0}) as envs:
        assert envs.reset(seed=0)[0].shape == (2, 4)


def test_training_learns_the_same_as_on_sync(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    from envfleet.train import A2CConfig, train

    config = A2CConfig("CartPole-v1", num_envs=2, total_steps=64, rollout_steps=16, torch_threads=0)
    runs = [tmp_path / backend for backend in ("sync", "ray")]
    for run in runs:
        train(replace(config, backend=run.name), run_dir=run)  # type: ignore[arg-type]
    sync, ours = [load_file(run / "actor.safetensors") for run in runs]
    assert_same(ours, sync)
