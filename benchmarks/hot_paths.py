"""Our hot paths, one after another, for callgrind to count: python hot_paths.py LIBRARY CALLS NAME...

Run by harness/instructions.py under valgrind, also with older revisions of envfleet: it uses public names only.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable
from typing import Any

from harness.environments import DICT_IMAGE
from harness.workloads import CARTPOLE, Workload, batched_actions

from envfleet import SyncVectorEnv, make_vec

NUM_ENVS = 8
WARM_UP = 50


def native_step() -> Any:
    """Compiled environments, on the caller's thread: other threads wait by counting."""
    return make_vec(CARTPOLE, NUM_ENVS, "native", {"threads": 1})


def sync_step() -> Any:
    """Python environments in the caller's thread: the shard that every Python backend runs."""
    return SyncVectorEnv([Workload(CARTPOLE, NUM_ENVS).env_fn()] * NUM_ENVS)


def batch_copy() -> Any:
    """Observations with an image, written into the block and copied out of it."""
    return SyncVectorEnv([Workload(DICT_IMAGE, NUM_ENVS).env_fn()] * NUM_ENVS)


FLEETS: dict[str, Callable[[], Any]] = {
    "native-step": native_step,
    "sync-step": sync_step,
    "batch-copy": batch_copy,
}


def main() -> None:
    """Step each fleet: a while to warm up, then counted."""
    requests, calls = ctypes.CDLL(sys.argv[1]), int(sys.argv[2])
    for name in sys.argv[3:]:
        envs = FLEETS[name]()
        envs.reset(seed=0)
        actions = itertools.cycle(batched_actions(envs.single_action_space, NUM_ENVS))
        for _ in range(WARM_UP):
            envs.step(next(actions))
        requests.begin_counting()
        for _ in range(calls):
            envs.step(next(actions))
        requests.end_counting(name.encode())
        envs.close()


if __name__ == "__main__":
    main()
