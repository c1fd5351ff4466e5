"""Scores of several runs in one number with an interval: the interquartile mean and the stratified bootstrap.

As Agarwal and others propose in "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (2021), whose
library is rliable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

REPETITIONS = 20_000
"""The ends of an interval then vary by a hundredth of its width."""


@dataclass(frozen=True)
class Interval:
    """An interquartile mean, and where 95 % of those of resampled runs lie."""

    iqm: float
    low: float
    high: float


def interquartile_mean(scores: FloatArray) -> FloatArray:
    """The mean of the last axis without its lowest and its highest quarter, each rounded down to whole scores."""
    count = scores.shape[-1]
    cut = count // 4
    kept: FloatArray = np.sort(scores, axis=-1)[..., cut : count - cut].mean(-1)
    return kept


def stratified_interval(
    tasks: Sequence[Sequence[float]], *, repetitions: int = REPETITIONS, seed: int = 0
) -> Interval | None:
    """The interquartile mean over all runs of all tasks, with its 95 % interval; None with a single run everywhere.

    Args:
        tasks: for each task the scores of its runs. Runs are drawn again within their task only, so that no resample
            has more of an easy task than there was.
        repetitions: how many resamples.
        seed: of the generator that draws them.
    """
    strata = [np.asarray(scores, dtype=np.float64) for scores in tasks]
    if all(len(scores) < 2 for scores in strata):
        return None
    generator = np.random.default_rng(seed)
    drawn = [scores[generator.integers(len(scores), size=(repetitions, len(scores)))] for scores in strata]
    low, high = np.percentile(interquartile_mean(np.concatenate(drawn, axis=1)), (2.5, 97.5))
    return Interval(float(interquartile_mean(np.concatenate(strata))), float(low), float(high))
