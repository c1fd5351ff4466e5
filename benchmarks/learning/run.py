"""What the algorithms learn with the settings they come with: several seeds of every study, held against its bar.

python benchmarks/learning/run.py                                everything, one run at a time: a day
python benchmarks/learning/run.py --study lunarlander-a2c --seeds 0 1
python benchmarks/learning/run.py --parallel 2                   two runs side by side: the times mean nothing then
python benchmarks/learning/run.py --quick                        everything in a minute, nothing learnt

Seeds that are done already are not run again (--fresh runs them again), and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from learning import pictures, report
from learning.jobs import Job, Way, run_all
from learning.results import ResultFolder, StudyResult
from learning.studies import ALL_STUDIES, SEEDS, STUDIES, Study, study_named

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"
RESULTS = HERE / "results"


def main() -> int:
    """Run what is missing, write the results, print them; 1 if a run failed."""
    options = parse_arguments()
    folder = ResultFolder(options.results, options.quick)
    way = Way(options.parallel, options.quick, options.work, command_of(options))
    jobs = [Job(study, seed, way) for study in options.study for seed in options.seeds or study.usual_seeds]
    missing = []
    for job in jobs:
        if options.fresh:
            job.forget()
        earlier = job.earlier_result()
        if earlier is None:
            missing.append(job)
        else:
            progress(f"{job.name}: done before")
            folder.add(job.study, earlier, job.run_dir)
    finished = 0
    for job, found in run_all(missing, options.parallel, progress):
        folder.add(job.study, found, job.run_dir)
        finished += 1
    present(folder, options.study)
    return 0 if finished == len(missing) else 1


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [study.name for study in ALL_STUDIES]
    parser.add_argument("--study", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument(
        "--seeds", nargs="+", type=int, metavar="SEED", help="default 0 to 4 or 0 to 2, see README.md; with --quick 0"
    )
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="runs side by side, on the native backend")
    parser.add_argument("--fresh", action="store_true", help="run again what is done already")
    parser.add_argument("--quick", action="store_true", help="runs of a second; results stay out of the repository")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where the runs are kept, default build/learning")
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="where the results go, default benchmarks/learning/results"
    )
    options = parser.parse_args()
    if options.parallel < 1:
        parser.error(f"--parallel must be 1 or more, got {options.parallel}")
    if options.seeds is None and options.quick:
        options.seeds = SEEDS[:1]
    if options.work is None:
        options.work = BUILD / ("learning-quick" if options.quick else "learning")
    if options.results is None:
        options.results = options.work / "results" if options.quick else RESULTS
    options.study = [study_named(name) for name in options.study]
    return options


def command_of(options: argparse.Namespace) -> str:
    """What to type to get the same figures, wherever the runs are kept."""
    words = ["python", "benchmarks/learning/run.py"]
    words += ["--study", *(study.name for study in options.study)] if len(options.study) < len(ALL_STUDIES) else []
    words += ["--seeds", *map(str, options.seeds)] if options.seeds else []
    words += ["--parallel", str(options.parallel)] if options.parallel > 1 else []
    words += ["--quick"] if options.quick else []
    return shlex.join(words)


def present(folder: ResultFolder, chosen: list[Study]) -> None:
    """Draw the curves, write the page, print the tables."""
    results = [result for study in ALL_STUDIES if (result := folder.read(study)).seeds]
    for result in results:
        if result.study in chosen:
            pictures.draw_study(result, folder)
    for env_id in {study.env_id for study in chosen}:
        of_task = [result for result in results if result.study.env_id == env_id]
        if of_task:
            pictures.draw_task(of_task, folder)
    if results:
        pictures.draw_overview(results, folder)
        (folder.path / "README.md").write_text(report.page_text(ALL_STUDIES, results))
        if folder.path == RESULTS:
            write_docs(results)
        print(f"{report.seeds_text(results)}\n\n{report.summary_text(results)}")


def write_docs(results: list[StudyResult]) -> None:
    """Put the results into the pages of the algorithms."""
    for algo in {study.algo for study in STUDIES}:
        page = HERE.parents[1] / "docs" / f"{algo}.md"
        of_algo = [result for result in results if result.study in STUDIES and result.study.algo == algo]
        page.write_text(report.with_results(page.read_text(), algo, of_algo))


def progress(text: str) -> None:
    """Tell what is going on, apart from the results."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
