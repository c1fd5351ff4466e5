"""Create a fleet once, in this process, and print the seconds and the memory it took as JSON.

python benchmarks/create_once.py envfleet-process LunarLander-v3 64
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from harness.creation import create_once
from harness.workloads import Workload

if __name__ == "__main__":
    engine, env_id, num_envs = sys.argv[1:]
    print(json.dumps(asdict(create_once(engine, Workload(env_id, int(num_envs))))))
