"""What the oracle tests compared, and with what result: the record that the parity table of the docs is made from."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).with_name("parity.json")
"""That of the last `make oracle`."""

COMPARED_WITH = ("gymnasium", "numpy", "Box2D", "box2d-py", "mujoco")


@dataclass
class Comparison:
    """A native fleet beside Gymnasium's environments.

    Attributes:
        env_id: Whose.
        arguments: Of the constructor.
        mode: Of autoreset.
        seeds: How many environments, each with a seed of its own.
        steps: Of each of them.
        steered: Whether a pilot chose the actions, instead of chance.
        episodes: How many ended on the way.
        numbers: How many of the native fleet's were held against Gymnasium's.
        equal: Whether each of them was the same in every bit; until all have been, False.
    """

    env_id: str
    arguments: Mapping[str, Any]
    mode: str
    seeds: int
    steps: int
    steered: bool = False
    episodes: int = 0
    numbers: int = 0
    equal: bool = False

    def count(self, compared: Any) -> None:
        """Adds the numbers in a nested result to those that were held against Gymnasium's."""
        self.numbers += _numbers(compared)


COMPARISONS: list[Comparison] = []
"""Those of this run."""


def write(path: Path, comparisons: Iterable[Comparison]) -> None:
    """One comparison a line, so that a change of the file can be read."""
    installed = {each.name for each in metadata.distributions()}
    versions = {name: metadata.version(name) for name in COMPARED_WITH if name in installed}
    versions["libc"] = " ".join(platform.libc_ver())
    lines = ",\n".join(json.dumps(_as_json(each)) for each in comparisons)
    path.write_text(f'{{"versions": {json.dumps(versions)},\n"comparisons": [\n{lines}\n]}}\n')


def read(path: Path = RECORD) -> list[Comparison]:
    """The comparisons of an earlier run."""
    return [Comparison(**each) for each in json.loads(path.read_text())["comparisons"]]


def known_arguments(arguments: Mapping[str, Any]) -> str:
    """Arguments as the record has them, fit to be compared and sorted."""
    return json.dumps(_arguments_as_json(arguments), sort_keys=True)


def _as_json(comparison: Comparison) -> dict[str, Any]:
    return {**asdict(comparison), "arguments": _arguments_as_json(comparison.arguments)}


def _arguments_as_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A file's folder is that of one run."""
    return {name: Path(value).name if name == "xml_file" else value for name, value in arguments.items()}


def _numbers(tree: Any) -> int:
    if isinstance(tree, Mapping):
        return sum(_numbers(each) for each in tree.values())
    if isinstance(tree, tuple) or (isinstance(tree, np.ndarray) and tree.dtype.hasobject):
        return sum(_numbers(each) for each in tree)
    return 0 if tree is None else int(np.size(tree))
