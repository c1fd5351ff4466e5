"""What all tests share."""

from __future__ import annotations

import logging
import os
import signal
import warnings
from collections.abc import Iterator

import hypothesis
import pytest
import side_by_side
from selection import is_left_out

# A shell that runs the tests in the background has Ctrl-C ignored, and every process started from here would inherit
# that: the tests of interruptions would wait for something that cannot happen.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Small networks on several threads wait for each other more than they compute, the more so on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes to draw says more about the machine than about the test.
hypothesis.settings.register_profile("envfleet", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("envfleet")


def pytest_addoption(parser: pytest.Parser) -> None:
    """See the module."""
    side_by_side.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """See the module."""
    if processes := config.getoption("--side-by-side"):
        config.pluginmanager.register(side_by_side.SideBySide(processes))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not asked for.

    Those that need Ray come last: its threads stay, and a process that has threads should not be forked.
    """
    chosen = [item for item in items if not is_left_out(item)]
    config.hook.pytest_deselected(items=[item for item in items if is_left_out(item)])
    items[:] = sorted(chosen, key=lambda item: item.get_closest_marker("ray") is not None)


@pytest.fixture(autouse=True)
def _ray_where_it_is_needed(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("ray") is not None:
        request.getfixturevalue("ray_cluster")


@pytest.fixture(scope="session")
def box2d() -> None:
    """Box2D's Python package warns while it is imported and crashes the interpreter where warnings are errors."""
    import gymnasium

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gymnasium.make("LunarLander-v3").close()


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One Ray for all tests; programs that they start connect to it too."""
    import ray

    megabyte = 2**20
    with pytest.MonkeyPatch.context() as patch:
        context = ray.init(
            num_cpus=4,
            include_dashboard=False,
            object_store_memory=80 * megabyte,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
        patch.setenv("RAY_ADDRESS", context.address_info["gcs_address"])
        yield
        ray.shutdown()
