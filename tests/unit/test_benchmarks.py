from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from harness import creation, engines, machine, report, requirements, throughput  # noqa: E402
from harness.workloads import BUSY_ID, BusyEnv, Workload, batched_actions  # noqa: E402

PROCESS, CALLER = engines.ENVFLEET_PROCESS, engines.ENVFLEET_CALLER


# --- the script ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The whole script in its smallest form: what it printed and its JSON."""
    directory = tmp_path_factory.mktemp("benchmark")
    arguments = "--quick --slice 0.02 --workloads CartPole-v1:2 --creation CartPole-v1:2 --json result.json"
    command = [sys.executable, str(BENCHMARKS / "engine.py"), *arguments.split(), "--repeats", "2"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in directory.iterdir()] == ["result.json"]
    return done.stdout, json.loads((directory / "result.json").read_text())


def test_every_engine_is_measured_every_repeat(tiny_run: tuple[str, dict[str, Any]]) -> None:
    (result,) = tiny_run[1]["throughput"]
    assert result["workload"] == {"env_id": "CartPole-v1", "num_envs": 2}
    assert [found["engine"] for found in result["engines"]] == list(engines.ENGINES)
    for found in result["engines"]:
        low, high = sorted(found["steps_per_second"])
        assert 0 < low <= high
        assert found["median"] == pytest.approx((low + high) / 2)
        assert found["spread"] == pytest.approx((high - low) / found["median"])
        assert found["idle_cpu"] >= 0


def test_only_process_engines_have_processes(tiny_run: tuple[str, dict[str, Any]]) -> None:
    processes = {found["engine"]: found["processes"] for found in tiny_run[1]["throughput"][0]["engines"]}
    with_processes = {engine for engine, count in processes.items() if count}
    assert processes[engines.GYMNASIUM_ASYNC] == 2
    assert with_processes <= {engines.GYMNASIUM_ASYNC, PROCESS, CALLER}


def test_ratios_are_of_medians(tiny_run: tuple[str, dict[str, Any]]) -> None:
    (result,) = tiny_run[1]["throughput"]
    medians = {found["engine"]: found["median"] for found in result["engines"]}
    for engine, multiples in result["ratios"].items():
        assert list(multiples) == [engines.BARE, engines.GYMNASIUM_SYNC, engines.GYMNASIUM_ASYNC]
        for baseline, ratio in multiples.items():
            assert ratio == pytest.approx(medians[engine] / medians[baseline])


def test_creation_is_measured(tiny_run: tuple[str, dict[str, Any]]) -> None:
    assert [result["engine"] for result in tiny_run[1]["creation"]] == [engines.GYMNASIUM_ASYNC, PROCESS]
    for result in tiny_run[1]["creation"]:
        assert len(result["samples"]) == 2
        assert all(sample["seconds"] > 0 and sample["pss_bytes"] > 0 for sample in result["samples"])


def test_the_machine_and_the_plan_are_written_down(tiny_run: tuple[str, dict[str, Any]]) -> None:
    result = tiny_run[1]
    assert result["plan"] == {"slice_seconds": 0.02, "repeats": 2}
    assert result["machine"]["versions"]["gymnasium"] == gymnasium.__version__
    assert result["machine"]["usable_cores"] == len(os.sched_getaffinity(0))
    assert len(result["load_before"]) == len(result["load_after"]) == 3


def test_a_run_without_a_required_workload_judges_nothing(tiny_run: tuple[str, dict[str, Any]]) -> None:
    output, result = tiny_run
    assert result["requirements"] == []
    assert result["all_met"] is None
    assert "Requirements" not in output


def test_the_printed_tables_are_aligned(tiny_run: tuple[str, dict[str, Any]]) -> None:
    sections = tiny_run[0].split("\n\n")
    tables = [section.splitlines() for section in sections if section.startswith("|")]
    assert [len(table) for table in tables] == [2 + len(engines.ENGINES), 2 + 2]
    for table in tables:
        assert len({len(line) for line in table}) == 1


def test_wrong_arguments_are_refused() -> None:
    for arguments, message in ((["--workloads", "CartPole-v1"], "ID:NUM_ENVS"), (["--repeats", "0"], "1 or more")):
        command = [sys.executable, str(BENCHMARKS / "engine.py"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert message in done.stderr


# --- what is counted -------------------------------------------------------------------------------------


class TallyEnv(gymnasium.Env[Any, Any]):
    """Three steps an episode; the class counts every call of step()."""

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


@pytest.mark.parametrize("engine", [engines.BARE, engines.GYMNASIUM_SYNC, engines.ENVFLEET_SYNC])
def test_only_real_steps_are_counted(engine: str, tally: Workload) -> None:
    stepper = engines.start(engine, tally)
    TallyEnv.calls = 0
    counted = sum(stepper.step() for _ in range(17))
    stepper.close()
    assert counted == TallyEnv.calls > 0


def test_every_engine_gets_the_same_actions() -> None:
    first, again = (batched_actions(Discrete(100), 8) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.unique(first).size > 50


def test_the_busy_environment_computes_a_millisecond_a_step() -> None:
    env = BusyEnv()
    env.reset(seed=0)
    before = time.thread_time()
    for _ in range(100):
        env.step(np.int64(0))
    assert 0.1 <= time.thread_time() - before < 0.2
    assert gymnasium.spec(BUSY_ID) is not None


@pytest.fixture
def spinning() -> Iterator[int]:
    """The id of a child process that never rests."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process.pid
        process.kill()


def test_a_fleet_that_does_not_rest_between_its_turns_is_found_out(spinning: int) -> None:
    stepper = engines.Stepper(step=lambda: 1, close=lambda: None)
    contestant = throughput.Contestant("restless", stepper, frozenset({spinning}))
    contestant.take_turn(0.001)
    begin = machine.cpu_seconds([spinning])
    while machine.cpu_seconds([spinning]) < begin + 0.1:
        pass
    contestant.take_turn(0.001)
    assert contestant.idle_cpu >= 0.1
    assert contestant.result().idle_cpu == pytest.approx(contestant.idle_cpu / contestant.idle_seconds)


def test_descendants_are_the_living_children(spinning: int) -> None:
    assert spinning in machine.descendants()
    assert os.getpid() not in machine.descendants()


def test_pss_grows_with_the_memory_in_use() -> None:
    before = machine.pss_bytes([os.getpid()])
    held = np.ones(4 * 2**20)
    assert machine.pss_bytes([os.getpid()]) - before >= 0.9 * held.nbytes


# --- verdicts --------------------------------------------------------------------------------------------


def engine_result(engine: str, figures: tuple[float, ...]) -> throughput.EngineResult:
    return throughput.EngineResult(engine, 0, figures, sorted(figures)[len(figures) // 2], 0.0, 0.0)


def cartpole(**figures: tuple[float, ...]) -> throughput.WorkloadResult:
    names = {"gym_sync": engines.GYMNASIUM_SYNC, "ours": PROCESS, "caller": CALLER}
    found = tuple(engine_result(names[name], values) for name, values in figures.items())
    return throughput.WorkloadResult(Workload("CartPole-v1", 64), found)


def test_a_requirement_holds_if_one_configuration_meets_it() -> None:
    result = cartpole(gym_sync=(100.0, 110.0, 90.0), ours=(140.0, 150.0, 130.0), caller=(150.0, 160.0, 155.0))
    (verdict,) = requirements.judge([result])
    assert (verdict.claim, verdict.at_least) == ("times the steps/s, 64 x CartPole-v1", 1.5)
    assert verdict.met
    assert [outcome.engine for outcome in verdict.outcomes] == [PROCESS, CALLER]
    assert [outcome.met for outcome in verdict.outcomes] == [False, True]
    assert [outcome.ratio for outcome in verdict.outcomes] == pytest.approx([1.4, 1.55])
    assert [verdict.outcomes[0].low, verdict.outcomes[0].high] == pytest.approx([150 / 110, 130 / 90])


def test_a_requirement_that_none_meets_fails_the_report() -> None:
    result = cartpole(gym_sync=(100.0,), ours=(140.0,))
    text, as_json = described(result)
    assert as_json["all_met"] is False
    assert "Requirements: 0 of 1 met" in text
    assert "1.40 against gymnasium-sync" in text
    assert "NO" in text


def test_a_requirement_exactly_met_is_met() -> None:
    assert described(cartpole(gym_sync=(100.0,), ours=(150.0,)))[1]["all_met"] is True


def described(result: throughput.WorkloadResult) -> tuple[str, dict[str, Any]]:
    found = report.Report(
        machine.this_machine(),
        load_before=(0.0, 0.0, 0.0),
        load_after=(0.0, 0.0, 0.0),
        plan=throughput.Plan(1.0, 1),
        throughput=(result,),
        creation_workload=Workload("LunarLander-v3", 64),
        creation=(),
    )
    return report.verdicts_text(found.verdicts), found.as_json()


def creation_result(engine: str, seconds: float, pss_bytes: int) -> creation.CreationResult:
    return creation.CreationResult(engine, (creation.CreationSample(seconds, pss_bytes),), seconds, pss_bytes)


def test_creation_must_be_faster_and_smaller() -> None:
    theirs = creation_result(engines.GYMNASIUM_ASYNC, 1.0, 1000)
    ours = creation_result(PROCESS, 0.5, 2000)
    time, memory = requirements.judge_creation(Workload("LunarLander-v3", 64), [theirs, ours])
    assert (time.met, time.outcomes[0].ratio) == (True, 2.0)
    assert (memory.met, memory.outcomes[0].ratio) == (False, 0.5)
    assert requirements.judge_creation(Workload("LunarLander-v3", 8), [theirs, ours]) == []
