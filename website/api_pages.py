"""Reference pages of the public packages: the order and the short texts of docs/api.md, the rest from docstrings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]

_SECTION = re.compile(r"^## (envfleet[\w.]*)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_ROW = re.compile(r"^\| (?P<names>`[^|]*) \| (?P<text>.*?) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Package:
    """A section of docs/api.md.

    Attributes:
        name: As one imports it.
        intro: What stands above its table.
        rows: Its table: the names of a row, and what they are.
    """

    name: str
    intro: str
    rows: tuple[tuple[tuple[str, ...], str], ...]

    @property
    def src_uri(self) -> str:
        """The page, as MkDocs names it."""
        return f"reference/{self.name}.md"


def packages() -> list[Package]:
    """Every public package, in the order of docs/api.md."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    return [_package(name, content) for name, content in _SECTION.findall(text)]


def _package(name: str, content: str) -> Package:
    rows = tuple((tuple(re.findall(r"`(\w+)`", row["names"])), row["text"]) for row in _ROW.finditer(content))
    return Package(name, content.partition("\n| name |")[0].strip(), rows)


def page(package: Package) -> str:
    """The page of one package as Markdown, with what mkdocstrings is to put in."""
    intro = _from_above(package.intro)
    parts = [f"---\ntitle: {package.name}\n---\n\n# {package.name}\n\n{intro}\n"]
    for names, text in package.rows:
        parts += [_entry(package.name, name, text) for name in names]
    return "\n".join(parts)


def _entry(package: str, name: str, text: str) -> str:
    defined = _defined_at(package, name)
    if defined is None:  # another library's
        return f"## `{name}`\n\n{_sentence(_from_above(text))}\n"
    shown_before = package != "envfleet" and _defined_at("envfleet", name) == defined
    if shown_before:
        return f"## `{name}`\n\nThe same as [`envfleet.{name}`](envfleet.md#envfleet.{name}).\n"
    if package == "envfleet.adapters":
        options = _options(show_root_heading=False, heading_level=3)
        return f"## `{name}`\n\n{_sentence(_from_above(text))}\n\n::: {defined}\n{options}"
    return f"::: {package}.{name}\n{_options(show_root_heading=True)}"


def _options(**options: object) -> str:
    return "    options:\n" + "".join(f"      {name}: {str(value).lower()}\n" for name, value in options.items())


def _from_above(text: str) -> str:
    """Links of docs/api.md as the page needs them, one folder below."""
    text = re.sub(r"\]\((?!#|[a-z]+:)", "](../", text)
    return re.sub(r"\]\(#(envfleet[\w.]*)\)", r"](\1.md)", text)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


@cache
def _tree() -> griffe.Object | griffe.Alias:
    return griffe.load("envfleet", search_paths=[str(ROOT / "src")], try_relative_path=False)


def _defined_at(package: str, name: str) -> str | None:
    """The path where a public name is defined; None if that is outside envfleet."""
    path = f"{package}.{name}".removeprefix("envfleet.")
    try:
        found = _tree()[path]
        return str(found.final_target.path if found.is_alias else found.path)
    except (KeyError, griffe.AliasResolutionError):
        return None
