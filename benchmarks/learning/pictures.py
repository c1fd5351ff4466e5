"""The studies' learning curves, drawn from their CSV files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envfleet.train import plot_runs
from envfleet.train.judging.curves import band, group_runs, load_run
from envfleet.train.judging.figures import COLOURS, GREY, columns_of, saved_figure, thousands
from envfleet.train.running.metrics import METRICS_FILE

from .results import ResultFolder, StudyResult
from .studies import PeerStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OVERVIEW = "curves.png"
_SMOOTHING = 0.02


def curves_of(result: StudyResult) -> str:
    """What a study's picture is called."""
    return f"{result.study.name}.png"


def draw_study(result: StudyResult, folder: ResultFolder) -> None:
    """Every panel of one study: mean and band over its seeds."""
    with _as_runs(result, folder) as run_dirs:
        plot_runs(run_dirs, folder.path / curves_of(result), smoothing=_SMOOTHING)


def task_picture(env_id: str) -> str:
    """What the picture of all studies of a task is called."""
    return f"task-{env_id.lower().replace('/', '-')}.png"


def name_of(result: StudyResult) -> str:
    """The algorithm, and whose it is if it is not ours."""
    return result.study.algo.upper() + (" (Stable-Baselines3)" if isinstance(result.study, PeerStudy) else "")


def draw_task(results: Sequence[StudyResult], folder: ResultFolder) -> None:
    """The returns of all studies of one task, over environment steps and over minutes of training."""
    path = folder.path / task_picture(results[0].study.env_id)
    with saved_figure(path, 2, sharey=True) as (figure, (by_steps, by_time)):
        for result, colour in zip(results, COLOURS, strict=False):
            with _as_runs(result, folder) as run_dirs:
                end = _draw_band(by_steps, run_dirs, colour, name_of(result))
                for run_dir in run_dirs:
                    run = load_run(run_dir, over="seconds")
                    by_time.plot(run.x / 60, run.metrics["episode_return"], color=colour, linewidth=0.8, alpha=0.8)
            by_steps.axhline(result.study.bar, color=colour, linestyle="--", linewidth=0.8)
            by_steps.xaxis.set_major_formatter(thousands(end))
        by_steps.set_xlabel("environment steps: mean, lowest to highest")
        by_time.set_xlabel("minutes of training: each seed")
        by_steps.set_ylabel("episode return")
        by_steps.legend()
        figure.suptitle(results[0].study.env_id)


def draw_seed(result: StudyResult, seed: int, folder: ResultFolder, path: Path) -> None:
    """The returns of one seed."""
    one = replace(result, seeds=tuple(found for found in result.seeds if found.seed == seed))
    with saved_figure(path, 1) as (_, (axis,)), _as_runs(one, folder) as run_dirs:
        _draw_returns(axis, one, run_dirs)
        axis.set_ylabel("episode return")


def draw_overview(results: Sequence[StudyResult], folder: ResultFolder) -> None:
    """The returns of all studies, one panel each, with the bar to reach."""
    with saved_figure(folder.path / OVERVIEW, len(results)) as (figure, axes):
        for result, axis in zip(results, axes, strict=True):
            with _as_runs(result, folder) as run_dirs:
                _draw_returns(axis, result, run_dirs)
        for axis in axes[:: columns_of(len(axes))]:
            axis.set_ylabel("episode return")
        figure.supxlabel(
            f"Environment steps. Line: mean over {_counted(results)}. Band: lowest to highest. Dashed: what every seed "
            "has to reach\nin the end, playing without exploring; the curves are of training, with exploration.",
            fontsize=7,
            color=GREY,
        )


def _draw_returns(axis: Axes, result: StudyResult, run_dirs: Sequence[Path]) -> None:
    end = _draw_band(axis, run_dirs, COLOURS[0])
    axis.axhline(result.study.bar, color=COLOURS[1], linestyle="--", linewidth=0.8)
    axis.set_title(f"{name_of(result)}: {result.study.env_id}")
    axis.set_xlim(0, end)
    axis.locator_params(axis="x", nbins=5)
    axis.xaxis.set_major_formatter(thousands(end))


def _draw_band(axis: Axes, run_dirs: Sequence[Path], colour: str, label: str | None = None) -> float:
    """Mean and band of the seeds' returns; returns the last step."""
    (group,) = group_runs([load_run(run_dir) for run_dir in run_dirs])
    end = max(run.metrics["step"][-1] for run in group.runs)
    found = band(group, "episode_return", _SMOOTHING * end)
    if found is not None:
        axis.plot(found.x, found.mean, color=colour, label=label)
        axis.fill_between(found.x, found.low, found.high, color=colour, alpha=0.2, linewidth=0)
    return float(end)


def _counted(results: Sequence[StudyResult]) -> str:
    counts = sorted({len(result.seeds) for result in results})
    return f"{' or '.join(map(str, counts))} seed{'s' if counts != [1] else ''}"


@contextmanager
def _as_runs(result: StudyResult, folder: ResultFolder) -> Iterator[list[Path]]:
    """The seeds' curves as folders of runs, which is what envfleet draws."""
    with tempfile.TemporaryDirectory() as directory:
        run_dirs = []
        for seed, rows in folder.read_curves(result).items():
            run_dir = Path(directory) / f"seed{seed}"
            run_dir.mkdir()
            config = {**result.study.settings(quick=result.quick), "seed": seed}
            content = {"algo": result.study.algo, "custom_networks": False, "config": config}
            (run_dir / "config.json").write_text(json.dumps(content))
            (run_dir / METRICS_FILE).write_text("\n".join([folder.header(result.study), *rows, ""]))
            run_dirs.append(run_dir)
        yield run_dirs
