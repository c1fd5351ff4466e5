"""Has the compiled modules take whatever comes: random arguments for every constructor and method, in random order.

``python bindings.py --seconds 60 --seed 0`` ends with 0 unless something crashes or hangs. What raises is fine. The
seed of each round is printed before it is played, so that ``--seed S --rounds 1`` plays a round again.

What takes addresses (``use_mujoco``, the kind "Foreign") or ends the process is left out: nothing can be checked there.
"""

from __future__ import annotations

import argparse
import faulthandler
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from envfleet import _core, _native, make_vec

Dice = np.random.Generator

_DTYPES = ("u1", "?", "i8", "f4", "f8", "u8", "i4", "O", "c16", "S3", "f2")
_INTEGERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    63,
    64,
    255,
    256,
    2**16,
    2**31,
    2**32 - 1,
    2**32,
    2**63 - 1,
    2**64 - 1,
    2**64,
    -1,
    -(2**63),
)
_SLOW_KINDS = ("CarRacing",)


def integer(dice: Dice) -> int:
    return _INTEGERS[int(dice.integers(len(_INTEGERS)))] if dice.random() < 0.5 else int(dice.integers(0, 5))


def array(dice: Dice) -> Any:
    """An array of any shape and type, at times one that is not contiguous, aligned, writeable or native."""
    shape = tuple(dice.integers(0, 5, int(dice.integers(0, 4))).tolist())
    dtype = np.dtype(_DTYPES[int(dice.integers(len(_DTYPES)))])
    made: Any = np.zeros(shape, dtype)
    trick = dice.integers(8)
    if trick == 0 and made.ndim:
        made = made[::2]
    elif trick == 1:
        made.flags.writeable = False
    elif trick == 2 and made.ndim:
        made = made.T
    elif trick == 3 and dtype.kind in "iuf":
        made = made.astype(dtype.newbyteorder())
    elif trick == 4 and dtype.kind != "O":
        raw = np.zeros(made.nbytes + 1, np.uint8)
        made = np.ndarray(shape, dtype, raw.data, 1)
    elif trick == 5 and made.ndim:
        made = np.lib.stride_tricks.as_strided(made[:1], strides=(2**40, *made.strides[1:]))
    return made


def thing(dice: Dice) -> Any:
    """An argument."""
    makers: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: integer(dice),
        lambda: float(dice.normal()) * 10.0 ** int(dice.integers(-300, 300)),
        lambda: float("nan"),
        lambda: "d?qnx"[: int(dice.integers(6))],
        lambda: bytes(int(dice.integers(40))),
        lambda: array(dice),
        lambda: array(dice),
        lambda: [array(dice) for _ in range(int(dice.integers(3)))],
        lambda: [thing(dice) for _ in range(int(dice.integers(3)))],
        lambda: tuple(thing(dice) for _ in range(int(dice.integers(3)))),
        lambda: {"a": thing(dice)} if dice.random() < 0.5 else {},
        lambda: bool(dice.integers(2)),
        lambda: (int, float, bool, np.float32, np.longdouble, np.str_, object)[int(dice.integers(7))],
    )
    return makers[int(dice.integers(len(makers)))]()


def poke(dice: Dice, target: Any, names: list[str], times: int) -> None:
    """Calls methods of an object with anything, or with integers where those get further."""
    for _ in range(times if names else 0):
        name = names[int(dice.integers(len(names)))]
        small = dice.random() < 0.6
        arguments = [integer(dice) if small else thing(dice) for _ in range(int(dice.integers(6)))]
        if name in ("take", "wait_done", "wait_ready", "receive"):  # they may wait, but not for long
            arguments = [int(dice.integers(4)), 0.0, 0.0, 0.0][
                : {"take": 4, "wait_ready": 4, "receive": 2}.get(name, 3)
            ]
        if name == "recall":
            arguments = [0.0]
        attempt(lambda called=name, given=arguments: getattr(target, called)(*given))  # type: ignore[misc]


def attempt(call: Callable[[], Any]) -> Any:
    """What a call gives, None if it raises."""
    try:
        return call()
    except Exception:
        return None


def methods(target: Any) -> list[str]:
    called = ["__call__"] if callable(target) else []
    return [name for name in dir(target) if not name.startswith("_")] + called


def aligned(size: int) -> Any:
    raw = np.zeros(size + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][:size]


# --- _core -------------------------------------------------------------------------------------------------


def fuzz_mailroom(dice: Dice) -> None:
    workers, rows = int(dice.integers(0, 4)), int(dice.integers(0, 6))
    memory = aligned(_core.Mailroom.bytes(workers, rows))
    if dice.random() < 0.5:
        memory[:] = np.frombuffer(dice.bytes(memory.size), np.uint8)
    rooms = [attempt(lambda made=made: _core.Mailroom(memory, workers, rows, made)) for made in (True, False)]  # type: ignore[misc]
    for room in rooms:
        if room is None:
            continue
        for worker in range(workers):
            attempt(lambda w=worker, r=room: r.assign(w, int(dice.integers(rows + 1)), int(dice.integers(rows + 2))))  # type: ignore[misc]
        poke(dice, room, methods(room), 30)
        if memory.size and dice.random() < 0.5:
            first = int(dice.integers(memory.size))
            memory[first : first + 64] = dice.integers(0, 256)
        poke(dice, room, methods(room), 20)
        attempt(lambda r=room: r.collect(np.zeros(4, np.intp), np.zeros(4, np.uint8)))  # type: ignore[misc]
        attempt(lambda r=room: r.send(dice.integers(-1, rows + 1, 3), int(dice.integers(4))))  # type: ignore[misc]


class _PlainEnv:
    def step(self, _: object) -> tuple[object, ...]:
        return np.zeros(2, np.float32), 1.0, False, False, {"a": 1}


def fuzz_rows(dice: Dice) -> None:
    rows = int(dice.integers(0, 4))
    page = np.zeros(1, np.uint8)
    column = np.zeros((rows, 2), np.float32) if dice.random() < 0.7 else array(dice)
    writer = attempt(lambda: _core.RowWriter(column, lambda *_: None, bool(dice.integers(2)), [], page))
    packer = attempt(lambda: _core.InfoPacker(np.zeros((rows, 16), np.uint8), np.zeros(rows, np.uint8)))
    progress = attempt(lambda: _core.Progress(np.zeros(1, np.uint64)))
    parts: Any = [(None, writer)] if dice.random() < 0.8 else thing(dice)
    publisher = attempt(lambda: _core.RowPublisher(parts, np.zeros(rows), packer, progress, False))
    flags = [np.zeros(rows if dice.random() < 0.9 else rows + 1, np.bool_) for _ in range(3)]
    cells = np.zeros(rows if dice.random() < 0.9 else rows + 1, np.uint64)
    digests = attempt(lambda: _core.Digests([column], np.zeros(rows), cells))
    due = np.zeros(rows, np.uint8)
    stepper = attempt(lambda: _core.RowStepper(publisher, packer, progress, array(dice), *flags, due, digests))
    slot = _core.StepSlot()
    slot.fuse(_PlainEnv(), [], None, None)
    for target in (writer, packer, progress, publisher, digests, stepper, slot):
        if target is not None:
            poke(dice, target, methods(target), 20)
            if dice.random() < 0.3:
                attempt(lambda like=target: type(like)(*[thing(dice) for _ in range(8)]))  # type: ignore[misc]
    if stepper is not None:
        for row in range(rows):
            attempt(lambda r=row: stepper.place(r, slot))  # type: ignore[misc]
        attempt(lambda: stepper.begin([0] * rows))
        attempt(lambda: stepper.run(0))
        attempt(lambda: stepper.aim(2**64 - 1, [0, 0]))
        attempt(lambda: stepper.run(integer(dice)))
        attempt(lambda: stepper.run_all([0] * rows))


def fuzz_wrappers(dice: Dice) -> None:
    slot, env = _core.StepSlot(), _PlainEnv()
    time_limit = SimpleNamespace(env=env, _elapsed_steps=integer(dice), _max_episode_steps=3)
    wrappers: list[Any] = [(time_limit, env, ()), (thing(dice), thing(dice), ("settled",))][: int(dice.integers(3))]
    limit = time_limit if dice.random() < 0.8 else thing(dice)
    attempt(lambda: slot.fuse(env, wrappers, limit, lambda _: None))
    for _ in range(5):
        attempt(lambda: slot(0))
        setattr(time_limit, ("_elapsed_steps", "_max_episode_steps", "other")[int(dice.integers(3))], thing(dice))


def fuzz_spaces(dice: Dice) -> None:
    class Quick(Discrete):
        pass

    Quick.contains = _core.DiscreteRange.method_of(Quick)  # type: ignore[method-assign]
    attempt(lambda: _core.DiscreteRange.method_of(thing(dice)))
    space = Discrete(3)
    parts: list[Any] = [space.n, space.start, space.dtype, Discrete.contains, np.int64, 0, 3]
    if dice.random() < 0.5:
        parts[int(dice.integers(len(parts)))] = thing(dice)
    vars(space)["_quick"] = attempt(lambda: _core.DiscreteRange(*parts)) if dice.random() < 0.9 else thing(dice)
    space.__class__ = Quick
    for value in (np.int64(1), np.int64(7), np.int32(1), thing(dice), thing(dice)):
        attempt(lambda x=value: space.contains(x))  # type: ignore[misc]
        if dice.random() < 0.2:
            vars(space).pop(("n", "start", "_quick")[int(dice.integers(3))], None)


def fuzz_batch(dice: Dice) -> None:
    rows = int(dice.integers(0, 4))
    columns = [np.zeros(rows, dtype) if dice.random() < 0.8 else array(dice) for dtype in ("i8", "f4", "f8", "?", "?")]
    batch = attempt(lambda: _core.Batch(*columns, np.zeros(rows, np.uint8)))
    if batch is not None:
        attempt(lambda: batch.put(np.zeros(rows, np.int64)))
        attempt(lambda: batch.put_some(np.zeros(0, np.intp), np.zeros(0, np.int64)))
        attempt(lambda: batch.put_some(dice.integers(-1, 4, 2), np.zeros(2, np.int64)))
        poke(dice, batch, methods(batch), 20)


# --- _native -----------------------------------------------------------------------------------------------

_KINDS = [kind for kind in _native.kinds() if kind not in ("Foreign", *_SLOW_KINDS)]


def fuzz_pool(dice: Dice) -> None:
    """A pool from arrays that fit, or nearly: each may be replaced by one that does not."""
    kind, rows = _KINDS[int(dice.integers(len(_KINDS)))], int(dice.integers(0, 4))

    def column(dtype: str, *shape: int) -> Any:
        if dice.random() < 0.1:
            return array(dice)
        return np.zeros((int(dice.integers(0, 4)) if dice.random() < 0.1 else rows, *shape), dtype)

    width = int(dice.integers(1, 12))
    observations = [column(("f4", "f8", "i8")[int(dice.integers(3))], width)]
    arrays = attempt(
        lambda: _native.PoolArrays(
            observations, [column("f4", width)], [], [], column("i8"), column("f8"), *(column("?") for _ in range(3)),
            column("u1"), column("?"), None, None,
        )
    )  # fmt: skip
    limits = [integer(dice) for _ in range(rows)]
    modes, threads = int(dice.integers(5)), int(dice.integers(4))
    pool = attempt(lambda: _native.make(kind, [{}], arrays, modes, limits, threads, bool(dice.integers(2)), None))
    if pool is not None:
        use_pool(dice, pool, rows)


_IDS = ("CartPole-v1", "Taxi-v4", "FrozenLake-v1", "Blackjack-v1", "MountainCarContinuous-v0", "CliffWalking-v1")


def fuzz_fleet(dice: Dice) -> None:
    """A pool that fits, in any state."""
    rows = int(dice.integers(1, 5))
    options = {"threads": int(dice.integers(1, 4)), "autoreset_mode": ("NextStep", "SameStep", "Disabled")[rows % 3]}
    envs: Any = make_vec(_IDS[int(dice.integers(len(_IDS)))], rows, "native", options)
    envs.reset(seed=0)
    helper = threading.Thread(
        target=use_pool, args=(np.random.default_rng(int(dice.integers(2**32))), envs._pool, rows)
    )
    if dice.random() < 0.3:
        helper.start()
    use_pool(dice, envs._pool, rows)
    if helper.ident is not None:
        helper.join()
    for _ in range(5):
        attempt(lambda: envs.step(envs.action_space.sample()))
    envs.close()


def use_pool(dice: Dice, pool: Any, rows: int) -> None:
    # Snapshots and attributes have a fuzz of their own.
    names = [name for name in methods(pool) if name not in ("restore", "set", "set_everywhere")]
    for _ in range(4):
        ids = dice.integers(0, rows + 1, int(dice.integers(0, rows + 2)))
        actions = dice.integers(0, 3, len(ids))
        for call in (
            lambda: pool.step(dice.integers(-1, 3, rows), True),
            lambda: pool.send(actions, ids),  # noqa: B023
            lambda: pool.send_stored(ids),  # noqa: B023
            lambda: pool.reset(dice.integers(0, 2, rows).astype(np.bool_), []),
            lambda: pool.receive(int(dice.integers(0, rows + 2)), 0.0),
            pool.step_stored,
            lambda: pool.infos_of(ids),  # noqa: B023
        ):
            attempt(call)
        poke(dice, pool, names, 15)
    attempt(lambda: pool.recall(10.0))


FUZZERS = (fuzz_mailroom, fuzz_rows, fuzz_wrappers, fuzz_spaces, fuzz_batch, fuzz_pool, fuzz_fleet)


def play(seed: int) -> None:
    dice = np.random.default_rng(seed)
    FUZZERS[int(dice.integers(len(FUZZERS)))](dice)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--rounds", type=int, default=2**31, help="at most so many")
    parser.add_argument("--quiet", action="store_true", help="do not print the seeds")
    options = parser.parse_args()
    faulthandler.enable()
    deadline, rounds = time.monotonic() + options.seconds, 0
    while rounds < options.rounds and (rounds == 0 or time.monotonic() < deadline):
        if not options.quiet:
            print(options.seed + rounds, end=" ", flush=True)
        faulthandler.dump_traceback_later(60, exit=True)
        play(options.seed + rounds)
        rounds += 1
    faulthandler.cancel_dump_traceback_later()
    print(f"\n{rounds} rounds from seed {options.seed} on: nothing crashed.")


if __name__ == "__main__":
    main()
