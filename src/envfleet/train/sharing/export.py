"""`export`: a policy as one file, for programs without envfleet, and a check that it acts as the agent does."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from envfleet._names import did_you_mean
from envfleet._optional import require
from envfleet.train.agent import Agent
from envfleet.train.atomic_files import replacing
from envfleet.train.folders.checkpoint import load_agent
from envfleet.train.folders.trust import AllowImport
from envfleet.train.observations import Array
from envfleet.train.sharing.policy_module import PolicyModule, Run, state_size
from envfleet.wrappers._leaves import flatten, named_leaves, unflatten

ExportFormat: TypeAlias = Literal["onnx", "torch", "torchscript"]
SUFFIXES: Mapping[str, str] = {"onnx": ".onnx", "torch": ".pt2", "torchscript": ".pt"}

_CHECKED = 1000
_CHECKED_ALONE = 16
_REMEMBERED_STEPS = 3
_TOLERANCE = 1e-5
"""Beyond what sums in another order explain, which for weights of a usual size is less than 1e-6."""

_MOST_OTHER_CHOICES = 0.001
"""Of choices: two that are worth the same up to rounding may be taken the other way round."""


@dataclass(frozen=True)
class Exported:
    """A policy's file.

    Attributes:
        path: where it is.
        inputs: the names of the tensors it takes.
        outputs: the names of those it gives.
        difference: the largest between its actions and those of `agent.act`, on 1,000 observations.
        other_choices: of 1,000 discrete actions, those that were others; 0 but for ties up to rounding.
    """

    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    difference: float
    other_choices: int


def export(
    agent: Agent | str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    format: ExportFormat = "onnx",  # noqa: A002  as every library calls it
    allow_import: AllowImport = False,
) -> Exported:
    """Write an agent's deterministic policy to one file: normalisation, network, likeliest action, bounds.

    The file takes observations as the environment gives them, any number at a time, and gives actions as it takes them.
    It is loaded again and compared with `agent.act(observations)`, on 1,000 observations drawn from the space.

    Args:
        agent: the agent, or the folder of its run.
        path: where to; by default policy.onnx, policy.pt2 or policy.pt in the run's folder.
        format: "onnx", "torch" (`torch.export`, loaded by `torch.export.load`) or "torchscript" (`torch.jit.load`).
        allow_import: as for `load_agent`, where a folder is given.

    Raises:
        ValueError: The policy cannot be written in this format; the message says why.
    """
    if format not in SUFFIXES:
        hint = did_you_mean(str(format), get_args(ExportFormat))
        raise ValueError(f"format must be one of {', '.join(SUFFIXES)}, got {format!r}{hint}.")
    if not isinstance(agent, Agent):
        folder = Path(agent)
        target = Path(path) if path is not None else folder / f"policy{SUFFIXES[format]}"
        agent = load_agent(folder, allow_import=allow_import)
    elif path is None:
        raise ValueError(f"say where to write the policy of an agent: export(agent, 'policy{SUFFIXES[format]}').")
    else:
        target = Path(path)
    if target.suffix != SUFFIXES[format]:
        raise ValueError(f"a policy as {format} is a file that ends in {SUFFIXES[format]}, got {os.fspath(target)!r}.")
    module = PolicyModule(agent)
    with replacing(target) as temporary, torch.inference_mode(False), torch.no_grad():
        with _explained(format), _quiet():
            run = _WRITERS[format](module, _example(agent, 2), _facts(agent), temporary)
        difference, other_choices = _compare(agent, run)
    return Exported(target, tuple(module.input_names), tuple(module.output_names), difference, other_choices)


def _facts(agent: Agent) -> dict[str, str]:
    """What the file says about itself."""
    return {
        "env_id": str(agent.config.env_id),
        "algo": agent.config.algo,
        "envfleet": version("envfleet"),
        "observation_space": str(agent.observation_space),
        "action_space": str(agent.action_space),
    }


def _write_onnx(module: PolicyModule, example: list[Tensor], facts: Mapping[str, str], path: Path) -> Run:
    runtime = require("onnxruntime", "export")
    for name in ("onnx", "onnxscript"):
        require(name, "export")
    names: Any = {"input_names": module.input_names, "output_names": module.output_names}
    program = torch.onnx.export(
        module, tuple(example), dynamic_shapes=_any_batch(example), dynamo=True, verbose=False, **names
    )
    assert program is not None
    program.model.metadata_props.update(facts)
    program.save(str(path), external_data=False)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    taken = {entry.name for entry in session.get_inputs()}

    def run(inputs: list[Array]) -> list[Array]:
        given = {name: leaf for name, leaf in zip(module.input_names, inputs, strict=True) if name in taken}
        found: list[Array] = session.run(None, given)
        return found

    return run


def _write_torch(module: PolicyModule, example: list[Tensor], facts: Mapping[str, str], path: Path) -> Run:
    program = torch.export.export(module, tuple(example), dynamic_shapes=_any_batch(example))
    told = {"inputs": module.input_names, "outputs": module.output_names, **facts}
    torch.export.save(program, path, extra_files={"envfleet.json": json.dumps(told)})
    return _called(torch.export.load(path).module())


def _write_torchscript(module: PolicyModule, example: list[Tensor], facts: Mapping[str, str], path: Path) -> Run:
    # Traced: what a network decides by its inputs' shapes alone is as the example has it.
    traced: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
        module, tuple(example), check_trace=False
    )
    told = {"inputs": module.input_names, "outputs": module.output_names, **facts}
    torch.jit.save(traced, str(path), _extra_files={"envfleet.json": json.dumps(told)})
    return _called(torch.jit.load(str(path)))  # type: ignore[no-untyped-call]


_WRITERS: Mapping[str, Callable[[PolicyModule, list[Tensor], Mapping[str, str], Path], Run]] = {
    "onnx": _write_onnx,
    "torch": _write_torch,
    "torchscript": _write_torchscript,
}


def _called(module: Any) -> Run:
    def run(inputs: list[Array]) -> list[Array]:
        return [tensor.numpy() for tensor in module(*map(torch.from_numpy, inputs))]

    return run


def _any_batch(example: list[Tensor]) -> Any:
    """All inputs have one first dimension, and it may be any."""
    batch = torch.export.Dim("batch", min=1)
    return (tuple({0: batch} for _ in example),)


def _example(agent: Agent, batch: int) -> list[Tensor]:
    generator = np.random.default_rng(0)
    inputs = [torch.from_numpy(leaf) for leaf in _drawn(agent.observation_space, batch, generator)]
    size = state_size(agent)
    return [*inputs, torch.zeros(batch, size), torch.ones(batch, dtype=torch.bool)] if size else inputs


def _compare(agent: Agent, run: Run) -> tuple[float, int]:
    """Have the file and the agent act on the same observations; refuse a file that acts otherwise.

    All at once, and some one by one: a network that decides by the values it sees decides otherwise there.
    """
    generator = np.random.default_rng(1)
    with agent.seeded(0):
        found = [_compared(agent, run, batch, generator) for batch in (_CHECKED, *[1] * _CHECKED_ALONE)]
    largest, others = max(difference for difference, _ in found), sum(other for _, other in found)
    if largest > _TOLERANCE or others > _MOST_OTHER_CHOICES * _CHECKED:
        raise ValueError(
            f"The file would not act as the agent does: on {_CHECKED} observations numbers differ by up to "
            f"{largest:.2g} and {others} choices are others. Nothing was written. A network that decides by the values "
            "it sees, or draws numbers, cannot be written so."
        )
    return largest, others


def _compared(agent: Agent, run: Run, batch: int, generator: np.random.Generator) -> tuple[float, int]:
    """For one batch: the largest difference, and other choices; of a policy that remembers, over some steps."""
    largest, others, size = 0.0, 0, state_size(agent)
    state, resets = np.zeros((batch, size), np.float32), np.ones(batch, np.bool_)
    for _ in range(_REMEMBERED_STEPS if size else 1):
        leaves = _drawn(agent.observation_space, batch, generator)
        found = run([*leaves, state, resets] if size else leaves)
        more: dict[str, Any] = {"resets": resets} if size else {}
        wanted = flatten(agent.action_space, agent.act(unflatten(agent.observation_space, leaves), **more))
        if size:
            *found, state = found
            resets = np.zeros(batch, np.bool_)
        for got, expected, (_, leaf) in zip(found, wanted, named_leaves(agent.action_space), strict=True):
            difference, other = _difference(got, np.asarray(expected), leaf)
            largest, others = max(largest, difference), others + other
    return largest, others


def _difference(got: Array, wanted: Array, leaf: Space[Any]) -> tuple[float, int]:
    """Between numbers, in units of the larger of 1 and their size; and how many choices are others."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        raise ValueError(
            f"The file would give {got.dtype} {got.shape} where the agent gives {wanted.dtype} {wanted.shape}. "
            "Nothing was written."
        )
    if isinstance(leaf, spaces.Box):
        return float(np.max(np.abs(got - wanted) / np.maximum(1.0, np.abs(wanted)))), 0
    return 0.0, int((got != wanted).reshape(len(got), -1).any(1).sum())


def _drawn(space: Space[Any], batch: int, generator: np.random.Generator) -> list[Array]:
    """Observations from the whole space, leaf by leaf; where it has no bounds, from a normal distribution."""
    return [_drawn_leaf(leaf, batch, generator) for _, leaf in named_leaves(space)]


def _drawn_leaf(leaf: Space[Any], batch: int, generator: np.random.Generator) -> Array:
    shape = (batch, *(leaf.shape or ()))
    if isinstance(leaf, spaces.Discrete):
        return (int(leaf.start) + generator.integers(int(leaf.n), size=shape)).astype(leaf.dtype)
    if isinstance(leaf, spaces.MultiDiscrete):
        return (leaf.start + generator.integers(leaf.nvec, size=shape)).astype(leaf.dtype)
    if isinstance(leaf, spaces.MultiBinary):
        return generator.integers(2, size=shape).astype(leaf.dtype)
    assert isinstance(leaf, spaces.Box)
    low, high = leaf.low.astype(np.float64), leaf.high.astype(np.float64)
    narrow = np.isfinite(low) & np.isfinite(high) & (high - low < 1e6)
    uniform = generator.uniform(np.where(narrow, low, -1.0), np.where(narrow, high, 1.0), size=shape)
    drawn = np.where(narrow, uniform, generator.normal(size=shape) * 3)
    return np.clip(drawn, low, high).astype(leaf.dtype)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """What torch cannot write is told in a sentence; its own explanations are long, and about its insides."""
    try:
        yield
    except (ModuleNotFoundError, MemoryError, OSError):
        raise
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "")
        others = [known for known in SUFFIXES if known != name]
        raise ValueError(
            f"This policy cannot be written as {name}: {type(error).__name__}: {first}. A network of your own must do "
            f"without Python that depends on the values of tensors; {' or '.join(others)} may take it as it is."
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch warns its own developers of what it does itself."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
