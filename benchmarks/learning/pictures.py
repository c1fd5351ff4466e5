"""The studies' learning curves, drawn from their CSV files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from envfleet.train import plot_runs
from envfleet.train.judging.curves import band, group_runs, load_run
from envfleet.train.judging.figures import COLOURS, GREY, columns_of, saved_figure, thousands
from envfleet.train.running.metrics import METRICS_FILE

from .results import ResultFolder, StudyResult

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
    (group,) = group_runs([load_run(run_dir) for run_dir in run_dirs])
    end = max(run.metrics["step"][-1] for run in group.runs)
    found = band(group, "episode_return", _SMOOTHING * end)
    if found is not None:
        axis.plot(found.x, found.mean, color=COLOURS[0])
        axis.fill_between(found.x, found.low, found.high, color=COLOURS[0], alpha=0.2, linewidth=0)
    axis.axhline(result.study.bar, color=COLOURS[1], linestyle="--", linewidth=0.8)
    axis.set_title(f"{result.study.algo.upper()}: {result.study.env_id}")
    axis.set_xlim(0, end)
    axis.locator_params(axis="x", nbins=5)
    axis.xaxis.set_major_formatter(thousands(end))


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
