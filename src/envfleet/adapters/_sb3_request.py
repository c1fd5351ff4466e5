"""What ``make_sb3_vec_env`` was asked for, checked, and the fleet that it makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from envfleet import backends
from envfleet._single import is_function, spec_of
from envfleet.adapters._sb3_monitor import FleetMonitor
from envfleet.adapters._sb3_single import SingleEnv
from envfleet.errors import UnsupportedError
from envfleet.make import make_vec, plan_for
from envfleet.native.own.environment import OwnEnvironment
from envfleet.randomize import ParameterTable
from envfleet.vector.arguments import positive_integer
from envfleet.vector.spaces import checked_mode
from envfleet.vector.vector_env import FleetVectorEnv

_BACKENDS = {DummyVecEnv: "sync", SubprocVecEnv: "process"}
_NATIVE = "native"
_SAME_STEP = AutoresetMode.SAME_STEP


@final
@dataclass(frozen=True)
class Sb3Request:
    """What ``make_sb3_vec_env`` was asked for.

    Attributes:
        env_id: What to make, as given.
        single: How one environment is made.
        num_envs: How many.
        start_index: The rank of the first.
        backend: What runs them.
        vector_kwargs: Further arguments of the fleet.
    """

    env_id: Any
    single: SingleEnv
    num_envs: int
    start_index: int
    backend: str
    vector_kwargs: dict[str, Any]

    def monitor(self, spec: EnvSpec | None) -> FleetMonitor:
        """The monitor of the whole fleet."""
        single = self.single
        return FleetMonitor(self.num_envs, spec, single.monitor_dir, self.start_index, single.monitor_kwargs)

    def fleet(self) -> FleetVectorEnv:
        """Compiled environments if there are any and nothing speaks against them, else Python ones."""
        if self.backend == _NATIVE:
            return self._compiled()
        if self.backend != backends.AUTO or not backends.suitable(self.single.spec):
            return self._of_python()
        try:
            return self._compiled()
        except UnsupportedError as error:
            envs = self._of_python()
            envs.plan += f" Not native: {error}"
            return envs

    def _compiled(self) -> FleetVectorEnv:
        if self.single.wrapper_class is not None:
            raise UnsupportedError(
                "backend='native' runs compiled environments, which no wrapper_class can wrap. Use 'sync' or 'process'."
            )
        make = partial(make_vec, self.env_id, self.num_envs, _NATIVE, self.vector_kwargs)
        env_kwargs = self.single.env_kwargs
        if isinstance(self.env_id, OwnEnvironment):
            return make(**env_kwargs)
        try:
            return make(**{"render_mode": "rgb_array", **env_kwargs})
        except TypeError:  # it cannot draw; if it is something else, that is raised again
            return make(**env_kwargs)

    def _of_python(self) -> FleetVectorEnv:
        name, sentence, further = self.backend, "", {}
        if name == backends.AUTO:
            plan = plan_for(self._fleet_request(self.vector_kwargs))  # without ranks: nothing is logged
            name, sentence, further = plan.backend, plan.sentence, plan.vector_kwargs
        backend = backends.find(name)
        assert backend is not None
        ranks = np.arange(self.start_index, self.start_index + self.num_envs)
        table = ParameterTable({"rank": ranks}, self.num_envs)
        envs = backend.make(self._fleet_request({**further, **self.vector_kwargs}, table))
        envs.plan = sentence or envs.plan
        return envs

    def _fleet_request(
        self, vector_kwargs: dict[str, Any], ranks: ParameterTable | None = None
    ) -> backends.FleetRequest:
        return backends.FleetRequest(spec_of(self.single), self.num_envs, {}, vector_kwargs, parameters=ranks)


def checked_request(
    env_id: Any,
    single: SingleEnv,
    n_envs: int,
    start_index: int,
    vec_env_cls: type[Any] | None,
    vec_env_kwargs: dict[str, Any] | None,
    backend: str | None,
) -> Sb3Request:
    """Refuses what does not go together, before anything is made."""
    if single.wrapper_kwargs and single.wrapper_class is None:
        raise TypeError("wrapper_kwargs are arguments of wrapper_class, which was not given.")
    chosen = _checked_backend(vec_env_cls, backend)
    if chosen == _NATIVE and is_function(single.spec):
        raise UnsupportedError("backend='native' needs an id, or an environment made by envfleet.native.")
    num_envs = positive_integer("n_envs", n_envs)
    return Sb3Request(env_id, single, num_envs, start_index, chosen, _vector_kwargs(dict(vec_env_kwargs or {})))


def _checked_backend(vec_env_cls: Any, backend: Any) -> str:
    if vec_env_cls is not None and vec_env_cls not in _BACKENDS:
        raise TypeError(
            "vec_env_cls may be DummyVecEnv, which stands for backend='sync', or SubprocVecEnv, for 'process'; got "
            f"{getattr(vec_env_cls, '__name__', vec_env_cls)!r}. A fleet of envfleet takes its place: choose a backend."
        )
    if vec_env_cls is not None and backend is not None and backend != _BACKENDS[vec_env_cls]:
        raise ValueError(f"backend={backend!r} contradicts vec_env_cls={vec_env_cls.__name__}: leave one of them out.")
    chosen = _BACKENDS.get(vec_env_cls, backends.AUTO) if backend is None else backend
    if chosen not in backends.names():
        raise ValueError(f"backend must be one of {', '.join(map(repr, backends.names()))}, got {backend!r}.")
    return str(chosen)


def _vector_kwargs(given: dict[str, Any]) -> dict[str, Any]:
    mode = given.setdefault("autoreset_mode", _SAME_STEP)
    if checked_mode(mode) is not _SAME_STEP:
        raise ValueError(f"Stable-Baselines3 needs autoreset_mode='SameStep', the default here, got {mode!r}.")
    if not given.setdefault("copy", True):
        raise ValueError("Stable-Baselines3 keeps observations beyond the next step: leave copy=False out.")
    if "start_method" in given:
        given["context"] = given.pop("start_method")
    return given
