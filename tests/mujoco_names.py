"""The MuJoCo environments that Gymnasium has in their latest version: all of them are ours too."""

from __future__ import annotations

import gymnasium

NAMES = sorted(
    spec.name
    for spec in gymnasium.registry.values()
    if not spec.namespace and spec.version == 5 and str(spec.entry_point).startswith("gymnasium.envs.mujoco")
)
assert len(NAMES) == 11, NAMES
