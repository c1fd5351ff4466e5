"""Who steps: envfleet's engines and everyone else's, as data. How each is started is in its adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .environments import POND
from .workloads import ANT, CARTPOLE, CHEETAH, LANDER, PONG, Workload

BARE = "bare"
LOOPS = "loops"
GYMNASIUM_SYNC = "gymnasium-sync"
GYMNASIUM_ASYNC = "gymnasium-async"
ENVFLEET_SYNC = "envfleet-sync"
ENVFLEET_PROCESS = "envfleet-process"
ENVFLEET_CALLER = "envfleet-process-caller"
ENVFLEET_FIRST_READY = "envfleet-first-ready"
ENVFLEET_NATIVE = "envfleet-native"
ENVFLEET_NATIVE_LIVE = "envfleet-native-live"
ENVPOOL = "envpool"
MJ_STEP = "mj_step"
ALE_VECTOR = "ale-vector"
GYMNASIUM_VECTOR = "gymnasium-vector"
SB3_DUMMY = "sb3-dummy"
TIANSHOU_DUMMY = "tianshou-dummy"

OURS = "envfleet"
LIMIT = "the limit"
COMPILED = frozenset((CARTPOLE, LANDER, CHEETAH, ANT))
MUJOCO = frozenset((CHEETAH, ANT))
SEVERAL = 2
ONE_PROCESS_EACH = "one process per environment"


@dataclass(frozen=True)
class Engine:
    """A way to run environments.

    Attributes:
        name: In results and on the command line.
        label: In tables.
        family: Whose it is; tables that are short show the fastest of a family.
        adapter: The module in `harness.adapters` that makes it.
        options: What the adapter is told.
        peer: The virtual environment it runs in; None: ours.
        env_ids: What it can run; None: any environment.
        least, most: How many environments make sense, and `why_not_more`.
        workers_option: What sets its threads or processes; None if nothing does.
        makes_gymnasiums: It runs Gymnasium's Python environments, not its own.
        policy: It makes sense with a policy in torch between its steps.
        per_call: One call steps every environment of the workload once.
    """

    name: str
    label: str
    family: str
    adapter: str
    options: Mapping[str, Any] = field(default_factory=dict)
    peer: str | None = None
    env_ids: frozenset[str] | None = None
    least: int = 1
    most: int = 1024
    why_not_more: str = ""
    workers_option: str | None = None
    makes_gymnasiums: bool = True
    policy: bool = True
    per_call: bool = True

    def why_not(self, workload: Workload) -> str | None:
        """Why this engine has no place in a workload; None if it has."""
        if self.env_ids is not None and workload.env_id not in self.env_ids:
            return "does not have this environment"
        if workload.num_envs < self.least:
            return f"needs {self.least} environments"
        if workload.num_envs > self.most:
            return self.why_not_more
        if workload.policy and not self.policy:
            return "no policy in torch between its steps"
        return None

    def with_workers(self, workers: int) -> Engine:
        """The same with so many threads or processes."""
        assert self.workers_option is not None
        options = {**self.options, self.workers_option: workers}
        return replace(self, name=f"{self.name}, {workers}", options=options)

    def request(self, workload: Workload, *, mix: bool) -> dict[str, Any]:
        """What `turns.py` is told; `mix` episodes before it is ready."""
        return {
            "adapter": self.adapter,
            "options": dict(self.options),
            "workload": {
                "env_id": workload.env_id,
                "num_envs": workload.num_envs,
                "policy": workload.policy,
            },
            "makes_gymnasiums": self.makes_gymnasiums,
            "mix": mix,
        }


def _ours(name: str, label: str, family: str = OURS, **settings: Any) -> Engine:
    return Engine(f"envfleet-{name}", f"envfleet {label}", family, "envfleet_fleets", **settings)


PROCESS_EACH: dict[str, Any] = {"most": 64, "why_not_more": ONE_PROCESS_EACH}
NATIVE: dict[str, Any] = {
    "env_ids": COMPILED | {POND},
    "workers_option": "threads",
    "family": "envfleet native",
    "makes_gymnasiums": False,
}

ALL = (
    Engine(BARE, "one environment in a loop", LIMIT, "bare", policy=False, per_call=False),
    Engine(LOOPS, "a plain loop on every core at once", LIMIT, "loops", policy=False, per_call=False),
    Engine(MJ_STEP, "MuJoCo's mj_step alone", LIMIT, "mj_step", env_ids=MUJOCO, policy=False, per_call=False),
    Engine(GYMNASIUM_SYNC, "Gymnasium sync", "Gymnasium", "gymnasium_fleets", {"kind": "sync"}),
    Engine(GYMNASIUM_ASYNC, "Gymnasium async", "Gymnasium", "gymnasium_fleets", {"kind": "async"}, **PROCESS_EACH),
    Engine(
        GYMNASIUM_VECTOR,
        "Gymnasium vector entry point",
        "Gymnasium",
        "gymnasium_fleets",
        {"kind": "vector"},
        env_ids=frozenset((CARTPOLE,)),
    ),
    Engine(SB3_DUMMY, "SB3 DummyVecEnv", "SB3", "sb3", {"kind": "DummyVecEnv"}, "sb3"),
    Engine("sb3-subproc", "SB3 SubprocVecEnv", "SB3", "sb3", {"kind": "SubprocVecEnv"}, "sb3", **PROCESS_EACH),
    Engine(TIANSHOU_DUMMY, "Tianshou Dummy", "Tianshou", "tianshou_fleets", {"kind": "DummyVectorEnv"}, "tianshou"),
    Engine(
        "tianshou-shmem",
        "Tianshou Shmem",
        "Tianshou",
        "tianshou_fleets",
        {"kind": "ShmemVectorEnv"},
        "tianshou",
        **PROCESS_EACH,
    ),
    Engine(
        "tianshou-shmem-wait",
        "Tianshou Shmem, wait_num half",
        "Tianshou",
        "tianshou_fleets",
        {"kind": "ShmemVectorEnv", "wait": True},
        "tianshou",
        least=SEVERAL,
        per_call=False,
        **PROCESS_EACH,
    ),
    Engine("torchrl", "TorchRL ParallelEnv", "TorchRL", "torchrl_fleets", {}, "torchrl", **PROCESS_EACH),
    Engine("pufferlib", "PufferLib multiprocessing", "PufferLib", "pufferlib_fleets", {}, "pufferlib", least=SEVERAL),
    Engine(
        ENVPOOL,
        "EnvPool sync",
        "EnvPool",
        "envpool_fleets",
        {},
        "envpool",
        env_ids=COMPILED | {PONG},
        workers_option="num_threads",
        makes_gymnasiums=False,
    ),
    Engine(
        "envpool-async",
        "EnvPool async, half a batch",
        "EnvPool",
        "envpool_fleets",
        {"first_ready": True},
        "envpool",
        env_ids=COMPILED | {PONG},
        least=SEVERAL,
        makes_gymnasiums=False,
        per_call=False,
    ),
    Engine(ALE_VECTOR, "ale-py vector", "ale-py", "ale_vector", env_ids=frozenset((PONG,)), makes_gymnasiums=False),
    *(
        Engine(
            name,
            label,
            "gymnax",
            "gymnax_fleets",
            {"rounds": rounds},
            "gymnax",
            env_ids=frozenset((CARTPOLE,)),
            makes_gymnasiums=False,
            policy=False,
            per_call=rounds == 1,
        )
        for name, label, rounds in (
            ("gymnax", "gymnax (JAX)", 1),
            ("gymnax-scan", "gymnax (JAX), 128 steps per call", 128),
        )
    ),
    _ours("sync", "sync", options={"kind": "sync"}),
    _ours("process", "process", options={"kind": "process"}, workers_option="num_workers"),
    _ours("process-caller", "process, caller works", options={"kind": "process", "caller_works": True}, least=SEVERAL),
    _ours(
        "first-ready",
        "first-ready, half a batch",
        options={"kind": "process", "first_ready": True},
        least=SEVERAL,
        per_call=False,
    ),
    _ours("ray", "Ray", options={"kind": "ray"}),
    _ours("native", "native", options={"kind": "native"}, **{**NATIVE, "env_ids": COMPILED | {POND, PONG}}),
    _ours("native-live", "native, copy=False", options={"kind": "native", "copy": False}, **NATIVE),
    _ours(
        "native-first-ready",
        "native first-ready, half a batch",
        options={"kind": "native", "first_ready": True},
        **{**NATIVE, "workers_option": None},
        least=SEVERAL,
        per_call=False,
    ),
)
ENGINES: dict[str, Engine] = {engine.name: engine for engine in ALL}
