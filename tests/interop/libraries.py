"""The libraries that `make interop` runs envfleet with, and what is installed for each."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from harness.contestant import NOT_INHERITED
from harness.installation import InstallationError, Peer, interop_python, jax_peers, peers

__all__ = ["INTEROP", "LIBRARIES", "PATIENCE", "InstallationError", "Peer", "inherited", "interop_python", "named"]

INTEROP = "ENVFLEET_INTEROP"
"""Set where the tests of a library run: elsewhere they are not collected."""

PATIENCE = 500
"""Seconds that a test may take: most of them go by while the library is imported, on a busy machine many."""

LIBRARIES = (
    peers()["tianshou"],
    peers()["torchrl"],
    Peer("envpool_itself", peers()["envpool"].package),  # what our adapter of that name is held against
    Peer(
        "guests",
        "minigrid==3.2.0",
        beside=("highway-env==1.12.1", "moviepy==2.2.1", "opencv-python-headless==5.0.0.93"),
    ),
    Peer("robotics", "gymnasium-robotics==1.4.2", beside=("mujoco==3.3.7",)),  # its robots fail with later ones
    Peer("dm_control", "shimmy[dm-control]==2.0.1", beside=("mujoco==3.17.0",)),  # Shimmy fails with 4.0
    *(jax_peers()[name] for name in ("jax", "gymnax", "brax", "playground", "jumanji")),
    Peer(
        "sb3_zoo",
        "rl_zoo3==2.9.2",
        beside=("stable-baselines3==2.9.2", "sb3-contrib==2.9.2", "moviepy==2.2.1", "pandas==2.3.3"),
    ),
    Peer("pufferlib", "pufferlib-core==3.0.19"),
    Peer("rllib", "ray[rllib]==2.60.0"),
    Peer("skrl", "skrl==2.1.1"),
    Peer("agilerl", "agilerl==2.58.0", before=("peft==0.21.2",)),  # which it imports and does not ask for
    Peer(
        "sample_factory",
        "sample-factory==2.1.1",
        before=(
            "colorlog==6.12.0",
            "faster-fifo==1.5.2",
            "huggingface-hub==0.36.2",
            "opencv-python-headless==4.11.0.86",
            "signal-slot-mp==1.0.5",
            "tensorboardX==2.6.5",
            "threadpoolctl==3.6.0",
        ),
        flags=("--no-deps",),  # it asks for a Gymnasium before 1.0 and runs on newer ones
    ),
    Peer("minari_collector", "minari[hdf5,create]==0.5.4"),  # Minari's own recorder needs JAX
)
"""The name says the virtual environment, build/interop/NAME, and the tests: test_NAME.py and test_NAME_*.py.

What a library needs in another version than ours, it gets for itself: its environment lies on top of .venv.
"""


def named(name: str) -> Peer:
    """The library of this name."""
    by_name = {library.name: library for library in LIBRARIES}
    if name not in by_name:
        raise KeyError(f"there is no library {name!r}; there are {', '.join(by_name)}")
    return by_name[name]


def inherited() -> dict[str, str]:
    """What a program with such a library inherits of our environment variables.

    Nothing is compiled when it is installed. A process that may not keep what it has compiled would compile torch and
    JAX at each import: a fleet whose workers import both took a minute then, beside other programs.
    """
    return {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
