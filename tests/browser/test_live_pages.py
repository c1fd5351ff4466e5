"""The live page and the report in a real browser: `make browser`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import LOOKS, SIZES, opened, serious, served, until
from synthetic_runs import make_run

from envfleet.train import read_metrics, write_report

pytestmark = [pytest.mark.only_with("ENVFLEET_BROWSER"), pytest.mark.timeout(300)]

EVIL = '<img src=x onerror="window.harmed = 1"></script><script>window.harmed = 1</script>'


def drawn(page: Any, name: str) -> dict[str, Any] | None:
    """What a chart of the live page shows: its axis and lines, out of uPlot itself."""
    code = """name => {
        const chart = window.envfleet.charts.get(name);
        return chart?.plot ? {x: chart.plot.data[0], lines: chart.plot.data.slice(1)} : null;
    }"""
    found: dict[str, Any] | None = page.evaluate(code, name)
    return found


@LOOKS
def test_the_live_page_shows_the_numbers_of_metrics_csv(
    browser: Any, axe: str, size: str, scheme: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "runs" / "one", seed=3, rows=200, total_steps=400_000)
    with served(tmp_path / "runs") as address:
        page, problems = opened(browser, address, size, scheme)
        until(lambda: drawn(page, "entropy"))
        metrics = read_metrics(run)
        for name in ("entropy", "critic_loss", "episode_return"):
            chart = drawn(page, name)
            assert chart is not None
            np.testing.assert_array_equal(chart["x"], metrics["step"])
            as_logged = np.array(chart["lines"][0], np.float64)
            np.testing.assert_array_equal(as_logged, metrics[name])
        cells = page.locator("#runs tbody td[data-value]").evaluate_all("all => all.map(one => +one.dataset.value)")
        last = [float(metrics[name][np.isfinite(metrics[name])][-1]) for name in COLUMNS]
        assert cells == last
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        assert serious(page, axe) == []
        assert problems == []


def test_a_folder_without_runs_fills_as_they_come(browser: Any, tmp_path: Path) -> None:
    with served(tmp_path) as address:
        page, problems = opened(browser, address)
        until(lambda: page.locator("#lead").inner_text() == "There are no runs here yet.")
        make_run(tmp_path / "one")
        until(lambda: page.locator("#curves canvas").count() == 6)
        assert problems == []


COLUMNS = ("episode_return", "step", "steps_per_second")


@LOOKS
def test_the_report_opens_from_disk_and_loads_nothing(
    browser: Any, axe: str, size: str, scheme: str, tmp_path: Path
) -> None:
    runs = [make_run(tmp_path / f"{seed}", seed=seed) for seed in range(3)]
    rows = [{"parameter": "gravity", "value": value, "mean_return": value, "episodes": 3} for value in (-9.0, -5.0)]
    (runs[0] / "scenarios.json").write_text(json.dumps({"scenarios": rows}))
    report = write_report([*runs, make_run(tmp_path / "other", gamma=0.5)], tmp_path / "report.html")
    page, problems = opened(browser, report.as_uri(), size, scheme)
    assert page.locator("#curves canvas").count() == 6
    assert page.locator("#scenarios canvas").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert serious(page, axe) == []
    assert problems == []


def test_names_of_runs_and_metrics_do_nothing(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / EVIL.replace("/", "_"), algo=EVIL, env_id=EVIL)
    lines = (run / "metrics.csv").read_text().splitlines()
    evil = EVIL.replace(",", "")
    (run / "metrics.csv").write_text("\n".join([f"{lines[0]},{evil}", *(f"{line},1" for line in lines[1:]), ""]))
    (run / ".live").mkdir()
    state = {"time": 1, "step": 1, "num_envs": 1, "pictures": EVIL, "restarts": [{"step": 1, "env": 0, "cause": EVIL}]}
    state["envs"] = [{"return": 1, "length": 1, "parameters": {EVIL: EVIL}}]
    (run / ".live" / "state.json").write_text(json.dumps(state))
    with served(tmp_path / "runs") as address:
        page, problems = opened(browser, address)
        until(lambda: page.locator("#restarts td").count())
        assert EVIL in page.locator("#restarts").inner_text()
        assert page.evaluate("window.harmed") is None
        assert problems == []
    report = write_report(run, tmp_path / "report.html")
    page, problems = opened(browser, report.as_uri())
    assert page.evaluate("window.harmed") is None
    assert problems == []


def training(folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [
        *(sys.executable, "-m", "envfleet", "train", "CartPole-v1", "--algo", "ppo", "--num-envs", "4"),
        *("--total-steps", "5e6", "--run-dir", str(folder), "--eval-episodes", "0", "--no-showcase"),
    ]
    environ = {**os.environ, "SDL_VIDEODRIVER": "dummy"}
    return subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True, env=environ)


def test_a_run_under_way_is_shown_saved_stopped_and_filmed(browser: Any, axe: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with training(run, "--watch") as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "live page: " in line)
        page, problems = opened(browser, line.split()[-1])
        until(lambda: page.locator(".tile").count() == 4)
        until(lambda: page.locator(".tile img").count() == 4)
        assert page.locator(".tile img").first.evaluate("image => image.naturalWidth") > 100
        assert "steps/s" in until(lambda: page.locator("#speed").inner_text())
        assert serious(page, axe) == []
        before = (run / "actor.safetensors").stat().st_mtime_ns
        page.get_by_role("button", name="Save now").click()
        until(lambda: (run / "actor.safetensors").stat().st_mtime_ns != before)
        page.get_by_role("button", name="Film an episode").click()
        until(lambda: page.locator("#film video").count(), 120)
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Stop and save").click()
        rest = process.stdout.read()
        assert process.wait(60) == 130
        assert "Everything is saved" in rest
        assert [problem for problem in problems if "404" not in problem and "ERR_" not in problem] == []


def test_a_killed_run_is_shown_as_it_was(browser: Any, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "killed"
    with training(run) as process, served_when_there(tmp_path / "runs") as address:
        page, problems = opened(browser, address)
        until(lambda: page.locator(".status.running").count())
        until(lambda: page.locator(".tile").count() == 4)
        process.send_signal(signal.SIGKILL)
        until(lambda: page.locator(".status.stopped").count())
        until(lambda: (chart := drawn(page, "entropy")) and chart["x"] == list(read_metrics(run)["step"]))
        assert page.locator(".tile").count() == 4
        assert page.get_by_role("button", name="Stop and save").is_disabled()
        assert problems == []


def served_when_there(folder: Path) -> Any:
    until(lambda: any(folder.glob("*/config.json")))
    return served(folder)
