"""Large observations are handed out where they were written: nobody may notice but by the clock."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium import spaces
from selection import left_to_test_all

from envfleet.errors import EnvRaisedError
from envfleet.vector import AsyncVectorEnv, SyncVectorEnv

pytestmark = pytest.mark.usefixtures("nothing_left_behind")

NUM_ENVS = 4
SIDE = 256
IMAGE = spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
NONE = np.zeros(NUM_ENVS, np.int64)

Array = npt.NDArray[Any]


class ImageEnv(gymnasium.Env[Any, np.int64]):
    """Shows an image that is full of the number of steps so far; action 1 raises, 2 ends the episode.

    Args:
        layout: "C", or "F" for images that no row can take as they are.
    """

    observation_space: spaces.Space[Any] = IMAGE
    action_space = spaces.Discrete(3)

    def __init__(self, layout: str = "C") -> None:
        self._layout: Any = layout

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._age = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == 1:
            raise RuntimeError("as asked for")
        self._age += 1
        return self._observation(), 0.0, bool(action == 2), False, {}

    def _observation(self) -> Any:
        return np.full((SIDE, SIDE), self._age, np.uint8, order=self._layout)


class MixedEnv(ImageEnv):
    """An image beside small things, one of them without a layout."""

    observation_space = spaces.Dict(
        {
            "image": IMAGE,
            "level": spaces.Discrete(256),
            "inner": spaces.Tuple((spaces.Box(0, 255, (2,), np.float32), IMAGE)),
            "text": spaces.Text(8),
        }
    )

    def _observation(self) -> Any:
        image = super()._observation()
        inner = (np.full(2, self._age, np.float32), image + 1)
        return {"image": image, "level": self._age, "inner": inner, "text": str(self._age)}


FLEETS: dict[str, Callable[..., Any]] = {
    "sync": SyncVectorEnv,
    "process": lambda fns, **kwargs: AsyncVectorEnv(fns, context="fork", num_workers=2, **kwargs),
    "spawn": lambda fns, **kwargs: AsyncVectorEnv(fns, context="spawn", num_workers=2, **kwargs),
    "caller": lambda fns, **kwargs: AsyncVectorEnv(fns, context="fork", num_workers=2, caller_works=True, **kwargs),
}


@pytest.fixture(params=FLEETS)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Each kind of fleet."""
    return FLEETS[request.param]


# Spawn takes long to start, and what the caller does with its pages is the same however workers were started.
fork_has_to_do = left_to_test_all(lambda given: given["make"] == "spawn")


@contextmanager
def started(envs: Any) -> Iterator[Any]:
    """A fleet that was reset and stepped once, so that what follows are steps like the one before."""
    with envs:
        envs.reset(seed=0)
        envs.step(NONE)
        yield envs


def next_image(envs: Any) -> Array:
    images: Array = envs.step(NONE)[0]
    return images


def address(array: Array) -> int:
    return int(array.ctypes.data)


def test_observations_are_not_copied_and_their_memory_is_used_again(make: Callable[..., Any]) -> None:
    with started(make([ImageEnv] * NUM_ENVS)) as envs:
        images = next_image(envs)
        assert not images.flags.owndata
        seen = {address(images)}
        for age in range(3, 30):
            images = next_image(envs)
            assert (images == age).all()
            seen.add(address(images))
        assert len(seen) == 2


@left_to_test_all(lambda given: given["make"] == "spawn" and given["layout"] == "F")
@pytest.mark.parametrize("layout", ["C", "F"])
def test_what_is_kept_never_changes(make: Callable[..., Any], layout: str) -> None:
    with started(make([lambda: ImageEnv(layout)] * NUM_ENVS)) as envs:
        kept = [next_image(envs) for _ in range(10)]
        some = kept[1::3]
        del kept
        for _ in range(10):
            next_image(envs)
        for image, age in zip(some, (3, 6, 9), strict=True):
            assert (image == age).all()


DERIVED: dict[str, Callable[[Array], Any]] = {
    "row": lambda image: image[1],
    "view of a view": lambda image: image[1:][:, 2:][0],
    "reshaped": lambda image: image.reshape(NUM_ENVS, -1)[:, ::7],
    "memoryview": lambda image: memoryview(image),
    "frombuffer": lambda image: np.frombuffer(image, np.uint8),
    "strided": lambda image: np.lib.stride_tricks.as_strided(image, (4,), (SIDE * SIDE,)),
    "iterator": lambda image: image.flat,
    "subclass": lambda image: image.view(np.matrix if image.ndim == 2 else np.recarray),
    "dlpack": lambda image: np.from_dlpack(image),
}


@left_to_test_all(lambda given: given["make"] == "spawn" and given["derive"] is not DERIVED["row"])
@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED)
def test_what_was_made_of_them_keeps_them(make: Callable[..., Any], derive: Callable[[Array], Any]) -> None:
    with started(make([ImageEnv] * NUM_ENVS)) as envs:
        kept = derive(next_image(envs))
        gc.collect()
        for _ in range(6):
            next_image(envs)
        assert (np.asarray(kept) == 2).all()


@fork_has_to_do
def test_a_tensor_keeps_them(make: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    with started(make([ImageEnv] * NUM_ENVS)) as envs:
        tensor = torch.from_numpy(next_image(envs))[1:, ::2]
        for _ in range(6):
            next_image(envs)
        assert bool((tensor == 2).all())


@fork_has_to_do
def test_writing_into_them_does_not_reach_the_fleet(make: Callable[..., Any]) -> None:
    with started(make([ImageEnv] * NUM_ENVS)) as envs:
        images = next_image(envs)
        images[:] = 77
        mask = np.array([True, False, False, False])
        after, _ = envs.reset(options={"reset_mask": mask})
        assert [int(image[0, 0]) for image in after] == [0, 2, 2, 2]
        assert (images == 77).all()


def test_all_kinds_of_leaves_go_together(make: Callable[..., Any]) -> None:
    with started(make([MixedEnv] * NUM_ENVS)) as envs:
        kept = [envs.step(NONE)[0] for _ in range(8)]
        for age, observation in enumerate(kept, 2):
            small, large = observation["inner"]
            assert (observation["image"] == age).all()
            assert (large == age + 1).all()
            assert (small == age).all()
            assert observation["level"].tolist() == [age] * NUM_ENVS
            assert observation["text"] == (str(age),) * NUM_ENVS


@fork_has_to_do
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_episodes_end_on_pages(make: Callable[..., Any], mode: str) -> None:
    with started(make([ImageEnv] * NUM_ENVS, autoreset_mode=mode)) as envs:
        images, _, terminated, _, infos = envs.step(np.array([0, 2, 0, 2]))
        assert terminated.tolist() == [False, True, False, True]
        same = mode == "SameStep"
        assert [int(image.max()) for image in images] == ([2, 0, 2, 0] if same else [2, 2, 2, 2])
        if same:
            assert (infos["final_obs"][1] == 2).all()
        assert [int(image.max()) for image in next_image(envs)] == ([3, 1, 3, 1] if same else [3, 0, 3, 0])


def test_after_a_failed_step_nothing_is_written_over(make: Callable[..., Any]) -> None:
    with started(make([ImageEnv] * NUM_ENVS)) as envs:
        kept = [next_image(envs), next_image(envs)]
        with pytest.raises(EnvRaisedError):
            envs.step(np.array([0, 0, 0, 1]))
        envs.reset()
        kept += [envs.step(NONE)[0] for _ in range(4)]
        assert [int(images.min()) for images in kept] == [2, 3, 1, 2, 3, 4]
        assert [int(images.max()) for images in kept] == [2, 3, 1, 2, 3, 4]


def test_they_outlive_the_fleet(make: Callable[..., Any]) -> None:
    with started(make([ImageEnv] * NUM_ENVS)) as envs:
        images = next_image(envs)
    del envs
    gc.collect()
    assert (images == 2).all()
    images += 1
    assert (images == 3).all()


@fork_has_to_do
def test_live_views_remain_live_views(make: Callable[..., Any]) -> None:
    with started(make([ImageEnv] * NUM_ENVS, copy=False)) as envs:
        first = next_image(envs)
        assert address(next_image(envs)) == address(first)
        assert (first == 3).all()


def in_a_fork(work: Callable[[], bool]) -> bool:
    """Whether `work` holds in a forked copy of this process, which tells when it has begun, and waits for a go."""
    ready, tell = os.pipe()
    wait, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        verdict = 1
        try:
            os.write(tell, b"!")
            os.read(wait, 1)
            verdict = 0 if work() else 2
        finally:
            os._exit(verdict)
    os.read(ready, 1)
    IN_THE_MEANTIME.pop()()
    os.write(go, b"!")
    _, status = os.waitpid(pid, 0)
    for descriptor in (ready, tell, wait, go):
        os.close(descriptor)
    return os.waitstatus_to_exitcode(status) == 0


IN_THE_MEANTIME: list[Callable[[], None]] = []


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@left_to_test_all(lambda given: given["make"] == "spawn" and given["repeats"] == 8)
@pytest.mark.parametrize("repeats", [1, 8])
def test_a_forked_copy_has_its_own(make: Callable[..., Any], repeats: int) -> None:
    """What it holds stays as it was while we go on, and neither sees what the other writes; however often."""
    with started(make([ImageEnv] * NUM_ENVS)) as envs:
        for _ in range(repeats):
            images = next_image(envs)
            age = int(images[0, 0, 0])
            held = [images]
            del images

            def go_on(held: list[Array] = held) -> None:
                held[0][0] = 99
                held.clear()
                for _ in range(6):
                    next_image(envs)

            IN_THE_MEANTIME.append(go_on)
            assert in_a_fork(lambda held=held, age=age: bool((held[0] == age).all()))
        images = next_image(envs)
        address_before = address(images)
        del images
        assert address(next_image(envs)) == address_before  # they are in use again

        kept = next_image(envs)
        age = int(kept[0, 0, 0])
        IN_THE_MEANTIME.append(lambda: None)

        def scribble() -> bool:
            kept[:] = 0
            return True

        assert in_a_fork(scribble)
        assert (kept == age).all()
