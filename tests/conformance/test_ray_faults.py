"""Lost and stuck actors, case by case, over a stand-in for Ray: see small_ray.py."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_ray
from process_fleets import NUM_ENVS, SOON, within

from envfleet import FleetError, RayVectorEnv
from envfleet.errors import ClosedEnvironmentError, WorkerDiedError, WorkerStuckError
from envfleet.testing.envs import (
    BrokenConstructorEnv,
    Command,
    CounterConfig,
    CounterEnv,
    EnvFn,
    LotteryEnv,
    trouble_fns,
    wait_for_writer,
)
from envfleet.testing.timeouts import make_fifo

pytestmark = pytest.mark.usefixtures("stand_in_for_ray", "nothing_left_behind")

ZEROS = np.zeros(NUM_ENVS, np.int64)
SECOND_ACTOR = (2, 3, 4)
VICTIM = 3
KILL = {"command": int(Command.KILL)}
RESTART: dict[str, Any] = {"on_failure": "restart"}


@contextmanager
def fleet(env_fns: list[EnvFn] | None = None, num_workers: int = 2, **kwargs: Any) -> Iterator[RayVectorEnv]:
    """Make a fleet (default: environments that obey commands) and close it whatever happens."""
    envs = RayVectorEnv(trouble_fns(NUM_ENVS) if env_fns is None else env_fns, num_workers=num_workers, **kwargs)
    try:
        yield envs
    finally:
        with within(SOON):
            envs.close()


def order(commands: dict[int, int]) -> Any:
    """Action 0 for all but those with commands."""
    actions = ZEROS.copy()
    for env, command in commands.items():
        actions[env] = command
    return actions


def receive_all(envs: RayVectorEnv) -> dict[int, Any]:
    """What `recv` gives of all environments, one at a time."""
    results = [envs.recv() for _ in range(NUM_ENVS)]
    return {int(result[-1]["env_id"][0]): result for result in results}


def options(victim: int) -> list[Any]:
    """Reset options that have one environment kill its actor."""
    return [KILL if env == victim else None for env in range(NUM_ENVS)]


DEATHS: dict[str, Callable[[RayVectorEnv], Any]] = {
    "step": lambda envs: envs.step(order({VICTIM: Command.KILL})),
    "reset": lambda envs: envs.reset(options=options(VICTIM)),
    "call": lambda envs: envs.call("obey", int(Command.KILL), indices=[VICTIM]),
    "send": lambda envs: (envs.send(order({VICTIM: Command.KILL})), receive_all(envs)),
    "async_reset": lambda envs: (envs.async_reset(options=options(VICTIM)), receive_all(envs)),
    "idle": lambda envs: (os.kill(envs.call("process_id")[VICTIM], signal.SIGKILL), envs.step(ZEROS)),
}


@pytest.mark.parametrize("where", DEATHS)
def test_a_death_is_told_until_reset_revives_the_fleet(where: str) -> None:
    with fleet(batch_size=1) as envs:
        envs.reset(seed=0)
        with within(SOON), pytest.raises(WorkerDiedError, match=r"Worker 1 .*environments 2\.\.4") as caught:
            DEATHS[where](envs)
        assert (caught.value.worker, caught.value.env_indices) == (1, SECOND_ACTOR)
        with pytest.raises(WorkerDiedError):
            envs.step(ZEROS)
        with pytest.raises(WorkerDiedError):
            envs.call("describe", "you")
        envs.reset(seed=0)
        assert envs.step(ZEROS)[0][:, 2].tolist() == [1] * NUM_ENVS


def test_a_death_is_told_while_another_actor_hangs(tmp_path: Path) -> None:
    with fleet(trouble_fns(NUM_ENVS, fifo=make_fifo(tmp_path))) as envs:
        envs.reset(seed=0)
        with within(SOON), pytest.raises(WorkerDiedError, match="Worker 1 "):
            envs.step(order({0: Command.HANG, VICTIM: Command.KILL}))
        envs.close(terminate=True)


def test_all_may_die_at_once() -> None:
    with fleet() as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDiedError):
            envs.step(order({0: Command.KILL, VICTIM: Command.EXIT}))
        envs.reset(seed=0)
        assert envs.step(ZEROS)[0][:, 2].tolist() == [1] * NUM_ENVS


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_lost_environments_are_restarted_in_every_mode(mode: str) -> None:
    with fleet(autoreset_mode=mode, **RESTART) as envs:
        envs.reset(seed=0)
        last, *_ = envs.step(ZEROS)
        observations, rewards, terminated, truncated, infos = envs.step(order({VICTIM: Command.KILL}))
        lost = np.isin(np.arange(NUM_ENVS), SECOND_ACTOR)
        assert truncated.tolist() == infos["restarted"].tolist() == lost.tolist()
        assert not terminated.any()
        assert rewards[lost].tolist() == [0.0] * 3
        shown = infos["final_obs"][lost] if mode == "SameStep" else observations[lost]
        np.testing.assert_array_equal(np.stack(list(shown)), last[lost])
        assert observations[~lost, 2].tolist() == [2, 2]


def test_a_lost_reset_is_asked_for_again_with_its_options() -> None:
    with fleet(**RESTART, batch_size=1) as envs:
        envs.reset(seed=0)
        os.kill(envs.call("process_id")[VICTIM], signal.SIGKILL)
        observations, infos = envs.reset(seed=5, options={"marked": True})
        assert infos["restarted"].tolist() == [False, False, True, True, True]
        assert observations[:, 2].tolist() == [0] * NUM_ENVS
        assert all(given[-1]["marked"] for given in envs.get_attr("options"))
        assert [seeds[-1] for seeds in envs.get_attr("seeds")] == [5, 6, 7, 8, 9]


def test_lost_tickets_are_sent_again_once() -> None:
    with fleet(**RESTART, batch_size=1) as envs:
        envs.reset(seed=0)
        envs.send(order({VICTIM: Command.KILL}))
        results = receive_all(envs)
        assert sorted(results) == list(range(NUM_ENVS))
        # Those of the lost actor whose results had come were told of it by the next step, the others by this one.
        assert results[VICTIM][3].tolist() == results[4][3].tolist() == [True]
        assert [bool(results[env][3][0]) for env in (0, 1)] == [False, False]
        assert envs.step(ZEROS)[0].shape == (NUM_ENVS, 5)


def test_a_lost_call_is_told_and_not_repeated() -> None:
    with fleet(**RESTART) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDiedError, match="not asked again"):
            envs.call("obey", int(Command.KILL), indices=[VICTIM])
        assert envs.call("describe", "still")[VICTIM] == "still 3!"


def test_a_fleet_is_not_restarted_for_ever() -> None:
    with fleet(**RESTART, max_restarts=1) as envs:
        envs.reset(seed=0)
        envs.step(order({VICTIM: Command.KILL}))
        envs.step(ZEROS)
        with pytest.raises(WorkerDiedError, match="all that max_restarts allows"):
            envs.step(order({VICTIM: Command.KILL}))


def test_restarts_are_seeded_and_repeatable() -> None:
    draws = []
    for _ in range(2):
        with fleet(**RESTART) as envs:
            envs.reset(seed=0)
            for _ in range(2):
                envs.step(order({VICTIM: Command.KILL}))
                draws.append(envs.step(ZEROS)[0][:, 4].tolist())
    first, second, again, and_again = draws
    assert (first, second) == (again, and_again)
    assert not set(first[2:]) & set(second[2:])


class MortalEnv(CounterEnv):
    """Ends its process some seconds after its first step began; the one with the number 0 goes on for ever."""

    def step(self, action: np.int64) -> Any:
        """Wait, then die."""
        time.sleep(3600 if self.index == 0 else DEATH_EVERY * self.index)
        os.kill(os.getpid(), signal.SIGKILL)


DEATH_EVERY, TIMEOUT, NUM_DEATHS = 0.4, 1.0, 8


@pytest.mark.parametrize("tickets", [False, True], ids=["step_wait", "recv"])
def test_replaced_actors_do_not_put_off_the_end_of_a_wait(tickets: bool) -> None:
    fns: list[EnvFn] = [partial(MortalEnv, CounterConfig(index=index)) for index in range(NUM_DEATHS + 1)]
    with fleet(fns, NUM_DEATHS + 1, **RESTART) as envs:
        envs.reset(seed=0)
        begin, wait = (envs.send, envs.recv) if tickets else (envs.step_async, envs.step_wait)
        begin(np.zeros(NUM_DEATHS + 1, np.int64))
        # As long as somebody dies, and not much longer than it was told to wait.
        with within(NUM_DEATHS * DEATH_EVERY), pytest.raises(multiprocessing.TimeoutError):
            wait(timeout=TIMEOUT)
        envs.close(terminate=True)


def hang_in_step(envs: RayVectorEnv) -> None:
    """Have one environment hang in a step of all."""
    envs.step(order({VICTIM: Command.HANG}))


def hang_after_send(envs: RayVectorEnv) -> None:
    """The same while others come and go, which must not keep the stuck one from being noticed."""
    envs.send(order({VICTIM: Command.HANG}))
    while True:
        ids = envs.recv()[-1]["env_id"]
        envs.send(np.zeros(len(ids), np.int64), ids)


@pytest.mark.parametrize(
    ("hang", "who"), [(hang_in_step, r"environments 2\.\.4"), (hang_after_send, "environment 3")], ids=["step", "send"]
)
def test_a_stuck_actor_is_ended_and_told(tmp_path: Path, hang: Callable[[RayVectorEnv], None], who: str) -> None:
    with fleet(trouble_fns(NUM_ENVS, fifo=make_fifo(tmp_path)), step_timeout=0.2, batch_size=1) as envs:
        envs.reset(seed=0)
        with within(SOON), pytest.raises(WorkerStuckError, match=f"was ended: {who} had not finished after"):
            hang(envs)
        envs.reset(seed=0)
        assert envs.step(ZEROS)[0][:, 2].tolist() == [1] * NUM_ENVS


@pytest.mark.parametrize("command", [Command.KILL, Command.EXIT])
def test_an_actor_that_dies_while_it_makes_environments_is_told(command: Command) -> None:
    fns: list[EnvFn] = [*trouble_fns(1), partial(BrokenConstructorEnv, CounterConfig(index=1), command)]
    with within(SOON), pytest.raises(WorkerDiedError, match="It was still starting") as caught:
        RayVectorEnv(fns, num_workers=2)
    assert caught.value.env_indices == (1,)


def made_late(fifo: str) -> CounterEnv:
    """An environment that can be made once somebody opens the fifo."""
    wait_for_writer(fifo)
    return CounterEnv()


def test_what_cannot_be_made_in_time_is_told(tmp_path: Path) -> None:
    slow = partial(made_late, make_fifo(tmp_path))
    with pytest.raises(WorkerStuckError, match="its environments were still being made"):
        RayVectorEnv([slow], start_timeout=0.2)


def test_global_generators_differ_between_actors_and_between_fleets() -> None:
    lots = []
    for _ in range(2):
        with fleet([partial(LotteryEnv, CounterConfig(index=i)) for i in range(2)]) as envs:
            lots.append(envs.get_attr("lots"))
    assert len({number for fleet_lots in lots for pair in fleet_lots for number in pair}) == 8


def test_a_forked_copy_refuses_and_does_no_harm() -> None:
    with fleet() as envs:
        envs.reset(seed=0)
        pid = os.fork()
        if pid == 0:
            try:
                envs.step(ZEROS)
            except FleetError:
                envs.close()
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert envs.step(ZEROS)[0][:, 2].tolist() == [1] * NUM_ENVS


def test_after_ray_was_shut_down_a_fleet_says_so_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    with fleet() as envs:
        envs.reset(seed=0)
        with monkeypatch.context() as patch:
            patch.setattr(small_ray, "is_initialized", lambda: False)
            with pytest.raises(FleetError, match="Ray was shut down"):
                envs.step(ZEROS)
    with pytest.raises(ClosedEnvironmentError):
        envs.step(ZEROS)


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "envfleet\[ray\]"'):
        RayVectorEnv(trouble_fns(1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_workers": 0}, "`num_workers` must be a positive integer"),
        ({"num_cpus": -1}, "'num_cpus' must be a number, zero or more, got -1"),
        ({"resources": {"simulator": "many"}}, "'simulator' must be a number"),
        ({"resources": {"GPU": 1}}, "`resources` are those you gave names to"),
        ({"on_failure": "ignore"}, "`on_failure` must be"),
        ({"batch_size": 9}, "`first_ready` must be between 1"),
    ],
)
def test_bad_arguments_are_refused_before_anything_starts(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RayVectorEnv(trouble_fns(2), **arguments)
