"""Every vector wrapper of Gymnasium gives over our environments what it gives over Gymnasium's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers
from scripted import DISABLED, MODES, SAME_STEP, AnyVectorEnv, Ending, Maker, env_fns

SCRIPTS = [(Ending(2, False), Ending(4, True)), (Ending(3, True),), (Ending(1, False), Ending(5, False))]


@dataclass(frozen=True)
class Case:
    """How to put one wrapper on a vector environment, on which observations, and what it needs installed."""

    wrap: Callable[[Any], Any]
    kind: str = "vector"
    needs: tuple[str, ...] = ()


def plus_one(value: Any) -> Any:
    return value + 1.0


def halve(value: Any) -> Any:
    return value * 0.5


CASES = {
    "ArrayConversion": Case(lambda envs: wrappers.ArrayConversion(envs, np, np), needs=("array_api_compat",)),
    "ClipAction": Case(wrappers.ClipAction),
    "ClipReward": Case(lambda envs: wrappers.ClipReward(envs, -0.5, 0.75)),
    "DictInfoToList": Case(wrappers.DictInfoToList),
    "DtypeObservation": Case(lambda envs: wrappers.DtypeObservation(envs, np.float64)),
    "FilterObservation": Case(lambda envs: wrappers.FilterObservation(envs, ["eye"]), kind="dict"),
    "FlattenObservation": Case(wrappers.FlattenObservation, kind="dict"),
    "GrayscaleObservation": Case(wrappers.GrayscaleObservation, kind="rgb"),
    "HumanRendering": Case(wrappers.HumanRendering, needs=("pygame",)),
    "NormalizeObservation": Case(wrappers.NormalizeObservation),
    "NormalizeReward": Case(wrappers.NormalizeReward),
    "NumpyToTorch": Case(lambda envs: wrappers.NumpyToTorch(envs), needs=("torch", "array_api_compat")),
    "RecordEpisodeStatistics": Case(wrappers.RecordEpisodeStatistics),
    "RescaleAction": Case(lambda envs: wrappers.RescaleAction(envs, np.float32(-3), np.float32(3))),
    "RescaleObservation": Case(
        lambda envs: wrappers.RescaleObservation(envs, np.float32(-1), np.float32(1)), kind="bounded"
    ),
    "ReshapeObservation": Case(lambda envs: wrappers.ReshapeObservation(envs, (2, 20)), kind="image"),
    "ResizeObservation": Case(lambda envs: wrappers.ResizeObservation(envs, (2, 2)), kind="rgb"),
    "TransformAction": Case(lambda envs: wrappers.TransformAction(envs, halve)),
    "TransformObservation": Case(lambda envs: wrappers.TransformObservation(envs, plus_one)),
    "TransformReward": Case(lambda envs: wrappers.TransformReward(envs, plus_one)),
    "VectorizeTransformAction": Case(
        lambda envs: wrappers.VectorizeTransformAction(
            envs, gym.wrappers.TransformAction, func=halve, action_space=envs.single_action_space
        )
    ),
    "VectorizeTransformObservation": Case(
        lambda envs: wrappers.VectorizeTransformObservation(
            envs, gym.wrappers.TransformObservation, func=plus_one, observation_space=envs.single_observation_space
        )
    ),
    "VectorizeTransformReward": Case(
        lambda envs: wrappers.VectorizeTransformReward(envs, gym.wrappers.TransformReward, func=plus_one)
    ),
}
"""All but RecordVideo, which has a test of its own, and what converts from or to jax."""


def refused_modes(name: str) -> tuple[AutoresetMode, ...]:
    """Return the modes Gymnasium's wrapper does not work in, over anybody's environments."""
    if name == "NormalizeObservation":
        return SAME_STEP, DISABLED
    return (SAME_STEP,) if name.endswith("Observation") else ()


def test_no_wrapper_is_forgotten() -> None:
    assert set(wrappers.__all__) == set(CASES) | {"RecordVideo", "JaxToNumpy", "JaxToTorch"}


def stand_in_for_cv2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resizing by picking pixels is enough where OpenCV is not installed."""
    if find_spec("cv2") is not None:
        return

    def resize(image: Any, size: tuple[int, int], interpolation: int = 0) -> Any:
        rows, columns = (np.arange(new) * old // new for new, old in zip(size[::-1], image.shape, strict=False))
        return image[rows][:, columns]

    module: Any = ModuleType("cv2")
    module.resize, module.INTER_AREA = resize, 3
    monkeypatch.setitem(sys.modules, "cv2", module)


def played(envs: AnyVectorEnv) -> list[Any]:
    """Reset, step and reset again; return everything that came back."""
    space: Any = envs.action_space
    space.seed(5)
    results: list[Any] = [envs.reset(seed=3)]
    for number in range(12):
        results.append(envs.step(np.clip(3.0 * space.sample(), space.low, space.high)))
        done = results[-1][2] | results[-1][3]
        must_reset = envs.metadata["autoreset_mode"] is DISABLED and done.any()
        if must_reset or number == 6:
            results.append(envs.reset(seed=number))
    envs.close()
    return results


def check_same(ours: Any, theirs: Any) -> None:
    """Compare nested results to the bit and to the type, except for seconds measured on the clock."""
    assert type(ours) is type(theirs)
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key in set(theirs) - {"t"}:
            check_same(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)) or getattr(theirs, "dtype", None) == np.dtype(object):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            check_same(one, other)
    else:
        assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None)
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def playable(name: str, mode: AutoresetMode) -> bool:
    """Gymnasium's array conversions fail on object arrays, and so on anybody's final observations."""
    return not (mode is SAME_STEP and name in {"ArrayConversion", "NumpyToTorch"})


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name in CASES for mode in MODES if playable(name, mode)])
def test_same_results_as_over_gymnasium(
    monkeypatch: pytest.MonkeyPatch, make_ours: Maker, name: str, mode: AutoresetMode
) -> None:
    case = CASES[name]
    for module in case.needs:
        pytest.importorskip(module)
    stand_in_for_cv2(monkeypatch)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    theirs = gym.vector.SyncVectorEnv(env_fns(SCRIPTS, case.kind), autoreset_mode=mode)
    ours = make_ours(env_fns(SCRIPTS, case.kind), autoreset_mode=mode)
    if mode in refused_modes(name):
        for envs in (ours, theirs):
            with pytest.raises(ValueError, match="autoreset_mode"):
                case.wrap(envs)
            envs.close()
        return
    wrapped, wrapped_theirs = case.wrap(ours), case.wrap(theirs)
    assert wrapped.observation_space == wrapped_theirs.observation_space
    assert wrapped.action_space == wrapped_theirs.action_space
    check_same(played(wrapped), played(wrapped_theirs))


class Clips:
    """Stands in for MoviePy: keeps the frames of every film instead of encoding them."""

    films: list[list[Any]]

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.films = []
        for name in ("moviepy", "moviepy.video", "moviepy.video.io"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        module: Any = ModuleType("moviepy.video.io.ImageSequenceClip")
        module.ImageSequenceClip = self._clip
        monkeypatch.setitem(sys.modules, module.__name__, module)

    def _clip(self, frames: list[Any], fps: int) -> Clips:
        self.films.append(list(frames))
        return self

    def write_videofile(self, path: str, logger: Any) -> None:
        """Nothing to write."""


@pytest.mark.filterwarnings("ignore:.*(same-step|Overwriting existing videos)")
@pytest.mark.parametrize("mode", MODES)
def test_record_video_films_the_same_frames(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_ours: Maker, mode: AutoresetMode
) -> None:
    clips = Clips(monkeypatch)
    films = []
    for make in (make_ours, gym.vector.SyncVectorEnv):
        envs = wrappers.RecordVideo(
            make(env_fns(SCRIPTS), autoreset_mode=mode), str(tmp_path), episode_trigger=lambda _: True
        )
        played(envs)
        films.append(clips.films[:])
        clips.films.clear()
    assert len(films[1]) > 2
    check_same(films[0], films[1])
