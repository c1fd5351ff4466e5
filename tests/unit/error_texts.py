"""The texts of the package's error messages, as the source has them, and those that docs/errors.md quotes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "envfleet"
PAGE = (ROOT / "docs" / "errors.md").read_text()

# A heading, the first cell of a row, or an item of a list.
MESSAGES = re.findall(r"^(?:### |\| |- )`(.*?)`(?: \||$)", PAGE, re.MULTILINE)

WARNS_OR_FAILS = {"warn", "error", "fail"}


def plain(text: str) -> str:
    """Without what a heading cannot show."""
    return " ".join(text.replace("`", "").split())


def parts(message: str) -> list[str]:
    """What of a message is always the same."""
    found = [part.strip(" .:,;()'") for part in plain(message).split("…")]
    return [part for part in found if len(part) > 3]


@cache
def texts_of_the_source() -> list[str]:
    """Every text in the package, with `…` for what is put into it."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.JoinedStr, ast.Constant)):
                found.append(plain(_text(node, {})))
    for path in (ROOT / "cpp").rglob("*.h"):
        found += [plain(text) for text in re.findall(r'"([^"\n]+)"', path.read_text())]
    return [text for text in dict.fromkeys(found) if len(text) > 3]


@dataclass(frozen=True)
class Raised:
    """One place where the package raises or warns.

    Attributes:
        module: The file, from src/envfleet on.
        kind: The class, or the function that makes the error.
        text: The message, with `…` for what is put into it.
    """

    module: str
    kind: str
    text: str


@cache
def raised() -> list[Raised]:
    """Every place where something is raised with a text that can be read in the source."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for kind, text in _raised_in(ast.parse(path.read_text()), {}):
            if parts(text):
                found.append(Raised(module, kind, plain(text)))
    return found


def _raised_in(tree: ast.AST, assigned: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(tree):
        known = {**assigned, **_assigned(node)} if isinstance(node, ast.FunctionDef) else assigned
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield ast.unparse(node.exc.func), " ".join(_text(each, known) for each in node.exc.args)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in WARNS_OR_FAILS and node.args:
            yield ast.unparse(node.func), _text(node.args[0], known)
        yield from _raised_in(node, known)


def _assigned(function: ast.FunctionDef) -> dict[str, str]:
    """The texts that a function gives names to."""
    found: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, _text(node.value, {}))
    return found


def _text(node: ast.AST, assigned: Mapping[str, str]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each, assigned) for each in node.values)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, assigned)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left, assigned) + _text(node.right, assigned)
    if isinstance(node, ast.Name):
        return assigned.get(node.id, "…")
    return "…"


def quotes(message: str, text: str) -> bool:
    """Whether a message of the index is the one that is raised; few words that many messages have do not do."""
    wanted, there = parts(message), parts(text)
    if _in_order(there, plain(message)) and sum(map(len, there)) > 8:
        return True
    enough = min(12, sum(map(len, there)) // 2)
    return _in_order(wanted, plain(text)) and sum(map(len, wanted)) >= enough


def _in_order(pieces: list[str], text: str) -> bool:
    place, text = 0, text.lower()
    for piece in pieces:
        found = text.find(piece.lower(), place)
        if found < 0:
            return False
        place = found + len(piece)
    return True
