from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selection import left_to_test_all

pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import beside_sb3  # noqa: E402
import both_learners  # noqa: E402
import training_speed  # noqa: E402
import watching  # noqa: E402
from harness.installation import InstallationError  # noqa: E402
from harness.machine import this_machine  # noqa: E402
from harness.pages import section_of  # noqa: E402
from learning import gallery, jobs, report, results, run, sb3_run  # noqa: E402
from learning.aggregates import interquartile_mean, stratified_interval  # noqa: E402
from learning.published import PUBLISHED  # noqa: E402
from learning.studies import ALL_STUDIES, PEER_STUDIES, STUDIES, study_named  # noqa: E402
from peers import contests, curves, matches, plain_training, sides, verdicts  # noqa: E402

from envfleet.train import A2CConfig, PPOConfig, SACConfig, evaluate, preset  # noqa: E402

CARTPOLE = study_named("cartpole-a2c")


def called(main: Callable[[], int | None], *arguments: str) -> tuple[str, str]:
    """What a script prints, called in this process, which has torch already; the runs get processes of their own."""
    output, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["script", *arguments])
        assert not main(), errors.getvalue()
    return output.getvalue(), errors.getvalue()


def whole_script(test: Callable[..., None]) -> Callable[..., None]:
    """Runs a script with all the processes it starts: for `make test-all`. Its pieces are tested one by one."""
    return left_to_test_all()(pytest.mark.slow(pytest.mark.timeout(600)(test)))


# --- learning/run.py, as a whole -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_studies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Two seeds side by side, then one of them again and a third one alone: the folder and what was printed last."""
    work = tmp_path_factory.mktemp("learning")
    common = ("--quick", "--study", "cartpole-a2c", "--work", str(work))
    called(run.main, *common, "--seeds", "0", "1", "--parallel", "2")
    return work, *called(run.main, *common, "--seeds", "1", "2")


@whole_script
def test_seeds_run_at_different_times_end_up_in_one_result(tiny_studies: Any) -> None:
    found = json.loads((tiny_studies[0] / "results" / "cartpole-a2c.json").read_text())
    assert found["study"] == dataclasses.asdict(CARTPOLE)
    assert found["config"] == CARTPOLE.settings(quick=True)
    assert found["reaches_bar"] is False
    assert [entry["seed"] for entry in found["seeds"]] == [0, 1, 2]
    assert [entry["side_by_side"] for entry in found["seeds"]] == [2, 2, 1]
    assert [entry["backend"] for entry in found["seeds"]] == ["native", "native", "auto"]
    assert found["seeds"][1]["command"].endswith("--study cartpole-a2c --seeds 0 1 --parallel 2 --quick")
    assert "seed 1: done before" in tiny_studies[2]


@whole_script
def test_a_seeds_figures_are_those_of_its_run_and_evaluation(tiny_studies: Any) -> None:
    for entry in json.loads((tiny_studies[0] / "results" / "cartpole-a2c.json").read_text())["seeds"]:
        assert entry["min_return"] <= entry["mean_return"] <= entry["max_return"]
        assert entry["interval_low"] <= entry["mean_return"] <= entry["interval_high"]
        assert entry["mean_length"] == entry["mean_return"]
        assert entry["episodes"] == 2
        assert entry["passes"] is False
        assert entry["steps"] == CARTPOLE.config(0, "sync", quick=True).total_steps
        assert entry["steps_per_second"] == pytest.approx(entry["steps"] / entry["training_seconds"])
        assert {"python", "envfleet", "gymnasium", "numpy", "torch"} <= entry["machine"]["versions"].keys()
        assert len(entry["load_before"]) == len(entry["load_after"]) == 3
        assert entry["plan"]


@whole_script
def test_curves_tables_and_pictures_lie_beside_the_figures(tiny_studies: Any) -> None:
    folder = tiny_studies[0] / "results"
    rows = list(csv.DictReader((folder / "cartpole-a2c.csv").read_text().splitlines()))
    assert [row["seed"] for row in rows] == sorted(row["seed"] for row in rows)
    assert {row["seed"] for row in rows} == {"0", "1", "2"}
    assert {"step", "seconds", "episode_return", "critic_loss"} <= rows[0].keys()
    assert rows[-1]["step"] == str(CARTPOLE.config(0, "sync", quick=True).total_steps)
    for picture in ("cartpole-a2c.png", "curves.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
        assert picture in (folder / "README.md").read_text()
    assert "| cartpole-a2c |" in tiny_studies[1]


@whole_script
def test_no_path_of_this_machine_gets_into_the_results(tiny_studies: Any) -> None:
    work = tiny_studies[0]
    for name in ("cartpole-a2c.json", "cartpole-a2c.csv", "README.md"):
        assert str(work) not in (work / "results" / name).read_text()


# --- learning, piece by piece ----------------------------------------------------------------------------


def seed_result(seed: int, mean_return: float = 500.0, side_by_side: int = 1) -> results.SeedResult:
    return results.SeedResult(
        seed=seed,
        passes=mean_return >= CARTPOLE.bar,
        mean_return=mean_return,
        std_return=1.0,
        interval_low=mean_return - 2.0,
        interval_high=mean_return + 2.0,
        min_return=mean_return - 5.0,
        max_return=mean_return + 5.0,
        mean_length=mean_return,
        episodes=100,
        training_return=None,
        steps=1_000,
        training_seconds=2.0,
        steps_per_second=500.0,
        evaluation_seconds=1.0,
        backend="auto",
        plan="sync",
        side_by_side=side_by_side,
        load_before=(0.0, 0.0, 0.0),
        load_after=(0.0, 0.0, 0.0),
        command="python benchmarks/learning/run.py",
        machine=this_machine(),
    )


def a_run(path: Path, rows: int = 3) -> Path:
    path.mkdir(parents=True)
    lines = [f"{10 * (row + 1)},{row}.5,{float(row)}" for row in range(rows)]
    (path / "metrics.csv").write_text("\n".join(["step,seconds,episode_return", *lines, ""]))
    return path


def test_the_studies_train_with_the_settings_envfleet_comes_with() -> None:
    for study in STUDIES:
        config = study.config(3, "sync")
        assert config.total_steps <= study.most_steps
        shipped = dataclasses.replace(preset(study.env_id, study.algo), seed=3, backend="sync")
        assert dataclasses.replace(config, total_steps=shipped.total_steps) == shipped


def test_a_seed_run_again_takes_the_place_of_its_earlier_result(tmp_path: Path) -> None:
    folder, run = results.ResultFolder(tmp_path / "results", quick=False), a_run(tmp_path / "run")
    for found in (seed_result(1), seed_result(0), seed_result(1, mean_return=3.0)):
        folder.add(CARTPOLE, found, run)
    read = folder.read(CARTPOLE)
    assert read.seeds == (seed_result(0), seed_result(1, mean_return=3.0))
    assert not read.passes
    assert folder.read_curves(read) == {seed: ["10,0.50,0", "20,1.50,1", "30,2.50,2"] for seed in (0, 1)}


def test_seeds_trained_with_other_settings_do_not_count(tmp_path: Path) -> None:
    folder, run = results.ResultFolder(tmp_path, quick=False), a_run(tmp_path / "run")
    folder.add(CARTPOLE, seed_result(0), run)
    path = folder.json_of(CARTPOLE)
    path.write_text(path.read_text().replace('"gamma": 0.99', '"gamma": 0.5'))
    assert folder.read(CARTPOLE).seeds == ()
    folder.add(CARTPOLE, seed_result(1), run)
    assert list(folder.read_curves(folder.read(CARTPOLE))) == [1]
    assert {line.split(",")[0] for line in folder.csv_of(CARTPOLE).read_text().splitlines()} == {"seed", "1"}


def test_a_bar_is_for_the_worst_seed_or_for_the_interquartile_mean() -> None:
    seeds = tuple(seed_result(seed, mean_return=value) for seed, value in enumerate((9.0, 600.0, 600.0, 600.0, 700.0)))
    worst = results.StudyResult(CARTPOLE, False, seeds)
    iqm = results.StudyResult(dataclasses.replace(CARTPOLE, judged_by="iqm"), False, seeds)
    assert (worst.passes, iqm.passes, iqm.iqm) == (False, True, 600.0)
    assert "500 (IQM) | yes" in " ".join(report.summary_text([iqm]).split())
    late = dataclasses.replace(seeds[1], steps=CARTPOLE.most_steps + 1)
    assert not iqm.with_seed(late).passes
    low = results.StudyResult(dataclasses.replace(CARTPOLE, judged_by="iqm", bar=601.0), False, seeds)
    assert not low.passes


def test_seeds_trained_before_a_setting_came_still_count(tmp_path: Path) -> None:
    folder, run = results.ResultFolder(tmp_path, quick=False), a_run(tmp_path / "run")
    folder.add(CARTPOLE, seed_result(0), run)
    path = folder.json_of(CARTPOLE)
    found = json.loads(path.read_text())
    del found["config"]["randomize_on"]
    assert found["config"].pop("normalize_rewards") is False
    path.write_text(json.dumps(found))
    folder.add(CARTPOLE, seed_result(1), run)
    assert [seed.seed for seed in folder.read(CARTPOLE).seeds] == [0, 1]


def test_a_seed_with_more_metrics_leaves_the_curves_of_the_others_as_they_were(tmp_path: Path) -> None:
    folder, run = results.ResultFolder(tmp_path / "results", quick=False), a_run(tmp_path / "run", rows=1)
    folder.add(CARTPOLE, seed_result(0), run)
    (run / "metrics.csv").write_text("step,episodes,seconds,episode_return\n10,7,0.5,1.0\n")
    folder.add(CARTPOLE, seed_result(1), run)
    assert folder.csv_of(CARTPOLE).read_text().splitlines() == [
        "seed,step,episodes,seconds,episode_return",
        "0,10,,0.50,0",
        "1,10,7,0.50,1",
    ]


def test_the_committed_page_shows_every_study_that_has_run() -> None:
    folder = results.ResultFolder(Path(run.__file__).parent / "results", quick=False)
    page = (folder.path / "README.md").read_text()
    for study in ALL_STUDIES:
        if folder.json_of(study).exists():
            assert folder.read(study).seeds, f"{study.name} was trained with other settings than today's: run it again"
            assert f"## {study.name}\n" in page
        else:
            assert f"--study {study.name} --seeds {' '.join(map(str, study.usual_seeds))}" in page


@pytest.mark.parametrize("algo", ["a2c", "ppo", "sac", "td3", "dqn"])
def test_the_docs_show_the_committed_results(algo: str) -> None:
    folder = results.ResultFolder(Path(run.__file__).parent / "results", quick=False)
    found = [folder.read(study) for study in STUDIES if study.algo == algo]
    text = (BENCHMARKS.parent / "docs" / f"{algo}.md").read_text()
    assert report.with_results(text, algo, found) == text


def test_long_metrics_are_thinned_to_means_and_last_counts() -> None:
    rows = 4 * results.ROWS_A_SEED
    columns = {
        "step": np.arange(1.0, rows + 1) * 1_000,
        "seconds": np.arange(1.0, rows + 1),
        "episode_return": np.where(np.arange(rows) % 4 == 0, np.nan, np.arange(rows, dtype=np.float64)),
        "entropy": np.full(rows, np.nan),
    }
    lines = results.thinned(columns)
    assert len(lines) == results.ROWS_A_SEED
    assert lines[0] == "4000,4.00,2,"
    assert lines[-1].startswith(f"{rows * 1_000},")


def test_runs_that_shared_the_machine_are_marked_and_not_timed() -> None:
    found = results.StudyResult(CARTPOLE, False, (seed_result(0, side_by_side=2), seed_result(1, mean_return=99.0)))
    text = report.seeds_text([found])
    assert "500* |" in text
    assert "shared the machine" in text
    summary = report.summary_text([found])
    assert [cell.strip() for cell in summary.splitlines()[-1].split("|")[1:-1]] == [
        "cartpole-a2c", "2", "299.5", "299.5", "99.0 to 500.0", "99.0", "500", "NO", "1,000", "0.0", "500",
    ]  # fmt: skip
    shared = results.StudyResult(CARTPOLE, False, (seed_result(0, side_by_side=2),))
    assert "not timed" in report.summary_text([shared])


def test_a_run_that_fails_is_named_and_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import json, pathlib, sys\n"
        "request = json.loads(sys.argv[1])\n"
        "if request['seed'] == 0: sys.exit('no engine')\n"
        "pathlib.Path(sys.argv[2]).mkdir(parents=True)\n"
        "evaluation = dict.fromkeys(('std_return', 'min_return', 'max_return', 'mean_length'), 1.0)\n"
        "evaluation |= dict(mean_return=500.0, interval_low=1.0, interval_high=1.0, episodes=100)\n"
        "print('a line of chatter')\n"
        "print(json.dumps({'steps': 8, 'training_seconds': 2.0, 'steps_per_second': 4.0, 'training_return': None,\n"
        "    'plan': request['backend'], 'evaluation_seconds': 1.0, 'evaluation': evaluation,\n"
        "    'load_before': [0, 0, 0], 'load_after': [0, 0, 0]}))\n"
    )
    monkeypatch.setattr(jobs, "SCRIPT", script)
    way = jobs.Way(2, quick=True, work=tmp_path / "work", command="command")
    wanted = [jobs.Job(CARTPOLE, seed, way) for seed in (0, 1)]
    said: list[str] = []
    ((job, found),) = list(jobs.run_all(wanted, 2, said.append))
    assert (job.seed, found.passes, found.plan, found.side_by_side) == (1, True, "native", 2)
    assert any("cartpole-a2c, seed 0 failed" in line and "no engine" in line for line in said)
    assert wanted[0].earlier_result() is None
    assert wanted[1].earlier_result() == found
    assert jobs.Job(CARTPOLE, 1, dataclasses.replace(way, quick=False)).earlier_result() is None
    wanted[1].forget()
    assert wanted[1].earlier_result() is None


def test_the_interquartile_mean_leaves_the_extremes_out() -> None:
    for scores, expected in (
        ([7.0], 7.0),
        ([1.0, 2.0, 6.0], 3.0),  # a quarter of three is less than one
        ([100.0, 1.0, 3.0, 4.0, -9.0], 8.0 / 3),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 77.0], 3.5),
    ):
        assert interquartile_mean(np.array(scores)) == pytest.approx(expected)
    assert interquartile_mean(np.array([[1.0, 2.0, 3.0, 99.0], [0.0, 5.0, 7.0, 8.0]])).tolist() == [2.5, 6.0]


def test_the_interval_is_that_of_all_resamples() -> None:
    scores = (3.0, 1.0, 4.0, 1.5, 9.0)
    everything = np.array(list(itertools.product(scores, repeat=5)))  # each of the 3,125 equally likely
    low, high = np.percentile(interquartile_mean(everything), (2.5, 97.5))
    found = stratified_interval([scores])
    assert found is not None
    assert found.iqm == pytest.approx((1.5 + 3.0 + 4.0) / 3)
    assert (found.low, found.high) == (pytest.approx(low, abs=0.1), pytest.approx(high, abs=0.1))
    assert found == stratified_interval([scores])


def test_runs_are_drawn_within_their_task() -> None:
    found = stratified_interval([[0.0] * 5, [10.0] * 5])  # over both together, many a resample would have another IQM
    assert found is not None
    assert (found.low, found.iqm, found.high) == (5.0, 5.0, 5.0)
    assert stratified_interval([[1.0], [2.0]]) is None


def test_what_has_not_run_is_named_with_its_command() -> None:
    found = results.StudyResult(CARTPOLE, False, (seed_result(0), seed_result(3)))
    page = report.page_text([CARTPOLE, study_named("pendulum-sac-sb3")], [found])
    assert "--study cartpole-a2c --seeds 1 2 4\n" in page
    assert "--study pendulum-sac-sb3 --seeds 0 1 2\n" in page
    everything = results.StudyResult(CARTPOLE, False, tuple(map(seed_result, range(5))))
    assert "Not run yet" not in report.page_text([CARTPOLE], [everything])


def test_published_figures_stand_beside_ours() -> None:
    assert {entry.env_id for entry in PUBLISHED} >= {study.env_id for study in STUDIES}
    text = report.task_text([results.StudyResult(CARTPOLE, False, (seed_result(0),))])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    assert ["A2C", "1", "1,000", "500.0", "500.0", "CartPole-v1", "measured here"] in rows
    assert ["PPO", "1", "100,000", "500.0", "", "CartPole-v1", "RL Zoo (SB3), benchmark.md"] in rows


def test_a_peer_is_run_as_our_studies_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_named("pendulum-sac-sb3")
    script = tmp_path / "script.py"
    script.write_text(
        "import json, sys\n"
        "request = json.loads(sys.argv[1])\n"
        "print(json.dumps({'steps': request['total_steps'], 'training_seconds': 2.0, 'steps_per_second': 4.0,\n"
        "    'training_return': None, 'plan': 'theirs', 'evaluation_seconds': 1.0, 'backend': 'DummyVecEnv',\n"
        "    'returns': [-100.0, -200.0], 'lengths': [200, 200], 'versions': {'stable_baselines3': '2.9.0'},\n"
        "    'load_before': [0, 0, 0], 'load_after': [0, 0, 0]}))\n"
    )
    monkeypatch.setattr(jobs, "PEER_SCRIPT", script)
    monkeypatch.setattr(jobs, "peer_python", lambda *_: sys.executable)
    job = jobs.Job(study, 2, jobs.Way(1, quick=True, work=tmp_path / "work", command="command"))
    job.run_dir.mkdir(parents=True)
    found = job.run()
    assert (found.mean_return, found.steps, found.backend, found.passes) == (-150.0, 640, "DummyVecEnv", True)
    assert found.machine.versions["stable_baselines3"] == "2.9.0"
    assert job.earlier_result() == found
    assert dataclasses.replace(job, way=dataclasses.replace(job.way, quick=False)).earlier_result() is None


def test_a_peer_that_cannot_be_installed_fails_like_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> str:
        raise InstallationError("no such package")

    monkeypatch.setattr(jobs, "peer_python", refused)
    said: list[str] = []
    wanted = jobs.Job(PEER_STUDIES[0], 0, jobs.Way(1, quick=True, work=tmp_path, command=""))
    assert not list(jobs.run_all([wanted], 1, said.append))
    assert any("cartpole-ppo-sb3, seed 0 failed: no such package" in line for line in said)


class FakeModel:
    """What `Saved` asks of a model of Stable-Baselines3."""

    def __init__(self, num_timesteps: int) -> None:
        self.num_timesteps = num_timesteps

    def save(self, path: Path) -> None:
        path.write_text(str(self.num_timesteps))

    def get_vec_normalize_env(self) -> None:
        return None


def test_a_peers_run_goes_on_from_its_latest_whole_checkpoint(tmp_path: Path) -> None:
    request, folder = {"total_steps": 100}, tmp_path / "run"
    saved = sb3_run.Saved(folder, request)
    assert saved.checkpoint is None
    saved.save(FakeModel(10), {"seconds": 1.0, "episodes": [[5, 1.0, 0.5]]}, 1.0)
    saved.save(FakeModel(20), {"seconds": 1.0, "episodes": [[5, 1.0, 0.5]]}, 2.5)
    (folder / "checkpoint-30").mkdir()  # killed while it was written
    again = sb3_run.Saved(folder, request)
    assert again.checkpoint == folder / "checkpoint-20"
    assert again.progress == {"seconds": 2.5, "episodes": [[5, 1.0, 0.5]]}
    assert sb3_run.Saved(folder, {"total_steps": 200}).checkpoint is None


# --- gallery ---------------------------------------------------------------------------------------------

AGENTS = sorted(path.parent for path in gallery.AGENTS.glob(f"*/{gallery.FACTS}"))


def test_the_gallerys_page_shows_the_agents_that_are_there() -> None:
    page = (gallery.AGENTS / "README.md").read_text()
    assert page == gallery.page_text(gallery.AGENTS)
    for path in AGENTS:
        assert f"({path.name}/{gallery.CURVE})" in page
        assert all(file.stat().st_size <= gallery.LARGEST_FILM for file in path.iterdir())


@pytest.mark.parametrize("path", AGENTS, ids=lambda path: path.name)
def test_an_agent_of_the_gallery_plays_as_well_as_its_page_says(path: Path) -> None:
    said = json.loads((path / gallery.FACTS).read_text())["evaluation"]
    pytest.importorskip("mujoco" if "-v5" in said["env_id"] else "gymnasium")
    if "Lander" in said["env_id"] or "Walker-v3" in said["env_id"]:
        pytest.importorskip("Box2D")
    found = evaluate(path, episodes=20)
    assert found.env_id == said["env_id"]
    # Four standard errors of the mean of so few episodes.
    assert found.mean_return == pytest.approx(said["mean_return"], abs=4 * said["std_return"] / math.sqrt(20) + 1e-6)


def test_the_best_seed_of_a_task_goes_into_the_gallery(tmp_path: Path) -> None:
    folder = results.ResultFolder(tmp_path / "results", quick=False)
    for seed, mean_return in ((0, 400.0), (1, 480.0), (2, 450.0)):
        run = a_run(tmp_path / "work" / CARTPOLE.name / f"seed{seed}")
        folder.add(CARTPOLE, seed_result(seed, mean_return), run)
        if seed != 1:  # whose run is gone
            (run / "actor.safetensors").touch()
    found = gallery.best_of("CartPole-v1", folder, tmp_path / "work")
    assert found is not None
    assert (found.found.seed, found.command) == (2, "envfleet train CartPole-v1 --algo a2c --seed 2")
    assert gallery.best_of("Pendulum-v1", folder, tmp_path / "work") is None


def test_more_steps_than_allowed_do_not_pass() -> None:
    job = jobs.Job(CARTPOLE, 0, jobs.Way(1, quick=False, work=Path(), command=""))
    evaluation = dict.fromkeys(("std_return", "interval_low", "interval_high", "min_return", "max_return"), 0.0)
    evaluation |= {"mean_return": 500.0, "mean_length": 500.0, "episodes": 100}
    outcome = {
        "steps": CARTPOLE.most_steps,
        "training_seconds": 1.0,
        "steps_per_second": 1.0,
        "training_return": 1.0,
        "plan": "",
        "evaluation_seconds": 1.0,
        "load_before": [0, 0, 0],
        "load_after": [0, 0, 0],
    }
    assert job.result_of({**outcome, "evaluation": evaluation}).passes
    assert not job.result_of({**outcome, "steps": CARTPOLE.most_steps + 1, "evaluation": evaluation}).passes
    peer = dataclasses.replace(job, study=study_named("cartpole-ppo-sb3"))
    # It finishes a rollout that it has begun, of 32 steps of 8 environments.
    assert peer.result_of({**outcome, "steps": 100_096, "evaluation": evaluation}).passes
    assert not peer.result_of({**outcome, "steps": 100_257, "evaluation": evaluation}).passes
    assert not job.result_of({**outcome, "evaluation": {**evaluation, "mean_return": 499.9}}).passes


def refused(
    parse: Callable[[], Any], arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setattr(sys, "argv", ["script", *arguments.split()])
    with pytest.raises(SystemExit, match="2"):
        parse()
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"), [("--study chess-a2c", "lunarlander-a2c"), ("--parallel 0", "1 or more, got 0")]
)
def test_wrong_arguments_of_the_studies_are_refused(
    arguments: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(run.parse_arguments, arguments, monkeypatch, capsys)


# --- training_speed.py, as a whole -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_speed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    path = tmp_path_factory.mktemp("speed") / "result.json"
    goals = ("--goals", "-10000", "10000", "--time-budget", "4")
    arguments = ("--quick", "--no-peers", "--algos", "a2c", *goals, "--json", str(path))
    output, _ = called(training_speed.main, *arguments)
    return output, json.loads(path.read_text())


@whole_script
def test_our_speed_is_measured_over_whole_rollouts(tiny_speed: tuple[str, dict[str, Any]]) -> None:
    (speed,) = tiny_speed[1]["speed"]
    ours, torch = speed["contestants"]
    assert torch["name"] == "envfleet, learner='torch'"
    assert (speed["algo"], speed["steps"], speed["ratio"], speed["best_peer"]) == ("a2c", 1280, None, None)
    assert ours["name"] == "envfleet"
    assert ours["outcomes"][0]["steps"] == 1280
    assert ours["outcomes"][0]["set_up_seconds"] > 0
    assert ours["steps_per_second"] == pytest.approx(1280 / ours["outcomes"][0]["seconds"])


@whole_script
def test_the_time_to_a_return_is_noted_or_null(tiny_speed: tuple[str, dict[str, Any]]) -> None:
    (found,) = tiny_speed[1]["time_to_return"]
    (ours,) = found["contestants"]
    (outcome,) = ours["outcomes"]
    # A machine as busy as can be may not see 100 episodes end in time.
    goals = [reached["goal"] for reached in outcome["reached"]]
    assert goals in ([], [-10000.0])
    assert ours["seconds_to"] == {
        "-10000": outcome["reached"][0]["seconds"] if goals else None,
        "10000": None,
    }
    assert outcome["seconds"] > 4


@whole_script
def test_the_profile_shares_out_the_whole_time(tiny_speed: tuple[str, dict[str, Any]]) -> None:
    (found,) = tiny_speed[1]["profile"]
    assert list(found["shares"]) == ["policy and engine in one call", "update", "bookkeeping"]
    assert all(share > 0 for share in found["shares"].values())
    assert sum(found["shares"].values()) == pytest.approx(1.0)
    assert found["steps_per_second"] == pytest.approx(found["steps"] / sum(found["seconds"].values()))


@whole_script
def test_settings_machine_and_command_are_written_down(tiny_speed: tuple[str, dict[str, Any]]) -> None:
    output, result = tiny_speed
    assert result["command"].startswith("python benchmarks/training_speed.py --algos a2c --goals -10000")
    assert result["machine"]["versions"].keys() >= {"torch", "gymnasium", "envfleet"}
    assert len(result["load_before"]) == len(result["load_after"]) == 3
    assert result["settings"]["same"][0]["theirs"][0]["settings"]["n_steps"] == 128
    assert result["plan"]["goals"] == [-10000.0, 10000.0]
    assert (result["requirements"], result["all_met"]) == ([], None)
    assert "Where our time goes" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [("--goals 230 200", "must grow"), ("--turns 0", "1 or more, got 0"), ("--seeds 0 1", "3 or more")],
)
def test_wrong_arguments_of_the_comparison_are_refused(
    arguments: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(training_speed.parse_arguments, arguments, monkeypatch, capsys)


# --- training_speed.py, piece by piece -------------------------------------------------------------------


def outcome(seconds: float, reached: dict[float, float] | None = None, steps: int = 1_000) -> sides.Outcome:
    goals = tuple(sides.Reached(goal, after, 1) for goal, after in (reached or {}).items())
    return sides.Outcome(0, steps, seconds, 0.1, None, goals, "plan")


def runs(name: str, *outcomes: sides.Outcome) -> contests.Runs:
    return contests.Runs(name, outcomes)


def a_report(speed: contests.SpeedResult, goal: contests.GoalResult) -> verdicts.Report:
    nothing = (0.0, 0.0, 0.0)
    plan = contests.Plan(1_000, 3, 100, 5, 3, (0, 1, 2), (200.0, 230.0), 60.0)
    return verdicts.Report("command", this_machine(), nothing, nothing, plan, (speed,), (goal,), ())


def test_both_sides_have_the_same_settings() -> None:
    a2c, ppo = (matches.same_settings(algo) for algo in matches.ALGOS)
    for match in (a2c, ppo):
        ours, (peer,) = match.ours, match.theirs
        assert isinstance(ours, (A2CConfig, PPOConfig))
        theirs = peer.settings
        assert ours.num_envs == peer.num_envs
        assert ours.actor_lr == ours.critic_lr == theirs["learning_rate"]
        assert (ours.rollout_steps, ours.gamma, ours.gae_lambda, ours.entropy_coef) == tuple(
            theirs[name] for name in ("n_steps", "gamma", "gae_lambda", "ent_coef")
        )
        assert not ours.anneal
        assert not peer.anneal
        assert match.whole_rollouts(100_000) % match.rollout == 0
    assert isinstance(ppo.ours, PPOConfig)
    assert (ppo.ours.minibatch_size, ppo.ours.epochs) == (64, 4)
    assert (ppo.theirs[0].settings["batch_size"], ppo.theirs[0].settings["n_epochs"]) == (64, 4)


@pytest.mark.parametrize("more", [{}, {"batch_size": 64, "n_epochs": 2}])
def test_the_plain_loop_makes_whole_rollouts(more: dict[str, int]) -> None:
    settings = {
        "n_steps": 64,
        "learning_rate": 1e-3,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "ent_coef": 0.0,
        "vf_coef": 0.5,
    }
    request = {"env_id": "CartPole-v1", "num_envs": 2, "threads": 1, "seed": 0, "total_steps": 250}
    found = plain_training.train({**request, "algo": "ppo" if more else "a2c", "settings": {**settings, **more}})
    assert found["steps"] == 256
    outcome = sides._outcome(0, found)
    assert outcome.steps_per_second > 0
    assert outcome.last_return is None, "hardly a hundred episodes yet"


def test_we_are_held_against_their_fastest_way() -> None:
    slow, fast = runs("slow", outcome(9.0), outcome(9.0)), runs("fast", outcome(4.0), outcome(4.0))
    speed = contests.SpeedResult("a2c", 1_000, runs("envfleet", outcome(1.0), outcome(2.0)), (slow, fast))
    assert speed.best is not None
    assert speed.best.name == "fast"
    assert speed.ratios == (4.0, 2.0)
    assert speed.ratio == pytest.approx(750 / 250)


def test_most_seeds_have_to_reach_a_return() -> None:
    found = runs("x", outcome(9.0, {200.0: 5.0}), outcome(9.0, {200.0: 3.0}), outcome(9.0))
    assert found.seconds_to(200.0) == 5.0
    assert runs("x", outcome(9.0, {200.0: 5.0}), outcome(9.0)).seconds_to(200.0) == math.inf


def test_a_peer_that_gave_up_leaves_a_lower_bound() -> None:
    mine = runs("envfleet", outcome(30.0, {200.0: 10.0, 230.0: 20.0}))
    short, long = runs("short", outcome(15.0)), runs("long", outcome(60.0, {200.0: 50.0}))
    found = contests.GoalResult("a2c", mine, (short, long), ())
    assert found.ratio(200.0) == (5.0, False)
    assert found.ratio(230.0) == (3.0, True)
    quickest = found.quickest(230.0)
    assert quickest is not None
    assert quickest.name == "long"
    assert contests.GoalResult("a2c", short, (long,), ()).ratio(200.0) is None


def test_learners_are_compared_and_results_of_several_commands_are_kept() -> None:
    learners = contests.LearnerResult("sac", 400, runs("envfleet", outcome(1.0)), runs("torch", outcome(3.5)))
    speed = contests.SpeedResult("a2c", 1_000, runs("envfleet", outcome(1.0)), (runs("dummy", outcome(1.9)),))
    goal = contests.GoalResult("ppo", runs("envfleet", outcome(10.0)), (runs("RL Zoo", outcome(60.0)),), ())
    first = verdicts.merged({}, a_report(speed, goal).as_json())
    assert first["commands"] == ["command"]
    later = dataclasses.replace(
        a_report(speed, goal), command="another", speed=(), time_to_return=(), learners=(learners,)
    )
    assert [verdict.measured for verdict in later.verdicts] == pytest.approx([3.5])
    assert "| SAC, our learners, 400 steps: steps/s |" in verdicts.report_text(later)
    both = verdicts.merged(first, later.as_json())
    assert both["commands"] == ["command", "another"]
    assert both["speed"] == first["speed"]
    assert [result["algo"] for result in both["learners"]] == ["sac"]
    elsewhere = {**later.as_json(), "machine": {**first["machine"], "processor": "another"}}
    mixed = verdicts.merged(first, elsewhere)
    assert [result["machine"] for result in mixed["speed"]] == [first["machine"]]
    assert [result["machine"]["processor"] for result in mixed["learners"]] == ["another"]
    assert len(both["requirements"]) == len(first["requirements"]) + 1
    assert verdicts.merged(both, later.as_json())["learners"] == both["learners"]


def test_verdicts_and_tables_say_what_was_reached() -> None:
    speed = contests.SpeedResult("a2c", 1_000, runs("envfleet", outcome(1.0)), (runs("dummy", outcome(1.9)),))
    mine = runs("envfleet", outcome(30.0, {200.0: 10.0}))
    goal = contests.GoalResult("ppo", mine, (runs("RL Zoo", outcome(60.0)),), ())
    found = a_report(speed, goal)
    assert [(verdict.met, verdict.at_least) for verdict in found.verdicts[:2]] == [(False, False), (True, True)]
    assert [verdict.measured for verdict in found.verdicts] == pytest.approx([1.9, 6.0, 10.0])
    text = verdicts.report_text(found)
    assert "not reached in 60 (RL Zoo)" in text
    assert "> 6.0" in text
    plain = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert plain["all_met"] is False
    assert plain["time_to_return"][0]["ratios"] == {
        "200": {"ratio": 6.0, "at_least": True, "peer": "RL Zoo"},
        "230": None,
    }


def test_every_side_is_left_to_finish_its_own_steps() -> None:
    assert training_speed.FULL.most_seconds == math.inf
    assert len(training_speed.FULL.seeds) >= 3


def test_their_way_is_the_one_with_the_best_median_of_several_heats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single heat of the slower way was lucky; each is several rollouts long."""
    asked: list[tuple[str, int]] = []
    steady, lucky = "DummyVecEnv, 1 thread", "SubprocVecEnv, 1 thread"

    def train(self: sides.Theirs, seed: int, limits: sides.Limits) -> sides.Outcome:
        asked.append((self.name, limits.total_steps))
        seconds = {steady: 2.0, lucky: 1.0 if seed == 0 else 3.0}.get(self.name, 9.0)
        return outcome(seconds, steps=limits.total_steps)

    monkeypatch.setattr(sides.Theirs, "train", train)
    monkeypatch.setattr(sides.Ours, "train", lambda *_: outcome(1.0))
    found = contests.compare_time_to_return("ppo", training_speed.FULL, "python", lambda _: None)
    heats = {runs.name: len(runs.outcomes) for runs in found.heats}
    assert heats == dict.fromkeys([way.name for way in sides.variants(_zoo("ppo"))], 3)
    assert {steps for name, steps in asked if name in heats} == {3 * 16 * 1024}
    assert max(found.heats, key=lambda runs: runs.steps_per_second).name == steady


def _zoo(algo: str) -> sides.Theirs:
    return matches.recommended_settings(algo).theirs[0].side(algo, "python")


def test_times_of_all_seeds_are_told() -> None:
    mine = runs("envfleet", *(outcome(30.0, {200.0: seconds}) for seconds in (12.0, 10.0, 11.0)))
    theirs = runs("RL Zoo", outcome(60.0), outcome(60.0, {200.0: 40.0}), outcome(60.0, {200.0: 50.0}))
    speed = contests.SpeedResult("a2c", 1_000, runs("envfleet", outcome(1.0)), ())
    text = verdicts.report_text(a_report(speed, contests.GoalResult("ppo", mine, (theirs,), ())))
    assert "11 (seeds: 10, 11, 12)" in text
    assert "50 (seeds: 40, 50, never) (RL Zoo)" in text


def test_rivals_have_the_same_settings_or_a_reason() -> None:
    def python_of(name: str) -> str:
        if name == "rlox":
            raise InstallationError("no such wheel")
        return f"python with {name}"

    peer = matches.same_settings("a2c").theirs[0].side("a2c", "python")
    found = dict(sides.rivals(peer, python_of))
    assert found["rlox"] == "no such wheel"
    assert found["SBX (JAX)"] == "has no A2C"
    workers = found["PufferLib's workers, plain torch loop"]
    assert isinstance(workers, sides.Theirs)
    assert (workers.python, workers.settings) == ("python with pufferlib", peer.settings)
    assert workers.is_rival
    assert not peer.is_rival
    assert not sides.plain_loop(peer).is_rival


def test_a_rival_that_fails_is_named_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(self: sides.Theirs, seed: int, limits: sides.Limits) -> sides.Outcome:
        if self.name.startswith("SBX"):
            raise sides.ScriptError("a long text", "ImportError: no JAX here")
        return outcome(4.0, steps=limits.total_steps)

    monkeypatch.setattr(sides.Theirs, "train", train)
    monkeypatch.setattr(sides.Ours, "train", lambda self, *_: outcome(8.0 if "torch" in self.name else 2.0))
    plan = dataclasses.replace(training_speed.QUICK, turns=2)
    found = contests.compare_speed("sac", plan, "python", lambda _: None, python_of=lambda name: name)
    assert dict(found.missing) == {
        "SBX (JAX)": "ImportError: no JAX here",
        "PufferLib's trainer": "has no SAC",
        "PufferLib's workers, plain torch loop": "has no SAC",
    }
    assert [runs.name for runs in found.others] == [contests.OUR_TORCH, "rlox"]
    assert found.times_faster_than(contests.OUR_TORCH) == pytest.approx(4.0)
    text = verdicts.report_text(a_report(found, contests.GoalResult("ppo", runs("envfleet", outcome(1.0)), (), ())))
    assert "- sac: SBX (JAX): ImportError: no JAX here" in text
    assert "sac: times the steps/s of rlox | 5.00 | 1.0 | yes" in " ".join(text.split())


def test_seconds_to_a_return_are_held_against_a_limit() -> None:
    speed = contests.SpeedResult("a2c", 1_000, runs("envfleet", outcome(1.0)), ())
    for seconds, met in ((5.9, True), (6.1, False)):
        mine, theirs = runs("envfleet", outcome(9.0, {200.0: seconds})), runs("RL Zoo", outcome(99.0, {200.0: 60.0}))
        found = a_report(speed, contests.GoalResult("ppo", mine, (theirs,), ())).verdicts[-1]
        assert (found.measured, found.needed, found.met, found.at_most) == (seconds, 6.0, met, True)


# --- beside_sb3.py -----------------------------------------------------------------------------------------


def a_curve(*returns: float) -> sides.Outcome:
    """A run of 1,000 steps with an episode at the end of every tenth of it."""
    curve = tuple((100.0 * (number + 1), value, 1.0) for number, value in enumerate(returns))
    return dataclasses.replace(outcome(1.0), curve=curve)


def test_a_curve_is_the_mean_of_the_episodes_of_a_stretch() -> None:
    found = dataclasses.replace(outcome(1.0), curve=((1.0, 4.0, 1.0), (100.0, 7.0, 2.0), (101.0, 1.0, 1.0)))
    first, second, *rest = curves.binned(found, 1_000)
    assert (first, second) == (6.0, 1.0)
    assert all(map(math.isnan, rest))


def test_ours_is_held_against_the_interval_of_theirs() -> None:
    theirs = [a_curve(*[value] * 10) for value in (8.0, 10.0, 12.0)]
    for mean, holds in ((10.0, True), (5.5, True), (4.5, False)):  # 10 - 4.303 * 2 / sqrt(3) = 5.03
        points, whole = curves.points_of([a_curve(*[mean] * 10)] * 3, theirs, 1_000)
        assert [point.holds for point in points] == [holds] * 10
        assert whole.holds is holds
        assert whole.low == pytest.approx(5.03, abs=0.01)


def test_one_bad_stretch_is_shown_but_does_not_decide() -> None:
    points, whole = curves.points_of(
        [a_curve(0.0, *[11.0] * 9)] * 2, [a_curve(*[10.0] * 10), a_curve(*[10.1] * 10)], 1_000
    )
    assert [point.holds for point in points] == [False] + [True] * 9
    result = curves.CurveResult("x", (), (), points, dataclasses.replace(whole, low=9.9))
    assert "| all of it |" in beside_sb3.text_of(result)
    assert "NO" in beside_sb3.text_of(result)


@pytest.mark.parametrize("name", curves.COMPARISONS)
def test_the_page_shows_the_runs_that_are_kept(name: str) -> None:
    kept = json.loads(beside_sb3.PUBLISHED.read_text())["comparisons"]
    (found,) = (comparison for comparison in kept if comparison["name"] == name)
    ours, theirs = ([sides.Outcome(**run) for run in found[side]] for side in ("ours", "theirs"))
    points = curves.points_of(ours, theirs, curves.COMPARISONS[name].ours.total_steps)
    result = curves.CurveResult(name, tuple(ours), tuple(theirs), *points)
    assert result.holds
    assert section_of(beside_sb3.PAGES[name].read_text(), beside_sb3.SECTION) == beside_sb3.section_for(result)


def test_runs_without_an_episode_are_refused() -> None:
    with pytest.raises(ValueError, match="train for longer"):
        curves.points_of([a_curve()] * 2, [a_curve(1.0)] * 2, 1_000)


def test_both_sides_of_a_comparison_have_the_same_settings() -> None:
    ppo, sac = (curves.COMPARISONS[name] for name in ("cartpole-ppo", "pendulum-sac"))
    ours, theirs = ppo.ours, ppo.theirs
    assert isinstance(ours, PPOConfig)
    names = ("n_steps", "n_epochs", "batch_size", "learning_rate", "gamma", "gae_lambda", "clip_range", "ent_coef")
    mine = (ours.rollout_steps, ours.epochs, ours.minibatch_size, ours.actor_lr, ours.gamma, ours.gae_lambda)
    assert (*mine, ours.clip_range, ours.entropy_coef) == tuple(theirs[name] for name in names)
    assert ours.actor_lr == ours.critic_lr
    second, others = sac.ours, sac.theirs
    assert isinstance(second, SACConfig)
    names = ("learning_starts", "buffer_size", "gradient_steps", "batch_size", "learning_rate", "tau", "gamma")
    mine_too = (second.learning_starts, second.buffer_size, second.updates_per_step, second.batch_size)
    assert (*mine_too, second.actor_lr, second.tau, second.gamma) == tuple(others[name] for name in names)
    assert (second.return_steps, second.noise_correlation, second.num_envs, others["train_freq"]) == (1, 0, 1, 1)


@whole_script
def test_our_side_tells_its_curve() -> None:
    comparison = curves.shortened(curves.COMPARISONS["cartpole-ppo"])
    ours, _ = comparison.sides("python")
    found = ours.train(0, sides.Limits(2_048, curve=True))
    assert sum(episodes for _, _, episodes in found.curve) > 10
    assert [step for step, _, _ in found.curve] == sorted(step for step, _, _ in found.curve)
    assert all(8 <= value <= 500 for _, value, _ in found.curve)


def test_their_ways_to_run_differ_in_processes_and_threads() -> None:
    peer = matches.same_settings("a2c").theirs[0].side("a2c", "python")
    ways = sides.variants(peer)
    assert len({way.name for way in ways}) == 4
    assert {(way.vec_env, way.threads) for way in ways} == {
        (vec_env, threads) for vec_env in ("DummyVecEnv", "SubprocVecEnv") for threads in (0, 1)
    }
    assert {way.settings["n_steps"] for way in ways} == {128}


# --- both_learners.py and watching.py ----------------------------------------------------------------------


def test_the_page_shows_what_is_learnt_with_either_learner() -> None:
    kept = json.loads(both_learners.PUBLISHED.read_text())
    for name in both_learners.STUDIES:
        assert study_named(name).was_trained_with(kept["settings"][name]), f"{name} has other settings today"
        assert sorted(map(int, kept["torch"][name])) == list(both_learners.SEEDS)
    shown = section_of(both_learners.PAGE.read_text(), both_learners.SECTION)
    assert shown.startswith(both_learners.text_of(kept["torch"]))


def test_the_page_shows_what_watching_costs() -> None:
    kept = json.loads(watching.PUBLISHED.read_text())
    shown = section_of(watching.PAGE.read_text(), watching.SECTION)
    assert shown.startswith(watching.text_of(kept["runs"]))
    assert statistics.median(run["share"] for run in kept["runs"][watching.WATCHED]) < 0.01


@left_to_test_all()
def test_a_watched_and_an_unwatched_run_are_measured() -> None:
    for watched in (True, False):
        found = watching.one_run(3_200, watched=watched)
        assert found["steps_per_second"] > 0
        assert 0 < found["share"] < 1
