"""Ray itself: imported when it is needed, connected to, and asked what it has to give."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

Demand: TypeAlias = Mapping[str, float]
"""What one actor takes of the cluster, by Ray's names: ``{"CPU": 1.0}``."""

_CPU = "CPU"


def import_ray() -> Any:
    """The package, or an error that says how to install it."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ModuleNotFoundError(
            'RayVectorEnv needs Ray, which is not installed; run\n    pip install "envfleet[ray]"', name="ray"
        ) from None


def connect() -> Any:
    """Ray, connected: to the cluster it is connected to, or as ``ray.init()`` connects."""
    ray = import_ray()
    if not ray.is_initialized():
        ray.init(logging_level=logging.ERROR)
    return ray


def checked_demand(num_cpus: Any, resources: Any) -> Demand:
    """The user's arguments, checked."""
    for name, amount in {"num_cpus": num_cpus, **dict(resources or {})}.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float | np.number) or not 0 <= amount < math.inf:
            raise ValueError(f"An actor's share of {name!r} must be a number, zero or more, got {amount!r}.")
    if {"CPU", "GPU"} & set(resources or {}):
        raise ValueError(f"`resources` are those you gave names to; CPUs go by `num_cpus`. Got {dict(resources)}.")
    return {_CPU: float(num_cpus), **{name: float(amount) for name, amount in dict(resources or {}).items()}}


def remote_options(demand: Demand) -> dict[str, Any]:
    """The demand as Ray's arguments."""
    own = {name: amount for name, amount in demand.items() if name != _CPU}
    return {"num_cpus": demand[_CPU], "resources": own or None}


def actors_that_fit(ray: Any, demand: Demand) -> int:
    """How many actors the cluster has room for now, at least one; as many as it has CPUs where they take nothing."""
    free, all_ = ray.available_resources(), ray.cluster_resources()
    counts = [free.get(name, 0.0) // amount for name, amount in demand.items() if amount]
    return max(1, int(min(counts, default=all_.get(_CPU, 1.0))))


def has_room(ray: Any, demand: Demand) -> bool:
    """Whether one more actor would find a place now."""
    free = ray.available_resources()
    return all(free.get(name, 0.0) >= amount for name, amount in demand.items() if amount)


def room_text(ray: Any, demand: Demand, actors: int) -> str:
    """What the actors of a fleet need, what there is, and what to do if that is not enough."""
    free, all_ = ray.available_resources(), ray.cluster_resources()
    parts = [
        f"{amount * actors:g} {name} ({amount:g} each), the cluster has {all_.get(name, 0.0):g}, "
        f"of which {free.get(name, 0.0):g} are free"
        for name, amount in demand.items()
        if amount
    ]
    return (
        f"{actors} actors need {'; '.join(parts) or 'nothing but a running cluster'}. Ask for fewer (num_workers), let "
        "them take less (num_cpus=0.5, or 0), close what holds the rest, or add machines."
    )
