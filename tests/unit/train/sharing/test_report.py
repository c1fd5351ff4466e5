"""`write_report`: what stands in the file is what the folders hold, and nothing in it can do or load anything."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import make_config, make_metrics, make_run

from envfleet.cli import main
from envfleet.errors import DamagedRunError
from envfleet.train import read_metrics, write_report

EVALUATION = {
    "episodes": 30,
    "mean_return": 243.25,
    "std_return": 20.0,
    "interval_low": 235.75,
    "interval_high": 250.75,
    "min_return": 101.5,
    "max_return": 290.5,
    "mean_length": 250.0,
}


class Page(HTMLParser):
    """A page's texts by table row, its elements and its embedded numbers."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = path.read_text(encoding="utf-8")
        self.rows: list[list[str]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._in_cell = False
        self.feed(self.text)
        (numbers,) = re.findall(r'<script type="application/json" id="numbers">(.*?)</script>', self.text)
        self.numbers: Any = json.loads(numbers)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data

    def row(self, label: str) -> dict[str, str]:
        """The cells of a row of the results, by column."""
        return next(dict(zip(self.rows[0], row, strict=True)) for row in self.rows if row[0] == label)


def evaluated(run: Path, **changes: Any) -> Path:
    (run / "evaluation.json").write_text(json.dumps({**EVALUATION, **changes}))
    return run


def test_the_numbers_are_those_of_the_folder(tmp_path: Path) -> None:
    run = evaluated(make_run(tmp_path / "run", rows=100))
    page = Page(write_report(run))
    assert page.row("A2C on LunarLander-v3") == {
        "run": "A2C on LunarLander-v3",
        "evaluation": "243.2 ± 7.5",
        "worst": "101.5",
        "best": "290.5",
        "episodes": "30",
        "return at the end": f"{late_returns(run):.1f}",
        "steps": "100,000",
    }
    chart = next(chart for chart in page.numbers["charts"]["curves"] if chart["name"] == "entropy")
    metrics = read_metrics(run)
    np.testing.assert_allclose(chart["x"], metrics["step"], rtol=1e-6)
    np.testing.assert_allclose(chart["lines"][0]["raw"], metrics["entropy"], rtol=1e-6)


def late_returns(run: Path) -> float:
    metrics = read_metrics(run)
    late = metrics["episode_return"][metrics["step"] > 0.9 * metrics["step"][-1]]
    return float(np.nanmean(late))


def test_seeds_are_one_band_with_an_interval_and_other_settings_another_line(tmp_path: Path) -> None:
    means = (230.0, 240.0, 250.0)
    runs = [evaluated(make_run(tmp_path / f"{seed}", seed=seed), mean_return=mean) for seed, mean in enumerate(means)]
    other = make_run(tmp_path / "other", gamma=0.9)
    page = Page(write_report([*runs, other], tmp_path / "all.html"))
    label, single = page.numbers["names"]
    assert label == "gamma=unset (3 seeds)"
    assert single == "gamma=0.9"
    # Student's t with two degrees of freedom: 4.303 * 10 / sqrt(3)
    assert page.row("gamma=unset, mean of 3 seeds")["evaluation"] == "240.0 ± 24.8"
    assert page.row("seed 1")["evaluation"] == "240.0 ± 10.8"
    chart = next(chart for chart in page.numbers["charts"]["curves"] if chart["name"] == "critic_loss")
    band, line = chart["lines"]
    assert "low" not in line
    low, mean, high = (np.array(band[name]) for name in ("low", "values", "high"))
    assert (low <= mean + 1e-6).all()
    assert (mean <= high + 1e-6).all()
    assert (high - low).max() > 0.1
    differing = [row for row in page.rows if row[0] == "gamma"]
    assert differing[0] == ["gamma", "not set", "0.9"]


def test_scenarios_and_films_are_in_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    rows = [
        {"parameter": "gravity", "value": -10.0, **EVALUATION},
        {"parameter": "gravity", "value": -5.0, **EVALUATION, "mean_return": 12.5, "interval_high": 15.0},
        {"parameter": "gravity", "value": 3.0, "error": "gravity must be\nbelow 0"},
    ]
    (run / "scenarios.json").write_text(json.dumps({"scenarios": rows}))
    film = b"\x00\x00\x00 ftypisom and so on"
    (run / "showcase.mp4").write_bytes(film)
    page = Page(write_report(run))
    (chart,) = page.numbers["charts"]["scenarios"]
    assert (chart["x"], chart["lines"][0]["values"]) == ([-10.0, -5.0], [243.25, 12.5])
    assert ["gravity = -5", "12.5 ± 2.5", "101.5", "290.5", "30"] in page.rows
    assert ["gravity = 3", "refused: gravity must be below 0"] in page.rows
    (source,) = [attributes["src"] for tag, attributes in page.elements if tag == "video"]
    assert source == f"data:video/mp4;base64,{base64.b64encode(film).decode()}"


def test_nothing_is_loaded_and_names_of_runs_are_only_texts(tmp_path: Path) -> None:
    evil = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
    runs = [make_run(tmp_path / f"<img src=x>{seed}", env_id=evil, seed=seed, note=evil) for seed in range(2)]
    make_config(make_metrics(tmp_path / "b", step=[1], episode_return=[1.0]), evil, env_id=evil, seed=1, note="x")
    page = Page(write_report([*runs, tmp_path / "b"], tmp_path / "evil.html"))
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2
    assert "img" not in tags
    for _, attributes in page.elements:
        assert not {"href", "onerror", "onload", "srcset"} & attributes.keys()
        assert (attributes.get("src") or "data:").startswith("data:")
    (policy,) = [attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes]
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy is not None
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{checksum}';")
    assert page.numbers["names"][1].startswith("</SCRIPT><SCRIPT>ALERT(1)")


def test_what_cannot_be_reported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        write_report([])
    run = make_run(tmp_path / "run")
    with pytest.raises(ValueError, match=r"must end in \.html"):
        write_report(run, tmp_path / "report.pdf")
    (run / "evaluation.json").write_text('{"episodes": "many"}')
    with pytest.raises(DamagedRunError, match="mean_return and episodes must be numbers"):
        write_report(run)
    (run / "evaluation.json").write_text("{")
    with pytest.raises(DamagedRunError, match=r"evaluation\.json is damaged"):
        write_report(run)
    assert not (run / "report.html").exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(2):
        make_run(tmp_path / "both" / f"seed{seed}", seed=seed)
    (tmp_path / "both" / "seeds.json").write_text('{"seeds": [0, 1]}')
    assert main(["report", "both"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    assert Page(tmp_path / "report.html").row("A2C on LunarLander-v3, mean of 2 seeds")
    assert main(["report", "both/seed1"]) == 0
    assert capsys.readouterr().out == "both/seed1/report.html\n"
