"""The soak itself: mishaps at random, and every transition compared with what a single environment would say."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet import AsyncVectorEnv
from envfleet.errors import WorkerError
from soaking.faulty import Fault, faulty_fns
from soaking.oracle import Lone, Transition
from soaking.vitals import Vitals, look

IN_PLACE = (Fault.RAISE, Fault.BAD_SHAPE, Fault.BAD_KEY, Fault.NAN, Fault.BAD_REWARD)
DEADLY = (Fault.EXIT, Fault.KILL, Fault.CRASH)
STUCK = (Fault.LOOP, Fault.STOP, Fault.HOLD_GIL)
STEP_TIMEOUT = 1.0
LOOK_EVERY = 1.0


@dataclass(frozen=True)
class Plan:
    """How long, how large, and how often things go wrong.

    Attributes:
        seconds: To go on for; infinite if `kills` says when to stop.
        kills: Processes to kill before the end, at least.
        hangs: Whether environments may hang too, which takes a second each.
    """

    seconds: float
    kills: int
    num_envs: int
    num_workers: int
    start_method: str
    seed: int
    hangs: bool = True


@dataclass
class Findings:
    """What a soak did and saw."""

    transitions: int = 0
    restarts: int = 0
    rebuilt: int = 0
    wrong: list[str] = field(default_factory=list)
    mishaps: Counter[str] = field(default_factory=Counter)
    vitals: list[Vitals] = field(default_factory=list)


class Trial:
    """One fleet and its oracle."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._chance, self.findings = plan, random.Random(plan.seed), Findings()
        fns = faulty_fns(plan.num_envs)
        self._lone = [Lone(env_fn, AutoresetMode.NEXT_STEP) for env_fn in fns]
        self._hits: Counter[int] = Counter()  # an environment's losses that it has not told of
        self._told_last: set[int] = set()
        self._actions = np.zeros(plan.num_envs, np.int64)
        self._envs = AsyncVectorEnv(
            fns,
            context=plan.start_method,
            num_workers=plan.num_workers,
            batch_size=max(1, plan.num_envs // 2),
            on_failure="restart",
            max_restarts=None,
            step_timeout=STEP_TIMEOUT,
            check_nan=True,
        )

    def run(self) -> Findings:
        """Go on until the plan is fulfilled, or something is wrong."""
        found, begin = self.findings, time.monotonic()
        with self._envs:
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
        return seconds >= self._plan.seconds and self.findings.mishaps["kill from outside"] >= self._plan.kills

    def _round(self) -> None:
        choice = self._chance.random()
        if choice < 0.02:
            self._reset(seed=self._chance.choice([None, self._chance.randrange(10**6)]))
        elif choice < 0.04:
            self._call()
        if self._chance.random() < 0.6:
            self._take_turns()
        else:
            self._take_tickets()

    # -- mishaps --------------------------------------------------------------------------------------

    def _kill_some(self) -> None:
        if self._chance.random() < (0.5 if self._plan.kills else 0.1):
            worker = self._chance.randrange(self._plan.num_workers)
            if self._envs.processes[worker].is_alive():
                self._hits.update(self._share(worker))
                os.kill(self._envs.processes[worker].pid or 0, signal.SIGKILL)
                self.findings.mishaps["kill from outside"] += 1

    def _draw_actions(self) -> None:
        self._actions[:] = [self._chance.randrange(10) for _ in self._actions]
        if self._chance.random() < 0.1:
            victim, kinds = self._chance.randrange(len(self._actions)), (*IN_PLACE, *DEADLY)
            fault = self._chance.choice(STUCK if self._plan.hangs and self._chance.random() < 0.02 else kinds)
            if self._lone[victim].finished:
                return  # its next step is a reset and takes no action
            self._actions[victim] = fault
            self._hits.update([victim] if fault in IN_PLACE else self._share(self._worker_of(victim)))
            self.findings.mishaps[fault.name.lower()] += 1

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
        self._hits.clear()

    def _take_turns(self) -> None:
        for _ in range(self._chance.randrange(1, 6)):
            self._draw_actions()
            self._envs.step_async(self._actions)
            self._kill_some()
            self._compare(self._envs.step_wait(), range(self._plan.num_envs))

    def _take_tickets(self) -> None:
        self._draw_actions()
        self._envs.send(self._actions)
        out = self._plan.num_envs
        for _ in range(self._chance.randrange(2, 12)):
            self._kill_some()
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

    def _reset(self, seed: int | None) -> None:
        self.findings.mishaps["reset"] += 1
        observations, infos = self._envs.reset(seed=seed)
        for env, lone in enumerate(self._lone):
            if self._tells(infos, env, env):
                lone.restart_silently()
            expected, _ = lone.reset(None if seed is None else seed + env)
            self._check(_same(_row(observations, env), expected), env, "reset")

    def _call(self) -> None:
        self.findings.mishaps["call"] += 1
        try:
            found = self._envs.get_attr("index")
            self._check(found == tuple(range(self._plan.num_envs)), -1, f"call gave {found}")
        except WorkerError as error:  # a worker that was killed before
            self._check(any(self._hits[env] for env in error.env_indices), -1, f"call: {error}")

    # -- comparing ------------------------------------------------------------------------------------

    def _compare(self, result: Any, ids: Any) -> None:
        observations, rewards, terminated, truncated, infos = result
        for place, env in enumerate(ids):
            found, lone = _row(observations, place), self._lone[env]
            was_told, tells = env in self._told_last, self._tells(infos, place, env)
            expected: Transition = lone.restart() if tells else lone.step(self._actions[env])
            (self._told_last.add if tells else self._told_last.discard)(env)
            while was_told and not tells and not _same(found, expected[0]) and self._hits[env] > 0:
                self._hits[env] -= 1  # lost again before it had told
                expected = (lone.restart_once_more(), *expected[1:])
            outcome = (rewards[place], terminated[place], truncated[place])
            same = _same(found, expected[0]) and outcome == expected[1:4]
            self._check(same, env, f"expected {expected}, got {found}, {outcome}")
            self.findings.transitions += 1

    def _tells(self, infos: dict[str, Any], place: int, env: int) -> bool:
        if not ("restarted" in infos and infos["restarted"][place]):
            return False
        self._check(self._hits[env] > 0, env, f"restarted for no reason: {infos['restart_cause'][place]}")
        self._hits[env] -= 1
        self.findings.restarts += 1
        return True

    def _check(self, holds: bool, env: int, what: str) -> None:
        if not holds:
            self.findings.wrong.append(f"environment {env}, transition {self.findings.transitions}: {what}")


def _row(observations: dict[str, Any], place: int) -> dict[str, Any]:
    return {key: values[place] for key, values in observations.items()}


def _same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(np.array_equal(found[key], expected[key]) for key in expected)
