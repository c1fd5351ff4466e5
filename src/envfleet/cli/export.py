"""`envfleet export`: a run's policy as one file, for programs that have no envfleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from envfleet.cli.errors import UsageError
from envfleet.cli.parsing import parse
from envfleet.cli.permission import Permission
from envfleet.cli.runs import chosen_run


@dataclass(frozen=True)
class _Options:
    """Write a run's policy to one file: observations in, actions out, with normalisation and bounds inside.

    The actions are the likeliest. The file is loaded again and compared with the agent on 1,000 observations.

    Attributes:
        run: the run's folder, or its best. A folder of runs means the newest in it, and latest the newest in runs/.
        onnx: for onnxruntime and everything else that reads ONNX.
        torch: for torch.export.load.
        torchscript: for torch.jit.load, also in C++.
        output: the file to write; by default policy.onnx, policy.pt2 or policy.pt in the run.
        permission: what the run may import.
    """

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    onnx: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False
    torch: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False
    torchscript: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False
    output: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None
    permission: OmitArgPrefixes[Permission] = field(default_factory=Permission)


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(_Options, "export", argv)
    formats = [name for name in ("onnx", "torch", "torchscript") if getattr(options, name)]
    if len(formats) != 1:
        raise UsageError(f"give one of --onnx, --torch and --torchscript, got {' '.join(formats) or 'none'}.")
    chosen = chosen_run(options.run)
    # Late: torch takes seconds to load, and a help text does not need it.
    from envfleet.train.sharing.export import export

    allowed = options.permission.for_run(chosen)
    made = export(chosen, options.output, format=formats[0], allow_import=allowed)  # type: ignore[arg-type]
    print(f"policy: {made.path}\ninputs: {', '.join(made.inputs)}\noutputs: {', '.join(made.outputs)}")
    choices = f", {made.other_choices} other choices" if made.other_choices else ""
    print(f"checked on 1,000 observations: differs from the agent by {made.difference:.1g} at most{choices}")
    return 0
