"""Who is in the kill matrix, and what is done to them, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.installation import Peer, peers

NO_FAULT = "none"
CALLER_KILLED = ("caller-killed", "caller-killed-hang")
FAULTS = {
    NO_FAULT: "no fault",
    "kill": "kill -9 of a worker",
    "exception": "exception in `step`",
    "hang": "hang in `step`",
    "stop": "SIGSTOP of a worker",
    "nan": "NaN, default settings",
    "nan-checked": "NaN, with the library's check",
    "shape": "observation too short",
    "shape-one": "observation of one number",
    "fork": "fork in `step`",
    "caller-killed": "caller killed",
    "caller-killed-hang": "caller killed while an environment hangs",
}
QUICK = ("kill", "exception", "nan-checked", "caller-killed")

_IN_THE_CALLER = "no worker processes: compiled environments run in the caller, which is what would end"
_FIXED_SIZE = "compiled code writes into a row of fixed size: there is no shape to get wrong"


@dataclass(frozen=True)
class Contestant:
    """A library's way to run environments.

    Attributes:
        name: On the command line and in the JSON.
        label: In tables.
        adapter: The module in `fault_matrix.adapters` that makes it.
        options: What the adapter is told.
        peer: The package in a virtual environment of its own; None: ours.
        cannot: Faults that do not exist for it, and why.
    """

    name: str
    label: str
    adapter: str
    options: Mapping[str, Any] = field(default_factory=dict)
    peer: Peer | None = None
    cannot: Mapping[str, str] = field(default_factory=dict)


def _ours(kind: str, label: str, on_failure: str = "raise", **settings: Any) -> Contestant:
    name = f"envfleet-{kind}" + ("-restart" if on_failure == "restart" else "")
    return Contestant(name, label, "envfleet_fleets", {"kind": kind, "on_failure": on_failure}, **settings)


RLLIB = Peer("rllib", "ray==2.60.0", before=("ray[rllib]==2.60.0",))

ALL = (
    Contestant("gymnasium", "Gymnasium async", "gymnasium_async"),
    Contestant("sb3", "SB3 Subproc", "sb3_subproc", peer=peers()["sb3"]),
    Contestant("tianshou", "Tianshou Shmem", "tianshou_shmem", peer=peers()["tianshou"]),
    Contestant("torchrl", "TorchRL Parallel", "torchrl_parallel", peer=peers()["torchrl"]),
    Contestant("rllib", "RLlib env runners", "rllib_runners", peer=RLLIB),
    _ours("process", "envfleet process"),
    _ours("process", "envfleet process, restart", "restart"),
    _ours(
        "native",
        "envfleet native",
        cannot={
            "kill": _IN_THE_CALLER,
            "stop": _IN_THE_CALLER,
            "shape": _FIXED_SIZE,
            "shape-one": _FIXED_SIZE,
        },
    ),
    _ours("ray", "envfleet Ray"),
    _ours("ray", "envfleet Ray, restart", "restart"),
)
CONTESTANTS = {contestant.name: contestant for contestant in ALL}
