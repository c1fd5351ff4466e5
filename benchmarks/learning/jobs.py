"""The runs of the studies: each in a process of its own, alone or side by side, and none twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.installation import PEERS_DIRECTORY, InstallationError, peer_python, peers
from harness.machine import Machine, this_machine

from envfleet.train import Evaluation

from .results import SeedResult
from .studies import ALONE, SIDE_BY_SIDE, PeerStudy, Study, episodes

SCRIPT = Path(__file__).parent / "one_run.py"
PEER_SCRIPT = Path(__file__).parent / "sb3_run.py"

_OF_THE_RUN = (
    *("steps", "training_seconds", "steps_per_second", "training_return", "plan", "evaluation_seconds"),
    *("load_before", "load_after"),
)


@dataclass(frozen=True)
class Way:
    """How runs are made: how many at once, where they are kept, by which command."""

    side_by_side: int
    quick: bool
    work: Path
    command: str

    @property
    def backend(self) -> str:
        """Where the environments run."""
        return ALONE if self.side_by_side == 1 else SIDE_BY_SIDE


@dataclass(frozen=True)
class Job:
    """One seed of a study."""

    study: Study
    seed: int
    way: Way

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"{self.study.name}, seed {self.seed}"

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return self.way.work / self.study.name / f"seed{self.seed}"

    @property
    def _done(self) -> Path:
        return self.run_dir.with_suffix(".json")

    def earlier_result(self) -> SeedResult | None:
        """What an earlier call found with the same settings."""
        if not self._done.exists():
            return None
        plain = json.loads(self._done.read_text())
        if not self.study.was_trained_with(plain["config"], quick=self.way.quick):
            return None
        return SeedResult.from_json(plain["result"])

    def forget(self) -> None:
        """Make the next run start from the beginning."""
        self._done.unlink(missing_ok=True)
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def run(self) -> SeedResult:
        """Train and evaluate in a new process; a run that was stopped goes on."""
        done = subprocess.run(self._command(), env=self._environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name} failed:\n{done.stderr.strip()}")
        found = self.result_of(json.loads(done.stdout.splitlines()[-1]))
        content = {"config": self.study.settings(quick=self.way.quick), "result": asdict(found)}
        self._done.write_text(json.dumps(content, indent=2) + "\n")
        return found

    def _command(self) -> list[str]:
        if isinstance(self.study, PeerStudy):
            try:
                python = peer_python(peers()["sb3"], PEERS_DIRECTORY / "sb3", lambda _: None)
            except InstallationError as error:
                raise RuntimeError(f"{self.name} failed: {error}") from error
            settings = self.study.settings(quick=self.way.quick)
            request = {**settings, "seed": self.seed, "episodes": episodes(quick=self.way.quick)}
            return [python, str(PEER_SCRIPT), json.dumps(request), str(self.run_dir)]
        request = {"study": self.study.name, "seed": self.seed, "backend": self.way.backend, "quick": self.way.quick}
        return [sys.executable, str(SCRIPT), json.dumps(request), str(self.run_dir)]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "OMP_NUM_THREADS": "1"} if self.way.side_by_side > 1 else dict(os.environ)

    def result_of(self, outcome: Mapping[str, Any]) -> SeedResult:
        """What the run's process reported, held against the bar."""
        if "returns" in outcome:  # of a peer, which knows nothing of our evaluations
            returns, lengths = tuple(outcome["returns"]), tuple(outcome["lengths"])
            played = Evaluation(self.study.env_id, self.seed, parameters={}, returns=returns, lengths=lengths)
            evaluation = played.to_json_dict()
        else:
            evaluation = outcome["evaluation"]
        rest = {name: outcome[name] for name in _OF_THE_RUN}
        kept = ("mean_return", "std_return", "interval_low", "interval_high", "min_return", "max_return")
        within = outcome["steps"] <= self.study.steps_allowed
        return SeedResult(
            seed=self.seed,
            passes=within and evaluation["mean_return"] >= self.study.bar,
            **{name: evaluation[name] for name in (*kept, "mean_length", "episodes")},
            **{**rest, "load_before": tuple(outcome["load_before"]), "load_after": tuple(outcome["load_after"])},
            backend=outcome.get("backend", self.way.backend),
            side_by_side=self.way.side_by_side,
            command=self.way.command,
            machine=machine_with_torch(outcome.get("versions", {})),
        )


def run_all(jobs: Sequence[Job], at_once: int, progress: Callable[[str], None]) -> Iterator[tuple[Job, SeedResult]]:
    """Run jobs and yield each as it is done; one that fails is reported and does not stop the others."""
    with ThreadPoolExecutor(at_once) as pool:
        try:
            futures = {pool.submit(_run, job, progress): job for job in jobs}
            for number, future in enumerate(as_completed(futures), start=1):
                try:
                    found = future.result()
                except RuntimeError as error:
                    progress(str(error))
                    continue
                job = futures[future]
                progress(
                    f"{number} of {len(jobs)}: {job.name}: {found.mean_return:.1f} in {found.training_seconds:.0f} s"
                )
                yield job, found
        except BaseException:
            # The runs under way get the terminal's Ctrl-C too and stop, saved; the others must not start.
            pool.shutdown(cancel_futures=True)
            raise


def _run(job: Job, progress: Callable[[str], None]) -> SeedResult:
    progress(f"{job.name}: begins")
    return job.run()


def machine_with_torch(others: Mapping[str, str] | None = None) -> Machine:
    """Where this runs, with the versions of what it learns with."""
    here = this_machine()
    return replace(here, versions={**here.versions, "torch": metadata.version("torch"), **(others or {})})
