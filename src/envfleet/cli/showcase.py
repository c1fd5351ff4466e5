"""`envfleet showcase`: a video of a run's agent, or a window in which it plays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from envfleet.cli.errors import UsageError
from envfleet.cli.parsing import EnvKwargs, Randomize, parse
from envfleet.cli.permission import Permission
from envfleet.cli.runs import chosen_run


@dataclass(frozen=True)
class _Options:
    """Film episodes of a run's agent: a video, and a picture of the best episode.

    Attributes:
        run: the run's folder. A folder of runs means the newest in it, and latest the newest in runs/.
        episodes: the number of episodes.
        seed: fixes the episodes; with the seed of an evaluation, they are the first episodes of its environments.
        output: the video file, ending in .mp4 or .gif; by default showcase.mp4 in the run.
        mosaic: show all episodes side by side, not one after another.
        no_caption: leave out the line with step and return below the picture.
        human: play in a window and write no file.
        env_kwargs: constructor arguments of the environment, such as gravity=-5 enable_wind=True.
        randomize: parameters drawn for each episode, such as gravity=uniform(-11,-9), or the preset lunar-lander.
        stochastic: draw actions from the policy instead of taking the most likely.
        permission: what the run may import.
    """

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    episodes: int = 3
    seed: int = 0
    output: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None
    mosaic: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False
    no_caption: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False
    human: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False
    env_kwargs: Annotated[EnvKwargs, arg(help_behavior_hint="(default: none)")] = field(default_factory=dict)
    randomize: Annotated[Randomize, arg(help_behavior_hint="(default: none)")] = field(default_factory=dict)
    stochastic: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False
    permission: OmitArgPrefixes[Permission] = field(default_factory=Permission)


def need_no_screen() -> None:
    """Tell SDL, which draws many environments, not to look for a screen, so that it does not complain."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(_Options, "showcase", argv)
    if options.human:
        _check_window(options)
        return _watch(options)
    return _film(options)


def _check_window(options: _Options) -> None:
    given = {"--output": options.output is not None, "--mosaic": options.mosaic, "--no-caption": options.no_caption}
    useless = [name for name, is_given in given.items() if is_given]
    if useless:
        raise UsageError(f"--human opens a window and makes no film, so leave out {' and '.join(useless)}.")


def _film(options: _Options) -> int:
    need_no_screen()
    # Late: torch takes seconds to load, and a help text does not need it.
    from envfleet.train.filming.showcase import showcase

    run_dir = chosen_run(options.run)
    shown = showcase(
        run_dir,
        episodes=options.episodes,
        seed=options.seed,
        path=options.output,
        mosaic=options.mosaic,
        caption=not options.no_caption,
        env_kwargs=options.env_kwargs,
        randomize=options.randomize,
        deterministic=not options.stochastic,
        allow_import=options.permission.for_run(run_dir),
    )
    _print_episodes(shown.returns, shown.lengths)
    print(f"video: {shown.path}\nstill: {shown.still}")
    return 0


def _watch(options: _Options) -> int:
    from envfleet.train.filming.window import play_in_window

    run_dir = chosen_run(options.run)
    seen = play_in_window(
        run_dir,
        episodes=options.episodes,
        seed=options.seed,
        env_kwargs=options.env_kwargs,
        randomize=options.randomize,
        deterministic=not options.stochastic,
        allow_import=options.permission.for_run(run_dir),
    )
    _print_episodes(seen.returns, seen.lengths)
    return 0


def _print_episodes(returns: Sequence[float], lengths: Sequence[int]) -> None:
    from envfleet.train.running.reporting import score

    for number, (total, length) in enumerate(zip(returns, lengths, strict=True), start=1):
        print(f"episode {number}: return {score(total)} in {length} steps")
