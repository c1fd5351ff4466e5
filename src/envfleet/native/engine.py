"""Compiled environments on threads: the engine over the C++ pool, and the orders that it carries out."""

from __future__ import annotations

import multiprocessing
import reprlib
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar, final

import numpy as np
from gymnasium.envs.registration import EnvSpec

from envfleet import _core, _native
from envfleet.errors import EnvRaisedError
from envfleet.native.buffers import NativeBlock
from envfleet.native.catalogue import NO_LIMIT, Companions
from envfleet.native.planned_episodes import EpisodePlans
from envfleet.native.twin import Twin
from envfleet.native.view import NativeEnvView
from envfleet.vector.engine import CallOrder, Order, Report, ResetOrder, Rows, SetAttrOrder, StepOrder, StepResult
from envfleet.vector.failures import Failure
from envfleet.vector.runtime import generator_in, generator_state

_OF_A_VIEW = ("has_wrapper_attr", "get_wrapper_attr")
"""Methods of Gymnasium's environments that can be called with arguments."""


class NativeEnvError(RuntimeError):
    """A compiled environment threw an exception."""


@final
class NativeEngine:
    """All environments of a native fleet, in the caller's process."""

    is_busy = False

    def __init__(self, pool: _native.Pool, block: NativeBlock, shard: NativeShard, exclusive: _core.Exclusive) -> None:
        self.block, self.exclusive = block, exclusive
        pool.share(exclusive)
        self.quick = NativeQuickCalls(pool, exclusive)
        self._pool, self._shard = pool, shard
        self._xla: _native.XlaFleet | None = None
        self._order: Order = StepOrder()

    def for_xla(self) -> _native.XlaFleet:
        """The environments as compiled functions of JAX see them."""
        if self._xla is None:
            self._xla = _native.XlaFleet(self._pool)
        return self._xla

    def begin(self, order: Order) -> None:
        """Keeps the order for ``finish``."""
        self._order = order

    def finish(self, timeout: float | None) -> Sequence[Report | None]:  # noqa: ARG002  nothing to wait for
        """Carries it out."""
        return [self._shard.execute(self._order)]

    def prepare_steps(self, rows: Rows, loose_actions: Sequence[Sequence[Any]]) -> Callable[[], None]:  # noqa: ARG002
        """Has threads step the given environments."""
        return partial(self._shard.send, rows)

    def prepare_resets(self, rows: Rows, order: ResetOrder) -> Callable[[], None]:
        """Has threads reset the given environments."""
        return partial(self._shard.send_resets, rows, order)

    def receive(self, count: int, timeout: float | None) -> tuple[Rows, Sequence[Report | None]]:
        """The first ``count`` that are done; the caller steps some itself meanwhile."""
        return self._shard.receive(count, timeout)

    def discard(self) -> None:
        """Waits for those at work and forgets them."""
        self._shard.recall(None)

    def recover(self) -> None:
        """Nothing dies here but the caller itself."""
        self._shard.recall(None)

    def close(self, timeout: float, terminate: bool) -> None:
        """Waits for those at work, and closes what draws."""
        patience = 0.0 if terminate else timeout
        if self._xla is not None and not self._xla.close(patience):
            warnings.warn(
                f"A compiled function of JAX did not come back from a step of this fleet within {patience:g} s. It "
                "goes on, and keeps the memory that it uses.",
                RuntimeWarning,
                stacklevel=3,
            )
            return
        try:
            stuck = self._shard.recall(patience)
        finally:
            self._shard.close()
        if stuck:
            warnings.warn(
                f"Environments {stuck} did not return from their steps or resets within {patience:g} s. Threads cannot "
                "be ended: theirs go on, and keep the memory that they use until the program ends.",
                RuntimeWarning,
                stacklevel=3,
            )

    def interrupt(self) -> None:
        """Nothing can: the other thread is inside an environment."""

    def worker_of(self, env_index: int) -> None:  # noqa: ARG002
        """No worker: the caller's own process."""
        return


@final
class NativeQuickCalls:
    """Single calls of compiled code, which itself looks whether the fleet is ready."""

    def __init__(self, pool: _native.Pool, exclusive: _core.Exclusive) -> None:
        self._pool, self._exclusive = pool, exclusive
        self.step = pool.step
        self._error: BaseException | Failure | None = None

    @property
    def ready(self) -> bool:
        """Whether the last call went well."""
        return self._pool.ready

    @ready.setter
    def ready(self, value: bool) -> None:
        self._pool.ready = value

    def send(self, actions: Any, env_ids: Any) -> bool:
        """Has threads step the given environments, if all is plain."""
        try:
            return self._pool.send(actions, env_ids)
        except BaseException as error:
            self.note(error)
            raise

    def recv(self, batch_size: int) -> StepResult | None:
        """The results of the first that are done, if all is plain."""
        try:
            return self._pool.recv(batch_size) or None
        except BaseException as error:
            self.note(error)
            raise

    def note(self, error: BaseException | Failure) -> None:
        """Remembers how a quick call ended, until `take_error`: only a closer look may go on from there."""
        self._error, self.ready = error, False
        self._exclusive.settle()  # a signal handler may have closed the fleet

    def take_error(self) -> BaseException | Failure | None:
        """How the last quick call ended, if it did not end well; forgets it."""
        error, self._error = self._error, None
        failure = self._pool.take_quick_failure()
        return failure_of("step", *failure) if failure is not None else error


@final
class NativeShard:
    """What ``Shard`` is for Python environments."""

    def __init__(
        self,
        pool: _native.Pool,
        twin: Twin,
        kind: str,
        num_envs: int,
        companions: Companions | None = None,
        plans: EpisodePlans | None = None,
        varied: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self._pool, self._twin, self._companions, self._plans = pool, twin, companions, plans
        self._varied = varied
        self._kind = kind
        self._unsent: Report | None = None
        """What keeps environments from being sent, until all are recalled."""
        self._seeds = [secrets.randbits(128) for _ in range(num_envs)]
        for env, seed in enumerate(self._seeds):
            pool.seed(env, seed)

    def execute(self, order: Order) -> Report | None:
        """Carries out an order; None when everything it has to say lies in the block."""
        if isinstance(order, StepOrder):
            return self._supply() or self._step()
        if isinstance(order, ResetOrder):
            return self._reset(order)
        if isinstance(order, CallOrder):
            return self._call(order)
        return self._set_attr(order)

    def _step(self) -> Report | None:
        self._pool.step_stored()
        return self._report("step", self._pool.failure())

    def _reset(self, order: ResetOrder) -> Report | None:
        self._seed_all(order)
        failed = self._supply()
        if failed is not None:
            return failed
        self._pool.reset(order.mask, _given(order.options))
        return self._report("reset", self._pool.failure())

    def _seed_all(self, order: ResetOrder) -> None:
        for env in np.flatnonzero(order.mask).tolist():
            seed = order.seeds[env]
            if seed is not None:
                self._seed(env, seed)

    def _seed(self, env: int, seed: int) -> None:
        self._pool.seed(env, seed)
        self._seeds[env] = seed
        if self._plans is not None:
            self._plans.restart(env, seed)

    def _supply(self) -> Report | None:
        """A report instead of a turn, if some environment cannot have the parameters drawn for it."""
        failure = None if self._plans is None else self._plans.supply()
        return None if failure is None else Report(failures=[failure])

    def send(self, rows: Rows) -> None:
        """Sets some environments to work with their stored actions."""
        if self._may_send():
            self._pool.send_stored(rows)

    def send_resets(self, rows: Rows, order: ResetOrder) -> None:
        """Sets some environments to work on a reset; none of them may be at work."""
        self._seed_all(order)
        if self._may_send():
            self._pool.send_resets(rows, _given(order.options))

    def _may_send(self) -> bool:
        """False once some environment cannot have its parameters: ``receive`` tells, and nothing is sent any more."""
        if self._unsent is None:
            self._unsent = self._supply()
        if self._unsent is not None:
            self._pool.ready = False
        return self._unsent is None

    def recall(self, timeout: float | None) -> list[int]:
        """Waits for those at work and forgets all that was sent; returns those that did not come back in time."""
        stuck = self._pool.recall(timeout)
        self._unsent = None
        return stuck

    def receive(self, count: int, timeout: float | None) -> tuple[Rows, list[Report | None]]:
        """The first ``count`` that are done, and what there is to report of them."""
        if self._unsent is not None:
            return np.empty(0, np.int64), [self._unsent]
        rows = self._pool.receive(count, timeout)
        if rows is None:
            raise multiprocessing.TimeoutError(
                f"Fewer than {count} environments were ready after {timeout} s. They are still at work: recv() again."
            )
        return rows, [self._report("step", self._pool.failure_among(rows))]

    def _report(self, method: str, failure: tuple[int, str] | None) -> Report | None:
        return None if failure is None else Report(failures=[failure_of(method, *failure)])

    def _call(self, order: CallOrder) -> Report:
        report = Report()
        for env in np.flatnonzero(order.mask).tolist():
            try:
                report.results.append((env, self._answer(env, order)))
            except Exception as error:
                report.failures.append(Failure.of(error, env, "call", order.name))
        return report

    def _answer(self, env: int, order: CallOrder) -> Any:
        if order.name in _OF_A_VIEW and order.function is None:
            return getattr(self._view(env), order.name)(*order.args, **order.kwargs)
        if order.args or order.kwargs or order.function is not None:
            raise self._no_attribute(order.name, "no method to call with arguments")
        return self._get(env, order.name)

    def _get(self, env: int, name: str) -> Any:
        getter = self._GETTERS.get(name)
        if getter is not None:
            return getter(self, env)
        try:
            return self._pool.get(env, name)
        except AttributeError:
            raise self._no_attribute(name, "no attribute") from None

    def _no_attribute(self, name: str, what: str) -> AttributeError:
        names = [*self._pool.parameter_names(), *self._pool.variable_names(), *self._GETTERS]
        return AttributeError(
            f"A native environment has {what} {name!r}; it has {', '.join(names)}. "
            "For anything else make the fleet with backend='sync' or 'process'."
        )

    def _set_attr(self, order: SetAttrOrder) -> Report:
        report = Report()
        chosen = np.flatnonzero(order.mask).tolist()
        values = [order.values[env] for env in chosen]
        if order.mask.all() and all(value is values[0] for value in values):
            chosen = [-1]
        for env in chosen:
            try:
                self._set(env, order.name, values[0] if env == -1 else order.values[env])
            except Exception as error:
                report.failures.append(Failure.of(error, max(env, 0), "set_attr", order.name))
        return report

    def _set(self, env: int, name: str, value: Any) -> None:
        """Sets an attribute of an environment; -1 stands for all of them."""
        if name in self._GETTERS:
            raise AttributeError(f"{name} of a native environment cannot be set.")
        try:
            if self._companions is not None:
                self._companions.check_attribute(name, value)
            self._pool.set_everywhere(name, value) if env == -1 else self._pool.set(env, name, value)
        except AttributeError:
            raise self._no_attribute(name, "no attribute") from None
        except (ValueError, TypeError, RuntimeError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{error} Got {reprlib.repr(value)} for {name} of {self._kind}.") from None

    def _view(self, env: int) -> NativeEnvView:
        return NativeEnvView(partial(self._get, env), self._kind)

    def _spec(self, env: int) -> EnvSpec | None:
        spec = deepcopy(self._twin.spec)
        if spec is not None and self._varied:
            spec.kwargs.update(self._varied[env])
        return spec

    def _np_random(self, env: int) -> np.random.Generator:
        state, increment, has_half, half = self._pool.rng_state(env)
        wide = state[0] << 64 | state[1], increment[0] << 64 | increment[1]
        return generator_in(generator_state(*wide, has_half, half))

    def _time_limit(self, env: int) -> int | None:
        limit = self._pool.time_limit(env)
        return None if limit == NO_LIMIT else limit

    def _render(self, env: int) -> Any:
        if self._twin.face.render_mode is None:
            raise EnvRaisedError("Pass render_mode='rgb_array' to make_vec to render.", worker=None, env_indices=(env,))
        names = [*self._pool.parameter_names(), *self._pool.variable_names()]
        if self._companions is not None:
            return self._companions.draw(env, self._twin.unwrapped)
        return self._twin.draw({name: self._pool.get(env, name) for name in names})

    # Functions, not methods of this object: it would hold itself, and the pool, until garbage is collected.
    _GETTERS: ClassVar[dict[str, Callable[[NativeShard, int], Any]]] = {
        "unwrapped": _view,
        "spec": _spec,
        "observation_space": lambda self, _: deepcopy(self._twin.face.observation_space),
        "action_space": lambda self, _: deepcopy(self._twin.face.action_space),
        "metadata": lambda self, _: dict(self._twin.face.metadata),
        "np_random": _np_random,
        "np_random_seed": lambda self, env: self._seeds[env],
        "render": _render,
        "render_mode": lambda self, _: self._twin.face.render_mode,
        "_elapsed_steps": lambda self, env: self._pool.elapsed(env),
        "_max_episode_steps": _time_limit,
    }

    def close(self) -> None:
        """Closes what draws."""
        self._pool.ready = False
        if self._companions is not None:
            self._companions.close()
        self._twin.close()


def _given(options: Sequence[dict[str, Any] | None]) -> list[dict[str, Any] | None]:
    """One an environment, or an empty list if there are none."""
    return list(options) if any(options) else []


def failure_of(method: str, env: int, message: str) -> Failure:
    """An exception of a compiled environment as the fleet raises it."""
    return Failure(env, method, "", NativeEnvError(message), "(compiled code has none)\n")
