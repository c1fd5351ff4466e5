"""`envfleet evaluate`: the returns of a run's agent, in one scenario or across several."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from envfleet import backends
from envfleet.cli.errors import UsageError
from envfleet.cli.parsing import EnvKwargs, Randomize, Sweeps, parse
from envfleet.cli.permission import Permission
from envfleet.cli.runs import chosen_run
from envfleet.scenarios import Sweep

if TYPE_CHECKING:
    from envfleet.train.judging.scores import Scenario


@dataclass(frozen=True)
class _Options:
    """Play episodes with a run's agent and report their returns, with the mean's 95 % interval.

    Attributes:
        run: the run's folder. A folder of runs means the newest in it, and latest the newest in runs/.
        episodes: the number of episodes per scenario.
        seed: fixes the episodes; none of them occurred in training.
        sweep: parameters to vary, one after the other; each value is one scenario. gravity=-11:-2:6 means six values
            from -11 to -2; wind_power=0,5,10 and enable_wind=True,False list the values.
        plot: where to draw a sweep; by default scenarios.png in the run.
        env_kwargs: constructor arguments of the environment, such as gravity=-5 enable_wind=True.
        randomize: parameters drawn for each episode, such as gravity=uniform(-11,-9), or the preset lunar-lander.
        stochastic: draw actions from the policy instead of taking the most likely.
        num_envs: the number of environments stepped at once.
        backend: where they run.
        as_json: print one line of JSON instead of a table.
        permission: what the run may import.
    """

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    episodes: int = 100
    seed: int = 0
    sweep: Annotated[Sweeps, arg(help_behavior_hint="(default: none)")] = ()
    plot: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None
    env_kwargs: Annotated[EnvKwargs, arg(help_behavior_hint="(default: none)")] = field(default_factory=dict)
    randomize: Annotated[Randomize, arg(help_behavior_hint="(default: none)")] = field(default_factory=dict)
    stochastic: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False
    num_envs: int = 10
    backend: Annotated[backends.BackendName, arg(help=f"where they run: {backends.described()}.")] = "auto"
    as_json: Annotated[bool, FlagCreatePairsOff, arg(name="json", help_behavior_hint="")] = False
    permission: OmitArgPrefixes[Permission] = field(default_factory=Permission)


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(_Options, "evaluate", argv)
    if options.plot is not None and not options.sweep:
        raise UsageError("--plot draws a sweep: give one too, such as --sweep gravity=-11:-2:6.")
    options = replace(options, run=chosen_run(options.run))
    return _evaluate_sweeps(options) if options.sweep else _evaluate(options)


def _evaluate(options: _Options) -> int:
    # Late: torch takes seconds to load, and a help text does not need it.
    from envfleet.train.judging.evaluation import evaluate, table

    found = evaluate(options.run, allow_import=options.permission.for_run(options.run), **_arguments(options))
    print(json.dumps(found.to_json_dict()) if options.as_json else table([found]))
    return 0


def _evaluate_sweeps(options: _Options) -> int:
    from envfleet.train.folders.checkpoint import load_agent
    from envfleet.train.judging.evaluation import evaluate_sweep, table
    from envfleet.train.judging.figures import check_format

    if options.plot is not None:
        check_format(options.plot)
    agent = load_agent(options.run, allow_import=options.permission.for_run(options.run))
    for sweep in options.sweep:
        evaluate_sweep(agent, Sweep(sweep.name, ()))  # no episodes yet: a misspelt name is refused before any
    singles = [Sweep(sweep.name, (value,)) for sweep in options.sweep for value in sweep.values]
    scenarios: list[Scenario] = []
    try:
        for number, single in enumerate(singles, start=1):
            _say_under_way(f"scenario {number} of {len(singles)}: {single.name}={single.values[0]}")
            scenarios += evaluate_sweep(agent, single, **_arguments(options))
    finally:
        _say_under_way("")
    if options.as_json:
        rows = [scenario.to_json_dict() for scenario in scenarios]
        print(json.dumps({"env_id": agent.config.env_id, "seed": options.seed, "scenarios": rows}))
    else:
        print(table(scenarios))
    if options.plot is not None or not options.as_json:
        _plot(scenarios, options, f"{agent.config.algo.upper()} on {agent.config.env_id}")
    return 0 if any(scenario.evaluation is not None for scenario in scenarios) else 1


def _arguments(options: _Options) -> dict[str, Any]:
    return {
        "episodes": options.episodes,
        "seed": options.seed,
        "num_envs": options.num_envs,
        "env_kwargs": options.env_kwargs,
        "randomize": options.randomize,
        "backend": options.backend,
        "deterministic": not options.stochastic,
    }


def _plot(scenarios: Sequence[Scenario], options: _Options, who: str) -> None:
    from envfleet.train.judging.plots import plot_scenarios

    rows: Any = [
        {**scenario.to_json_dict(), "value": float(scenario.value)}
        for scenario in scenarios
        if scenario.evaluation is not None and isinstance(scenario.value, (bool, int, float))
    ]
    if not rows:
        print(
            "No plot: none of these scenarios has a number for a value and episodes that were played.", file=sys.stderr
        )
        return
    title = f"{who}, {options.episodes} episodes per point, seed {options.seed}"
    path = plot_scenarios(rows, options.plot or options.run / "scenarios.png", title=title)
    _keep_numbers(scenarios, path, options)
    if not options.as_json:
        print(f"\nplot: {path}")


def _keep_numbers(scenarios: Sequence[Scenario], picture: Path, options: _Options) -> None:
    """Write the numbers beside the picture: a report draws them again."""
    from envfleet.train.atomic_files import replacing

    told = {"seed": options.seed, "scenarios": [scenario.to_json_dict() for scenario in scenarios]}
    with replacing(picture.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def _say_under_way(text: str) -> None:
    """Print a line that the next one replaces; print nothing if the output is not a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
