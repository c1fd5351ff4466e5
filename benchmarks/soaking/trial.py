"""The soak itself: mishaps at random, and every transition compared with what a single environment would say."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet import AsyncVectorEnv
from envfleet.errors import EnvRaisedError, WorkerError
from soaking.excuses import Excuses
from soaking.faulty import Fault, faulty_fns, recovering_fns
from soaking.oracle import Lone, Transition
from soaking.vitals import Vitals, look

IN_PLACE = (Fault.RAISE, Fault.BAD_SHAPE, Fault.BAD_DTYPE, Fault.BAD_KEY, Fault.NAN, Fault.BAD_REWARD)
DEADLY = (Fault.EXIT, Fault.KILL, Fault.CRASH)
STUCK = (Fault.LOOP, Fault.STOP, Fault.HOLD_GIL)
STEP_TIMEOUT = 1.0
# Environments that fork: a child that ends by itself, and one that goes on as its parent, which the fleet has to end.
FORKS = (Fault.FORK, Fault.FORK_AND_RETURN)
# Seconds that making an environment may take.
START_TIMEOUT = 20.0
# Seconds that a worker may be stopped before it is continued: short against the time that a step may take.
LONGEST_PAUSE = 0.05
LOOK_EVERY = 1.0
# What is done and is no fault.
ORDINARY = ("reset", "call")
# Seconds: from what a step takes to what a fleet needs to be done and asleep.
DELAYS = (0.0, 0.0003, 0.003)


@dataclass(frozen=True)
class Plan:
    """How long, how large, and how often things go wrong.

    Attributes:
        seconds: To go on for; infinite if `kills` says when to stop.
        kills: Processes to kill before the end, at least.
        hangs: Whether environments may hang too, which takes a second each.
        faults: Of all kinds, before the end, at least.
        threads: Of the caller that work at something else all the while.
        step_timeout: Of the fleet; without one nothing may hang.
    """

    seconds: float
    kills: int
    num_envs: int
    num_workers: int
    start_method: str
    seed: int
    hangs: bool = True
    faults: int = 0
    threads: int = 0
    step_timeout: float | None = STEP_TIMEOUT


@dataclass
class Findings:
    """What a soak did and saw."""

    transitions: int = 0
    restarts: int = 0
    rebuilt: int = 0
    wrong: list[str] = field(default_factory=list)
    mishaps: Counter[str] = field(default_factory=Counter)
    vitals: list[Vitals] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many things went wrong on purpose."""
        return sum(count for name, count in self.mishaps.items() if name not in ORDINARY)


class Trial:
    """One fleet and its oracle."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._chance, self.findings = plan, random.Random(plan.seed), Findings()
        self._marks = tempfile.TemporaryDirectory(prefix="envfleet-soak-")
        fns = recovering_fns(plan.num_envs, self._marks.name)
        self._lone = [Lone(env_fn, AutoresetMode.NEXT_STEP) for env_fn in faulty_fns(plan.num_envs)]
        self._excuses = Excuses([self._share(worker) for worker in range(plan.num_workers)])
        self._actions = np.zeros(plan.num_envs, np.int64)
        self._envs = AsyncVectorEnv(
            fns,
            context=plan.start_method,
            num_workers=plan.num_workers,
            batch_size=max(1, plan.num_envs // 2),
            on_failure="restart",
            max_restarts=None,
            step_timeout=plan.step_timeout,
            start_timeout=START_TIMEOUT,
            check_nan=True,
        )

    def run(self) -> Findings:
        """Go on until the plan is fulfilled, or something is wrong."""
        found, begin = self.findings, time.monotonic()
        with self._marks, busy_threads(self._plan.threads), self._envs:
            self._reset(seed=self._plan.seed)
            self._settle()
            found.vitals.append(look(0.0))
            while not found.wrong and not self._is_done(time.monotonic() - begin):
                self._round()
                now = time.monotonic() - begin
                if now - found.vitals[-1].seconds > LOOK_EVERY:
                    self._settle()
                    found.vitals.append(look(now))
            self._settle()
            found.vitals.append(look(time.monotonic() - begin))
            found.rebuilt = int(self._envs.rebuilt.sum())
        return found

    def _is_done(self, seconds: float) -> bool:
        plan, found = self._plan, self.findings
        enough = found.mishaps["kill from outside"] >= plan.kills and found.faults >= plan.faults
        return seconds >= plan.seconds and enough

    def _round(self) -> None:
        choice = self._chance.random()
        if choice < 0.02:
            self._reset(seed=self._chance.choice([None, self._chance.randrange(10**6)]))
        elif choice < 0.04:
            self._call()
        elif choice < 0.06:
            self._fail_in_a_call()
        elif choice < 0.065:
            self._return_what_cannot_travel()
        elif choice < 0.11:
            self._fail_in_a_reset()
        elif choice < 0.15:
            self._fail_when_made_again()
        if self._chance.random() < 0.6:
            self._take_turns()
        else:
            self._take_tickets()

    # -- mishaps --------------------------------------------------------------------------------------

    def _strike(self) -> None:
        """Kill a worker from outside, or stop it, perhaps: at once, at work or when it is done."""
        if self._chance.random() >= (0.5 if self._plan.kills or self._plan.faults else 0.1):
            return
        time.sleep(self._chance.choice(DELAYS) * self._chance.random())
        worker = self._chance.randrange(self._plan.num_workers)
        if self._chance.random() < 0.2:
            self._pause(worker)
        elif self._envs.processes[worker].is_alive():
            stops = self._plan.hangs and self._chance.random() < 0.02
            self._excuses.struck(worker)
            os.kill(self._envs.processes[worker].pid or 0, signal.SIGSTOP if stops else signal.SIGKILL)
            self.findings.mishaps["stop from outside" if stops else "kill from outside"] += 1

    def _pause(self, worker: int) -> None:
        """Stop a worker and continue it: nobody may be lost for that."""
        process = self._envs.processes[worker]
        if process.is_alive() and process.pid:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(LONGEST_PAUSE * self._chance.random())
            os.kill(process.pid, signal.SIGCONT)
            self.findings.mishaps["stop and continue"] += 1

    def _draw_actions(self) -> None:
        self._actions[:] = [self._chance.randrange(10) for _ in self._actions]
        if self._chance.random() < 0.1:
            victim, kinds = self._chance.randrange(len(self._actions)), (*IN_PLACE, *DEADLY)
            fault = self._chance.choice(STUCK if self._plan.hangs and self._chance.random() < 0.02 else kinds)
            if self._lone[victim].finished:
                return  # its next step is a reset and takes no action
            self._actions[victim] = fault
            self._note(fault, victim, "step")
        elif self._chance.random() < 0.1:
            victim, fault = self._chance.randrange(len(self._actions)), self._chance.choice(FORKS)
            if not self._lone[victim].finished:
                self._actions[victim] = fault
                self._note(fault, victim, "step")

    def _fail_in_a_reset(self) -> None:
        """Have an environment fail in its reset, once: the row is that of the reset all the same."""
        self._settle()
        hangs = self._plan.hangs and self._chance.random() < 0.05
        kinds = [kind for kind in (*IN_PLACE, *DEADLY) if kind is not Fault.BAD_REWARD]  # a reset has none
        victim, fault = self._chance.randrange(len(self._actions)), self._chance.choice(STUCK if hangs else kinds)
        mark = Path(self._marks.name, "reset")
        mark.touch()
        options: list[Any] = [None] * len(self._actions)
        options[victim] = {"fault": int(fault), "mark": str(mark)}
        self._note(fault, victim, "reset")
        self._reset(self._chance.choice([None, self._chance.randrange(10**6)]), options)
        self._check(not mark.exists(), victim, "was not told to fail in its reset")

    def _fail_when_made_again(self) -> None:
        """Have an environment fail, and its constructor too when it is made again, once: in place or elsewhere."""
        self._settle()
        victim = self._chance.randrange(len(self._actions))
        if self._lone[victim].finished:
            return
        in_place = self._chance.random() < 0.5
        kinds = (*DEADLY, Fault.RAISE) if in_place else DEADLY  # raised elsewhere, it is an error
        hangs = self._plan.hangs and self._chance.random() < 0.02
        fault = Fault.LOOP if hangs else self._chance.choice(kinds)
        order = Path(self._marks.name, f"made-{victim}")
        order.write_text(str(int(fault)))
        self._actions[:] = 0
        self._actions[victim] = first = Fault.RAISE if in_place else Fault.KILL
        self._note(first, victim, "step")
        self._note(fault, victim, "creation")
        self._compare(self._envs.step(self._actions), range(self._plan.num_envs))
        self._check(not order.exists(), victim, "was not made again")
        self._settle()

    def _fail_in_a_call(self) -> None:
        """Have an environment fail where nothing is asked twice: the call raises, whatever became of the process."""
        victim, fault = self._chance.randrange(len(self._actions)), self._chance.choice((Fault.RAISE, *DEADLY))
        self._excuses.touched(victim)
        self._note(fault, victim, "call")
        try:
            self._envs.call("suffer", int(fault), indices=[victim])
            self._check(False, victim, f"a call told to {fault.name} returned")
        except WorkerError as error:
            self._check(victim in error.env_indices, victim, f"call: {error}")

    def _return_what_cannot_travel(self) -> None:
        """Have an environment return an info that no pickle can carry: told even by a fleet that restarts."""
        self._settle()
        self._actions[:] = 0
        victim = self._chance.randrange(len(self._actions))
        if self._lone[victim].finished:
            return
        self._actions[victim] = Fault.UNPICKLABLE
        self._note(Fault.UNPICKLABLE, victim, "step")
        try:
            self._envs.step(self._actions)
            self._check(False, victim, "an info that cannot be pickled arrived")
        except EnvRaisedError as error:
            self._check(error.env_indices == (victim,), victim, f"step: {error}")
        self._reset(seed=self._chance.randrange(10**6))

    def _note(self, fault: Fault, victim: int, where: str) -> None:
        self.findings.mishaps[f"{fault.name.lower()} in {where}"] += 1
        if fault in (*DEADLY, *STUCK):
            self._excuses.will_die(victim, self._worker_of(victim))
        elif fault in IN_PLACE and where != "call":
            self._excuses.will_fail(victim)

    def _share(self, worker: int) -> range:
        edges = [self._plan.num_envs * i // self._plan.num_workers for i in range(self._plan.num_workers + 1)]
        return range(edges[worker], edges[worker + 1])

    def _worker_of(self, env: int) -> int:
        return next(worker for worker in range(self._plan.num_workers) if env in self._share(worker))

    # -- what is done ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Leave the fleet in peace until all workers are there again and everything was told."""
        for _ in range(2):
            self._actions[:] = 0
            self._compare(self._envs.step(self._actions), range(self._plan.num_envs))
        self._excuses.clear()

    def _take_turns(self) -> None:
        for _ in range(self._chance.randrange(1, 6)):
            self._draw_actions()
            self._envs.step_async(self._actions)
            self._strike()
            self._compare(self._envs.step_wait(), range(self._plan.num_envs))
            self._excuses.end_phase()

    def _take_tickets(self) -> None:
        self._draw_actions()
        self._envs.send(self._actions)
        out = self._plan.num_envs
        for _ in range(self._chance.randrange(2, 12)):
            self._strike()
            result = self._envs.recv()
            ids = result[4]["env_id"].tolist()
            self._compare(result, ids)
            self._actions[ids] = 0
            self._envs.send(self._actions[ids], ids)
        while out:
            result = self._envs.recv()
            ids = result[4]["env_id"].tolist()
            out -= len(ids)
            self._compare(result, ids)
        self._excuses.end_phase()

    def _reset(self, seed: int | None, options: Sequence[Any] | None = None) -> None:
        self.findings.mishaps["reset"] += 1
        self._envs.reset_async(seed=seed, options=options)
        if options is None:
            self._strike()
        observations, infos = self._envs.reset_wait()
        for env, lone in enumerate(self._lone):
            found, tells = _row(observations, env), self._tells(infos, env, env)
            if tells:
                lone.restart_silently()
            expected, _ = lone.reset(None if seed is None else seed + env)
            while tells and not _same(found, expected) and self._excuses.lost_before_it_told(env):
                expected = lone.restart_once_more()
            self._excuses.showed(env, tells=tells, began=True)
            self._check(_same(found, expected), env, f"reset: expected {expected}, got {found}")
        self._excuses.end_phase()

    def _call(self) -> None:
        self.findings.mishaps["call"] += 1
        try:
            found = self._envs.get_attr("index")
            self._check(found == tuple(range(self._plan.num_envs)), -1, f"call gave {found}")
        except WorkerError as error:  # a worker that was killed before
            self._check(any(map(self._excuses.was_lost, error.env_indices)), -1, f"call: {error}")

    # -- comparing ------------------------------------------------------------------------------------

    def _compare(self, result: Any, ids: Any) -> None:
        observations, rewards, terminated, truncated, infos = result
        for place, env in enumerate(ids):
            found, lone = _row(observations, place), self._lone[env]
            began, tells = lone.finished, self._tells(infos, place, env)
            expected: Transition = lone.restart() if tells else lone.step(self._actions[env])
            while began and not tells and not _same(found, expected[0]) and self._excuses.lost_before_it_told(env):
                expected = (lone.restart_once_more(), *expected[1:])
            self._excuses.showed(env, tells=tells, began=began)
            outcome = (rewards[place], terminated[place], truncated[place])
            same = _same(found, expected[0]) and outcome == expected[1:4]
            self._check(same, env, f"expected {expected}, got {found}, {outcome}")
            self.findings.transitions += 1

    def _tells(self, infos: dict[str, Any], place: int, env: int) -> bool:
        if not ("restarted" in infos and infos["restarted"][place]):
            return False
        excused = self._excuses.accepts(env, self._worker_of(env))
        self._check(excused, env, f"restarted for no reason: {infos['restart_cause'][place]}")
        self.findings.restarts += 1
        return True

    def _check(self, holds: bool, env: int, what: str) -> None:
        if not holds:
            self.findings.wrong.append(f"environment {env}, transition {self.findings.transitions}: {what}")


@contextmanager
def busy_threads(count: int) -> Iterator[None]:
    """Threads of the caller that work at something else: what a process is forked from must not matter."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.001):
            sorted(map(hash, range(1000)), reverse=True)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _row(observations: dict[str, Any], place: int) -> dict[str, Any]:
    return {key: values[place] for key, values in observations.items()}


def _same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(np.array_equal(found[key], expected[key]) for key in expected)
