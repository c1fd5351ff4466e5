"""EnvPool's side of native.py, run by a Python that has it: reads seconds a line, answers with steps a second.

python envpool_turns.py CartPole-v1 64
"""

from __future__ import annotations

import sys
import time

import envpool  # type: ignore[import-not-found]
import numpy as np


def main() -> None:
    """Answer until the input ends."""
    env_id, num_envs = sys.argv[1], int(sys.argv[2])
    envs = envpool.make_gymnasium(env_id, num_envs=num_envs, seed=0)
    envs.reset()
    envs.action_space.seed(0)
    actions = [np.stack([envs.action_space.sample() for _ in range(num_envs)]) for _ in range(64)]
    for line in sys.stdin:
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < float(line):
            for action in actions:
                envs.step(action)
            done += len(actions)
        print(done * num_envs / (time.perf_counter() - begin), flush=True)


if __name__ == "__main__":
    main()
