from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from selection import left_to_test_all

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import compare  # noqa: E402
import crowded  # noqa: E402
import own_environment  # noqa: E402
import readme_table  # noqa: E402
import turns  # noqa: E402
from harness import (  # noqa: E402
    contestant,
    creation,
    engines,
    installation,
    instructions,
    machine,
    report,
    requirements,
    scaling,
    tables,
    throughput,
)
from harness.adapters import bare, gymnasium_fleets, loops  # noqa: E402
from harness.environments import BUSY, BusyEnv, DictImageEnv, MegabyteEnv  # noqa: E402
from harness.fleet import FirstReadyFleet, Fleet, NextStepFleet  # noqa: E402
from harness.machine import this_machine  # noqa: E402
from harness.pages import section_of, with_section  # noqa: E402
from harness.publishing import Conditions, publish  # noqa: E402
from harness.workloads import HEADLINE, WORKLOADS, Workload, batched_actions  # noqa: E402

PROCESS, CALLER = engines.ENVFLEET_PROCESS, engines.ENVFLEET_CALLER
MEASURED = ["bare", "loops", "gymnasium-sync", "gymnasium-async", PROCESS, engines.ENVFLEET_NATIVE]
PLAN = throughput.Plan(slice_seconds=0.01, repeats=2)


def whole_script(test: Callable[..., None]) -> Callable[..., None]:
    """Runs a script with all the processes it starts: for `make test-all`. Its pieces are tested one by one."""
    return left_to_test_all()(pytest.mark.slow(pytest.mark.timeout(600)(test)))


# --- the script ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Any]]:
    """The whole script in its smallest form: where it wrote, what it printed and its JSON."""
    directory = tmp_path_factory.mktemp("benchmark")
    arguments = "--slice 0.02 --repeats 2 --sections throughput creation --output . --name tiny"
    workload = ["--workloads", "CartPole-v1:2", "--creation", "CartPole-v1:2"]
    command = [sys.executable, str(BENCHMARKS / "bench.py"), *arguments.split(), *workload, "--engines", *MEASURED]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory, done.stdout, json.loads((directory / "tiny.json").read_text())


Tiny = tuple[Path, str, dict[str, Any]]


@whole_script
def test_result_tables_and_plot_are_written(tiny_run: Tiny) -> None:
    directory, output, _ = tiny_run
    assert sorted(path.name for path in directory.iterdir()) == ["tiny.json", "tiny.md", "tiny.png"]
    assert (directory / "tiny.md").read_text().strip() == output.strip()
    assert (directory / "tiny.png").read_bytes().startswith(b"\x89PNG")


@whole_script
def test_every_engine_is_measured_every_repeat(tiny_run: Tiny) -> None:
    (result,) = tiny_run[2]["throughput"]
    assert result["workload"] == {"env_id": "CartPole-v1", "num_envs": 2, "policy": False}
    assert [found["engine"] for found in result["engines"]] == MEASURED
    for found in result["engines"]:
        assert found["error"] is None
        low, high = sorted(found["steps_per_second"])
        assert 0 < low <= high
        assert found["median"] == pytest.approx((low + high) / 2)
        assert found["spread"] == pytest.approx((high - low) / 2 / found["median"])
        assert found["idle_cpu"] >= 0


@whole_script
def test_only_process_engines_have_processes(tiny_run: Tiny) -> None:
    processes = {found["engine"]: found["processes"] for found in tiny_run[2]["throughput"][0]["engines"]}
    with_processes = {engine for engine, count in processes.items() if count}
    assert processes[engines.GYMNASIUM_ASYNC] == 2
    assert with_processes <= {engines.GYMNASIUM_ASYNC, engines.LOOPS, PROCESS}


@whole_script
def test_ratios_are_of_medians(tiny_run: Tiny) -> None:
    result = tiny_run[2]["throughput"][0]
    medians = {found["engine"]: found["median"] for found in result["engines"]}
    for engine, multiples in result["ratios"].items():
        assert list(multiples) == [engines.BARE, engines.GYMNASIUM_SYNC, engines.GYMNASIUM_ASYNC]
        for baseline, ratio in multiples.items():
            assert ratio == pytest.approx(medians[engine] / medians[baseline])


@whole_script
def test_creation_is_measured(tiny_run: Tiny) -> None:
    assert [result["engine"] for result in tiny_run[2]["creation"]] == MEASURED
    for result in tiny_run[2]["creation"]:
        assert len(result["samples"]) == 3
        assert all(sample["seconds"] > 0 for sample in result["samples"])


@whole_script
def test_the_machine_and_the_plan_are_written_down(tiny_run: Tiny) -> None:
    result = tiny_run[2]
    assert result["plan"] == {"slice_seconds": 0.02, "repeats": 2}
    assert result["machine"]["versions"]["gymnasium"] == gymnasium.__version__
    assert result["machine"]["usable_cores"] == len(os.sched_getaffinity(0))
    assert result["versions"][PROCESS]["numpy"] == np.__version__
    assert len(result["load_before"]) == len(result["load_after"]) == 3
    assert result["command"].startswith("python benchmarks/bench.py --engines bare loops gymnasium-sync")
    assert result["all_met"] is None, "no requirement was measured"


@whole_script
def test_the_headline_shows_the_fastest_of_a_family(tiny_run: Tiny) -> None:
    result = tiny_run[2]
    medians = {found["engine"]: found["median"] for found in result["throughput"][0]["engines"]}
    gymnasiums = max(medians["gymnasium-sync"], medians["gymnasium-async"])
    ours = max(speed for name, speed in medians.items() if name.startswith("envfleet"))
    section = readme_table.readme_section(result, "tiny")
    (row,) = [line for line in section.splitlines() if line.startswith("| 2 x CartPole-v1 |")]
    assert f"| {tables.number(gymnasiums)} |" in row
    assert row.endswith(f"| {ours / gymnasiums:.2f} |")
    readme = with_section((ROOT / "README.md").read_text(), readme_table.SECTION, "old")
    assert section_of(readme_table.update_readme(readme, section), readme_table.SECTION) == section


def test_wrong_arguments_are_refused() -> None:
    wrong = {"--workloads CartPole-v1": "ID:NUM_ENVS", "--repeats 0": "1 or more", "--engines none": "envfleet-native"}
    for arguments, message in wrong.items():
        command = [sys.executable, str(BENCHMARKS / "bench.py"), *arguments.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert message in done.stderr


# --- who takes part --------------------------------------------------------------------------------------


def entrant(name: str, **changes: Any) -> throughput.Entrant:
    return throughput.Entrant(replace(engines.ENGINES[name], **changes), sys.executable)


def test_an_engine_that_fails_shows_its_error_and_the_others_go_on(tmp_path: Path) -> None:
    entrants = [
        entrant("sb3-dummy", adapter="no_such_library"),
        throughput.Entrant(engines.ENGINES["pufferlib"], "", "pip install pufferlib: no"),
        entrant("gymnasium-sync"),
        entrant("ale-vector"),
    ]
    result = throughput.compare(Workload("CartPole-v1", 2), entrants, PLAN, tmp_path, progress=lambda text: None)
    errors = {found.engine: found.error for found in result.engines}
    assert "ModuleNotFoundError: No module named 'harness.adapters.no_such_library'" in (errors["sb3-dummy"] or "")
    assert errors["pufferlib"] == "pip install pufferlib: no"
    assert errors["gymnasium-sync"] is None
    assert result.of("gymnasium-sync") is not None
    assert result.of("pufferlib") is None
    assert result.left_out == {"ale-vector": "does not have this environment"}
    found = report.Report(
        "2000-01-01", "", 1.0, machine.this_machine(), (0, 0, 0), (0, 0, 0), PLAN, HEADLINE[0], (result,)
    )
    text = tables.markdown(found.as_json())
    assert "- PufferLib multiprocessing: pip install pufferlib: no" in text
    assert "- ale-py vector: does not have this environment (2 x CartPole-v1)" in text


def test_every_engine_has_an_adapter_and_a_place() -> None:
    known = installation.peers()
    for engine in engines.ALL:
        assert (BENCHMARKS / "harness" / "adapters" / f"{engine.adapter}.py").exists(), engine.name
        assert engine.peer is None or engine.peer in known
        assert any(engine.why_not(workload) is None for workload in WORKLOADS)


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program in the place of Python that never says anything and does not end when it is told to."""
    monkeypatch.setattr(contestant, "START_SECONDS", 0.1)
    monkeypatch.setattr(contestant, "END_SECONDS", 0.1)
    program = tmp_path / "silent"
    program.write_text("#!/bin/sh\nsleep 60 & wait\n")
    program.chmod(0o755)
    return str(program)


def test_an_engine_that_hangs_is_ended_with_all_it_has_started(silent: str, tmp_path: Path) -> None:
    hanging = contestant.Contestant("hanging", silent, {}, tmp_path)
    with pytest.raises(contestant.ContestantError, match="no answer within"):
        hanging.ready()
    hanging.close()
    deadline = time.monotonic() + 60
    while group_lives(hanging.pid):  # until somebody has taken note that the orphan is dead
        assert time.monotonic() < deadline


def group_lives(leader: int) -> bool:
    try:
        os.killpg(leader, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


def test_reasons_are_one_line_without_paths() -> None:
    pip = "  File /usr/lib/python3/site-packages/x.py\n  URLError: no\nnote: this is an error of a subprocess\n"
    assert installation.telling_line(pip) == "URLError: no"
    assert installation.telling_line("ERROR: see https://host/x/y and /home/me/there/file\n") == (
        "ERROR: see a URL and .../file"
    )
    assert installation.telling_line("") == "it said nothing"


def test_a_failed_installation_is_not_tried_twice(tmp_path: Path) -> None:
    peer = installation.Peer("none", "no-such-package==1", flags=("--no-index",))
    told: list[str] = []
    for _ in range(2):
        with pytest.raises(installation.InstallationError, match=r"no-such-package==1"):
            installation.peer_python(peer, tmp_path / "none", progress=told.append)
    assert told[0].startswith("installing no-such-package==1")
    assert told[1].endswith("none.failed to try again")
    assert len(told) == 2


# --- what is counted -------------------------------------------------------------------------------------


class TallyEnv(gymnasium.Env[Any, Any]):
    """Three steps per episode; the class counts every call of step()."""

    observation_space = Box(0.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)
    calls = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.age = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        TallyEnv.calls += 1
        self.age += 1
        return np.zeros(1, np.float32), 0.0, self.age == 3, self.age == 3, {}


@pytest.fixture
def tally() -> Iterator[Workload]:
    gymnasium.register("Tally-v0", entry_point=TallyEnv)  # type: ignore[arg-type]
    yield Workload("Tally-v0", 5)
    del gymnasium.registry["Tally-v0"]


def counted(fleet: Fleet, rounds: int) -> int:
    fleet.reset()
    TallyEnv.calls = 0
    steps = 0
    for _, actions in zip(range(rounds), fleet.batch(batched_actions(fleet.action_space, fleet.width)), strict=False):
        steps += fleet.step(actions)[1]
    fleet.close()
    return steps


def test_only_real_steps_are_counted(tally: Workload) -> None:
    from envfleet import SyncVectorEnv

    fleets = [
        bare.make(tally, {}),
        gymnasium_fleets.make(tally, {"kind": "sync"}),
        NextStepFleet.of(SyncVectorEnv([tally.env_fn()] * tally.num_envs)),
    ]
    for fleet in fleets:
        assert counted(fleet, 17) == TallyEnv.calls > 0


class TallyPool:
    """Three copies of TallyEnv, two of which are ready at a time; a finished one's next step is its reset."""

    def __init__(self) -> None:
        self.envs = [TallyEnv() for _ in range(3)]
        self.ended = [False] * 3
        self.waiting: list[tuple[int, bool, bool]] = []  # which, whether it has ended, whether it was a step

    def async_reset(self) -> None:
        for index, env in enumerate(self.envs):
            env.reset()
            self.waiting.append((index, False, False))

    def send(self, actions: Any, ids: Any) -> None:
        for action, index in zip(actions, ids, strict=True):
            stepped = not self.ended[index]
            self.ended[index] = stepped and self.envs[index].step(action)[2]
            if not stepped:
                self.envs[index].reset()
            self.waiting.append((index, self.ended[index], stepped))

    def recv(self) -> Any:
        ready, self.waiting = self.waiting[:2], self.waiting[2:]
        ids, ended = np.array([row[0] for row in ready]), np.array([row[1] for row in ready])
        return np.zeros((2, 1)), np.zeros(2), ended, ended, {"env_id": ids}

    def close(self) -> None:
        pass


def test_only_real_steps_are_counted_of_those_that_are_ready() -> None:
    pool = TallyPool()
    fleet = FirstReadyFleet(pool, 3, 2, TallyEnv.observation_space, TallyEnv.action_space)
    for rounds in (1, 2, 40):
        pool.waiting.clear()
        pool.ended = [False] * 3
        received = counted(fleet, rounds)
        assert received == TallyEnv.calls - sum(stepped for _, _, stepped in pool.waiting)


def test_a_policy_picks_the_actions() -> None:
    for env_id in ("CartPole-v1", "HalfCheetah-v5"):
        workload = Workload(env_id, 3, policy=True)
        fleet = gymnasium_fleets.make(workload, {"kind": "sync"})
        turn = turns.Runner(fleet, workload, fleet.reset()).turn(0.01)
        assert 0 < turn.steps <= 3 * turn.calls
        fleet.close()
        assert engines.ENGINES["bare"].why_not(workload) == "no policy in torch between its steps"


def test_every_engine_gets_the_same_actions() -> None:
    first, again = (batched_actions(Discrete(100), 8) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.unique(first).size > 50


@pytest.mark.parametrize("exponential", [False, True])
def test_the_busy_environment_computes_a_millisecond_a_step(exponential: bool) -> None:
    env = BusyEnv(exponential=exponential)
    env.reset(seed=0)
    before = time.thread_time()
    for _ in range(100):
        env.step(np.int64(0))
    low, high = (0.06, 0.2) if exponential else (0.1, 0.2)
    assert low <= time.thread_time() - before < high
    assert gymnasium.spec(BUSY) is not None


def test_the_made_up_environments_keep_gymnasiums_rules() -> None:
    for env in (DictImageEnv(), MegabyteEnv()):
        observation, _ = env.reset(seed=0)
        for _ in range(200):
            assert env.observation_space.contains(observation)
            observation, _, terminated, truncated, _ = env.step(np.int64(1))  # type: ignore[assignment]
        assert (terminated, truncated) == (False, True)


@pytest.fixture
def spinning() -> Iterator[int]:
    """The id of a child process that never rests."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process.pid
        process.kill()


def test_a_fleet_that_does_not_rest_between_its_turns_is_found_out(spinning: int) -> None:
    workload = Workload("CartPole-v1", 1)
    fleet = bare.make(workload, {})
    runner = turns.Runner(fleet, workload, fleet.reset())
    runner.turn(0.001)
    begin = machine.cpu_seconds([spinning])
    while machine.cpu_seconds([spinning]) < begin + 0.1:
        pass
    assert runner.turn(0.001).idle_cpu_seconds >= 0.1


def test_descendants_are_the_living_children(spinning: int) -> None:
    assert spinning in machine.descendants()
    assert os.getpid() not in machine.descendants()


def test_pss_grows_with_the_memory_in_use() -> None:
    # A process of its own: this one's memory comes and goes with what earlier tests left behind.
    holder = "import sys; sys.stdin.readline(); held = b'x' * 2**25; print(flush=True); sys.stdin.readline()"
    command = [sys.executable, "-S", "-c", holder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin
        assert process.stdout
        before = machine.pss_bytes([process.pid])
        process.stdin.write("hold\n")
        process.stdout.readline()
        assert machine.pss_bytes([process.pid]) - before >= 0.9 * 2**25


# --- scaling ---------------------------------------------------------------------------------------------


def test_workers_are_measured_from_one_to_the_cores(tmp_path: Path) -> None:
    assert scaling.worker_counts(1) == (1,)
    assert scaling.worker_counts(6) == (1, 2, 4, 6)
    entrants = [entrant(PROCESS), entrant("gymnasium-sync")]
    (found,) = scaling.compare_workers(Workload("CartPole-v1", 2), entrants, 2, PLAN, tmp_path, lambda text: None)
    assert found.engine == PROCESS
    assert list(found.steps_per_second) == [1, 2]


def test_the_cost_of_a_call_is_a_line() -> None:
    results = [
        throughput.WorkloadResult(
            Workload("CartPole-v1", size),
            (throughput.EngineResult("gymnasium-sync", call_seconds=5e-6 + 2e-6 * size),),
        )
        for size in (1, 8, 64)
    ]
    (cost,) = scaling.call_costs(results)
    assert (cost.base_seconds, cost.each_seconds) == (pytest.approx(5e-6), pytest.approx(2e-6))
    assert scaling.call_costs(results[:2]) == ()


# --- before and after ------------------------------------------------------------------------------------


def test_callgrinds_counts_are_read(tmp_path: Path) -> None:
    dump = tmp_path / "counts.1"
    dump.write_text("pid: 1\ndesc: Trigger: Client Request: sync-step\nevents: Ir\nsummary: 4200\n\ntotals: 4200\n")
    assert instructions._read_dump(dump) == [("sync-step", 4200)]
    dump.write_text("desc: Trigger: Program termination\ntotals: 7\n")
    assert instructions._read_dump(dump) == []


def test_what_to_install_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions.shutil, "which", lambda name: None)
    with pytest.raises(instructions.NoCallgrindError, match="apt-get install valgrind"):
        instructions.count_instructions(sys.executable, tmp_path)


def test_a_revision_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["compare.py", "no-such-revision"])
    with pytest.raises(SystemExit, match="no-such-revision: "):
        compare.main()


def test_before_and_after_are_compared_turn_by_turn() -> None:
    sides = [
        throughput.EngineResult("envfleet-sync before", steps_per_second=(100.0, 50.0, 100.0), median=100.0),
        throughput.EngineResult("envfleet-sync after", steps_per_second=(90.0, 45.0, 95.0), median=90.0),
    ]
    change = compare._timed(throughput.WorkloadResult(Workload("CartPole-v1", 8), tuple(sides)), "envfleet-sync")
    assert change is not None
    assert (change.ratio, change.low, change.high) == (pytest.approx(0.9), 0.9, 0.95)
    assert "| 8 x CartPole-v1, envfleet sync |" in compare.speeds_text([change])
    assert "-10.0%" in compare.instructions_text([change])


def test_the_best_turns_show_what_other_programs_hide() -> None:
    alone, beside_others = (
        (100.0, 102.0, 98.0, 100.0, 98.0, 100.0, 98.0, 98.0),
        (51.0, 105.0, 9.0, 45.0, 7.0, 2.0, 97.0, 1.0),
    )
    sides = [
        throughput.EngineResult("envfleet-sync before", steps_per_second=alone, median=99.0),
        throughput.EngineResult("envfleet-sync after", steps_per_second=beside_others, median=27.0),
    ]
    change = compare._timed(throughput.WorkloadResult(Workload("CartPole-v1", 8), tuple(sides)), "envfleet-sync")
    assert change is not None
    assert change.best == pytest.approx((105 + 97) / (102 + 100))
    assert change.ratio < 0.5
    (header, _, row) = compare.speeds_text([change]).splitlines()[-3:]
    columns = [cell.strip() for cell in header.split("|")]
    assert row.split("|")[columns.index("best turns")].strip() == "1.000"


def test_the_best_turns_of_few_are_the_single_best() -> None:
    assert compare.best_turns((3.0, 1.0, 2.0)) == 3.0


# --- verdicts --------------------------------------------------------------------------------------------


def engine_result(engine: str, figures: tuple[float, ...]) -> throughput.EngineResult:
    return throughput.EngineResult(engine, steps_per_second=figures, median=sorted(figures)[len(figures) // 2])


def cartpole(**figures: tuple[float, ...]) -> throughput.WorkloadResult:
    names = {"gym_sync": engines.GYMNASIUM_SYNC, "ours": PROCESS, "caller": CALLER}
    found = tuple(engine_result(names[name], values) for name, values in figures.items())
    return throughput.WorkloadResult(Workload("CartPole-v1", 64), found)


def test_a_requirement_holds_if_one_configuration_meets_it() -> None:
    result = cartpole(gym_sync=(100.0, 110.0, 90.0), ours=(140.0, 150.0, 130.0), caller=(150.0, 160.0, 155.0))
    (verdict,) = requirements.judge([result], 2)
    assert (verdict.claim, verdict.at_least) == ("times the steps/s, 64 x CartPole-v1", 1.5)
    assert verdict.met
    assert [outcome.engine for outcome in verdict.outcomes] == [PROCESS, CALLER]
    assert [outcome.met for outcome in verdict.outcomes] == [False, True]
    assert [outcome.ratio for outcome in verdict.outcomes] == pytest.approx([1.4, 1.55])
    ratios = [150 / 110, 140 / 100, 130 / 90]
    quartiles = [(ratios[0] + ratios[1]) / 2, (ratios[1] + ratios[2]) / 2]
    assert [verdict.outcomes[0].low, verdict.outcomes[0].high] == pytest.approx(quartiles)


def test_the_ideal_is_a_plain_loop_on_every_core() -> None:
    names = {engines.BARE: 100.0, CALLER: 180.0}
    found = tuple(engine_result(name, (figure,)) for name, figure in names.items())
    result = throughput.WorkloadResult(Workload("CartPole-v1", 8), found)
    (verdict,) = requirements.judge([result], cores=2)
    (outcome,) = verdict.outcomes
    assert (verdict.baseline, outcome.ratio, outcome.met) == (requirements.IDEAL, pytest.approx(0.9), True)
    assert not requirements.judge([result], cores=4)[0].met


def test_of_several_baselines_the_best_counts() -> None:
    names = {engines.GYMNASIUM_SYNC: 100.0, engines.SB3_DUMMY: 150.0, engines.ENVFLEET_SYNC: 290.0}
    found = tuple(engine_result(name, (figure,)) for name, figure in names.items())
    (verdict,) = requirements.judge([throughput.WorkloadResult(Workload("DictImage-v0", 64), found)], 2)
    assert (verdict.baseline, verdict.met) == (engines.SB3_DUMMY, False)


def test_a_requirement_that_none_meets_fails_the_report() -> None:
    as_json = described(cartpole(gym_sync=(100.0,), ours=(140.0,)))
    text = tables.requirements(as_json)
    assert as_json["all_met"] is False
    assert "Requirements: 0 of 1 met" in text
    assert "1.40 x gymnasium-sync" in text
    assert "NO" in text


def test_a_requirement_exactly_met_is_met() -> None:
    assert described(cartpole(gym_sync=(100.0,), ours=(150.0,)))["all_met"] is True


def described(result: throughput.WorkloadResult) -> dict[str, Any]:
    none = (0.0, 0.0, 0.0)
    here = machine.this_machine()
    found = report.Report("2000-01-01", "", 1.0, here, none, none, PLAN, Workload("LunarLander-v3", 64), (result,))
    return found.as_json()


def creation_result(engine: str, seconds: float, pss_bytes: int) -> creation.CreationResult:
    return creation.CreationResult(engine, (creation.CreationSample(seconds, pss_bytes),), seconds, pss_bytes)


def test_creation_must_be_faster_and_smaller() -> None:
    theirs = creation_result(engines.GYMNASIUM_ASYNC, 1.0, 1000)
    ours = creation_result(PROCESS, 0.5, 2000)
    time, memory = requirements.judge_creation(Workload("LunarLander-v3", 64), [theirs, ours])
    assert (time.met, time.outcomes[0].ratio) == (True, 2.0)
    assert (memory.met, memory.outcomes[0].ratio) == (False, 0.5)
    assert requirements.judge_creation(Workload("LunarLander-v3", 8), [theirs, ours]) == []


# --- beside other programs -------------------------------------------------------------------------------


def test_other_programs_use_the_cores_and_end() -> None:
    with crowded.busy_programs(2) as programs:
        time.sleep(0.2)
        assert [program.poll() for program in programs] == [None, None]
    assert [program.poll() for program in programs] == [-signal.SIGKILL, -signal.SIGKILL]


def test_the_table_of_crowded_cores_says_what_is_left() -> None:
    workload = Workload("CartPole-v1", 8)
    alone, beside = (
        throughput.WorkloadResult(
            workload,
            (
                throughput.EngineResult(PROCESS, steps_per_second=(figure,), median=figure),
                throughput.EngineResult(CALLER, error=None if figure > 50_000 else "it broke"),
            ),
        )
        for figure in (100_000.0, 40_000.0)
    )
    lines = crowded.text(alone, beside, 2).splitlines()
    assert len(lines) == 3
    assert [cell.strip() for cell in lines[-1].strip("|").split("|")] == [
        "envfleet process",
        "100,000",
        "40,000",
        "0.40",
    ]


# --- an environment of one's own -------------------------------------------------------------------------


def pond_result(native: float, sync: float) -> dict[str, Any]:
    found = [{"engine": own_environment.NATIVE, "median": native}, {"engine": own_environment.SYNC, "median": sync}]
    return {"throughput": [{"engines": found}], "machine": {"usable_cores": 2}}


@pytest.mark.parametrize("page", own_environment.PAGES, ids=lambda page: page.name)
def test_the_figure_of_an_own_environment_has_a_place_in_the_page(page: Path) -> None:
    text = with_section(page.read_text(), own_environment.SECTION, own_environment.figure(pond_result(6e7, 2e5), page))
    assert "60M steps/s compiled, and 200k\nunder" in text
    (link,) = re.findall(r"300 times as many \(\[figures\]\((.*)\)\)", text)
    assert (page.parent / link).resolve() == own_environment.PUBLISHED.with_suffix(".md")


def test_a_section_of_a_page_takes_the_place_of_the_one_before() -> None:
    page = with_section("a\n<!-- one: begin -->\nold\n<!-- one: end -->\nb\n", "one", "new\n\\1")
    assert page == "a\n<!-- one: begin -->\nnew\n\\1\n<!-- one: end -->\nb\n"
    assert section_of(page, "one") == "new\n\\1"
    with pytest.raises(ValueError, match="no place for <!-- two: begin -->"):
        with_section(page, "two", "new")


@pytest.mark.skipif(not own_environment.PUBLISHED.exists(), reason="not published yet")
def test_the_published_figure_is_that_of_the_result() -> None:
    result = json.loads(own_environment.PUBLISHED.read_text())
    for page in own_environment.PAGES:
        assert own_environment.figure(result, page) in page.read_text()
    medians = {found["engine"]: found["median"] for found in result["throughput"][0]["engines"]}
    assert medians[own_environment.NATIVE] >= 100 * medians[own_environment.SYNC]


@pytest.mark.timeout(30)
def test_loops_on_every_core_count_their_steps_and_end() -> None:
    fleet = loops.make(Workload("CartPole-v1", 5), {})
    assert sum(fleet.reset()) == 5
    _, steps = fleet.step(None)
    assert steps > 5
    fleet.close()
    assert not multiprocessing.active_children()


# --- what is published ---------------------------------------------------------------------------------------


def test_a_result_is_kept_with_its_conditions_and_shown_on_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Conditions.announced(this_machine())
    assert f"load {here.load[0]:.2f}" in capsys.readouterr().out
    assert here.cores.startswith(f"{here.machine.usable_cores} cores (")
    page, kept = tmp_path / "page.md", tmp_path / "kept.json"
    page.write_text("before\n<!-- some: begin -->\nold\n<!-- some: end -->\nafter\n")
    publish({**here.as_json(), "seconds": 1.5}, kept, {"some": "new"}, page)
    assert page.read_text() == "before\n<!-- some: begin -->\nnew\n<!-- some: end -->\nafter\n"
    found = json.loads(kept.read_text())
    assert set(found) == {"machine", "load", "seconds"}
    assert found["load"] == list(here.load)
