"""What a notebook shows: in a real IPython, of which only the kernel is made up."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripts import run_script

from envfleet.train import A2CConfig
from envfleet.train.judging.inline import PictureFile, film_html, table_html
from envfleet.train.judging.scores import Evaluation, Scenario, table
from envfleet.train.running.notebook import in_notebook
from envfleet.train.running.reporting import NotebookReporter, Progress, TrainingResult, console_reporter

pytest.importorskip("IPython")

SHELL = """
import sys
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

published = []

class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, *, transient=None, update=False, **_):
        published.append((data, metadata, (transient or {}).get("display_id"), update))

class Hook(DisplayHook):
    def write_format_data(self, format_dict, md_dict=None):
        published.append((format_dict, md_dict, None, False))
    def write_output_prompt(self): pass
    def finish_displayhook(self): pass

InteractiveShell.display_pub_class = Publisher
InteractiveShell.displayhook_class = Hook
shell = InteractiveShell.instance()
shell.kernel = object()  # this is all that tells a notebook's shell from a terminal's

def cell(source):
    published.clear()
    result = shell.run_cell(source, store_history=False)
    result.raise_error()
    return list(published)
"""


def in_ipython(code: str, folder: Path) -> list[str]:
    """The lines that the code prints, in a process of its own: a shell stays for the whole of one."""
    script = folder / "cells.py"
    script.write_text(SHELL + code)
    status, output, errors = run_script(script, [], folder)
    assert status == 0, errors + output
    return output.splitlines()


def test_training_draws_one_bar_and_everything_else_is_shown_inline(tmp_path: Path) -> None:
    """The cells of a notebook: train, curves, film, evaluation."""
    code = """
cell("from envfleet.train import *")
config = "A2CConfig('CartPole-v1', num_envs=2, total_steps=320, rollout_steps=16, backend='sync', hidden_sizes=(8,))"
shown = cell(f"result = train({config}, run_dir='run', loggers=())")
assert len({place for *_, place, _ in shown}) == 1, shown
assert [update for *_, update in shown] == [False] + [True] * (len(shown) - 1)
assert len(shown) >= 2
first, last = shown[0][0], shown[-1][0]
assert first["text/plain"].startswith("A2C on 2 x CartPole-v1, 320 steps, seed 0\\n"), first
assert '<progress value="0.0000" max="1"' in first["text/html"], first
assert '<progress value="1.0000" max="1"' in last["text/html"], last

[(curves, metadata, *_)] = cell("plot_runs(result.run_dir)")
assert curves["image/png"] == open("run/curves.png", "rb").read()
assert 300 < metadata["image/png"]["width"] < 1000, metadata

shown = cell("showcase(result.run_dir, episodes=1)")
assert [update for *_, update in shown[:-1]] == [False] + [True] * (len(shown) - 2)
assert "filming episode 1 of 1" in shown[0][0]["text/html"]
assert shown[-2][0]["text/plain"] == ""
film = shown[-1][0]["text/html"]
assert film.startswith("<video controls") and "data:video/mp4;base64," in film and "run/showcase.mp4: returns" in film

[(evaluation, *_)] = cell("evaluate(result.agent, episodes=4)")
assert evaluation["text/html"].startswith("<table>") and "CartPole-v1" in evaluation["text/html"]
[(rows, *_)] = cell("table([evaluate(result.agent, episodes=2)] * 3)")
assert rows["text/html"].count("<tr>") == 4
print("fine")
"""
    assert in_ipython(code, tmp_path)[-1] == "fine"


def test_ipython_in_a_terminal_and_python_alone_are_no_notebooks(tmp_path: Path) -> None:
    assert not in_notebook()
    assert not isinstance(console_reporter(), NotebookReporter)
    code = """
from envfleet.train.running.notebook import in_notebook
first = in_notebook()
del shell.kernel
print(first, in_notebook())
"""
    assert in_ipython(code, tmp_path) == ["True False"]


class Places:
    """Stands for IPython's display, and remembers what was shown."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def __call__(self, content: dict[str, str], raw: bool, display_id: bool) -> Places:
        assert raw
        assert display_id
        self.shown.append(content)
        return self

    def update(self, content: dict[str, str], raw: bool) -> None:
        self.shown.append(content)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    made = Places()
    monkeypatch.setattr("IPython.display.display", made)
    return made


def progress(step: int) -> Progress:
    agent: Any = None
    envs: Any = None
    return Progress(step, 1_000_000, 65.0, 34, 12.5, {}, agent, envs)


def test_the_bar_is_drawn_twice_per_second(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    now = [1000.0]
    reporter = NotebookReporter(lambda: now[0])
    reporter.begin(A2CConfig("A<b>-v0", total_steps=1_000_000), Path("runs/x"), "sync: it is quick.", 0)
    for second in range(1, 31):
        now[0] += 0.1
        reporter.report(progress(second * 1000))
    assert len(places.shown) == 1 + 6
    assert "A&lt;b&gt;-v0" in places.shown[-1]["text/html"]
    assert places.shown[-1]["text/plain"].endswith("  return 12.5  1:05, 1:37 left")
    assert 'value="0.0260"' in places.shown[-1]["text/html"]
    agent: Any = SimpleNamespace(config=A2CConfig("CartPole-v1"))
    reporter.end(TrainingResult(Path("runs/x"), agent, 30_000, 100.0, None, finished=False))
    assert 'value="0.0300"' in places.shown[-1]["text/html"]
    assert capsys.readouterr().out.startswith("Stopped at 30,000 of 1,000,000 steps")


def test_a_run_that_fails_leaves_the_bar_as_it_was(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    reporter = NotebookReporter()
    reporter.begin(A2CConfig("CartPole-v1"), Path("runs/x"), "", 0)
    reporter.end(None)
    assert len(places.shown) == 1
    assert capsys.readouterr().out == ""


def test_a_large_film_is_shown_as_its_still(tmp_path: Path) -> None:
    film, still = tmp_path / "a.mp4", tmp_path / "a.png"
    still.write_bytes(b"\x89PNG")
    assert "a.mp4 is not there any more" in film_html(film, still, "x < y")
    film.write_bytes(bytes(100))
    assert "<video" in film_html(film, still, "x < y")
    assert "x &lt; y" in film_html(film, still, "x < y")
    with film.open("r+b") as file:
        file.truncate(30_000_000)
    assert 'src="data:image/png;base64,' in film_html(film, still, "")
    gif = tmp_path / "a.gif"
    gif.write_bytes(b"GIF89a")
    assert 'src="data:image/gif;base64,' in film_html(gif, still, "")


def test_a_picture_is_still_a_path(tmp_path: Path) -> None:
    path = PictureFile(tmp_path / "curves.png")
    assert path == tmp_path / "curves.png"
    assert hash(path) == hash(tmp_path / "curves.png")
    assert pickle.loads(pickle.dumps(path)) == path
    assert path._repr_png_() is None  # not there
    assert path.parent._repr_png_() is None
    svg = PictureFile(tmp_path / "curves.svg")
    svg.write_text("<svg/>")
    assert (svg._repr_svg_(), svg._repr_png_()) == ("<svg/>", None)


def test_tables_say_in_a_page_what_they_say_in_text() -> None:
    found = Evaluation("X-v0", 0, (1.0, 2.0), (3, 4), {"gravity": -5.0}, cut=1)
    rows = [found, Scenario("gravity", -9.0, evaluation=found), Scenario("gravity", -13.0, error="must be\n> -12")]
    text = table(rows)
    page: str = text._repr_html_()  # type: ignore[attr-defined]
    for part in ("gravity=-5", "gravity=-9", "1.500 ± 6.353", "refused: must be &gt; -12", "2 episodes"):
        assert part in page
    assert 'colspan="7"' in page
    assert pickle.loads(pickle.dumps(text)) == text
    assert found._repr_html_() == table([found])._repr_html_()  # type: ignore[attr-defined]
    assert "gravity=-13" in rows[2]._repr_html_()
    assert table_html(["a"], [["<b>"]]) == "<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>"
