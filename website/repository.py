"""Files outside docs/ as pages of the site: what a page links to is there, whatever folder of the repository it is in.

A link is written as GitHub needs it, `../examples/memory.py`. In the site the file lies below `repo/`: Markdown as a
page, source code as a page that shows it, pictures, films and figures as they are.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "repo"
"""Of the site: where files outside docs/ are."""

AS_THEY_ARE = {".csv", ".gif", ".ico", ".ipynb", ".jpg", ".json", ".mp4", ".png", ".svg"}
LANGUAGES = {".py": "python", ".c": "c", ".h": "cpp", ".cpp": "cpp", ".sh": "sh", ".toml": "toml", ".yml": "yaml"}

REPLACED = {"benchmarks/learning/agents/README.md": "gallery.md"}
"""Files whose content a page shows in a better way."""

_CODE = r"^[ ]*(?P<fence>`{3,}|~{3,}).*?^[ ]*(?P=fence)[ ]*$|`[^`\n]+`"
_LINK = r"(?P<before>\]\(|\b(?:src|href|poster)=\")(?P<target>[^)\s\"#][^)\s\"#]*)(?P<after>[)\s\"#])"
_CODE_OR_LINK = re.compile(f"{_CODE}|{_LINK}", re.DOTALL | re.MULTILINE)


class MissingFileError(ValueError):
    """A page links to a file of the repository that is not there."""


def place(path: str) -> str:
    """Where a file of the repository is in the site, as MkDocs names it.

    Args:
        path: relative to the repository's root, as in `examples/memory.py`.
    """
    if path in REPLACED:
        return REPLACED[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    is_plain = path.endswith(".md") or Path(path).suffix.lower() in AS_THEY_ARE
    return f"{FOLDER}/{path}" if is_plain else f"{FOLDER}/{path}.md"


def origin(src_uri: str) -> str:
    """The file of the repository that a page of the site is made from; pages made while building count as in docs/."""
    inside = src_uri.removeprefix(f"{FOLDER}/")
    return inside if inside != src_uri else f"docs/{src_uri}"


def target_path(target: str, src_uri: str) -> str | None:
    """The file of the repository that a link leads to; None if it leads elsewhere."""
    if re.match(r"[a-z][a-z0-9+.-]*:|/|#", target):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin(src_uri)), target))
    return f"{path}/README.md" if (ROOT / path).is_dir() else path


_FILM = re.compile(r"\[!\[(?P<text>[^\]]*)\]\((?P<still>[^)]+)\)\]\((?P<film>[^)]+\.mp4)\)")


def with_films(markdown: str) -> str:
    """The page with films that play in place: on GitHub they are pictures that lead to the film."""
    kind = 'controls loop muted playsinline preload="none"'
    return _FILM.sub(rf'<video {kind} poster="\g<still>" src="\g<film>" aria-label="\g<text>"></video>', markdown)


def rewritten(markdown: str, src_uri: str) -> str:
    """The page with every link as it has to be in the site."""

    def change(target: str) -> str:
        path = target_path(target, src_uri)
        if path is None:
            return target
        return posixpath.relpath(place(path), posixpath.dirname(src_uri) or ".")

    return _for_each_link(markdown, change)


def add_linked_files(files: Files, config: MkDocsConfig) -> None:
    """Adds what the pages link to, and what those link to that come with it.

    Pages are to be in the navigation, as all others; source code that is only linked to is not.
    """
    waiting = [file for file in files.documentation_pages() if file.src_uri.endswith(".md")]
    waiting += [_add(_file_of(src_uri), "mkdocs.yml", True, files, config) for src_uri in _named_by(config.nav)]
    while waiting:
        page = waiting.pop()
        for path in [] if _is_code(page) else _linked_from(page):
            if not path.startswith("docs/") and place(path) not in files.src_uris:
                waiting.append(_add(path, page.src_uri, False, files, config))


def _add(path: str, linked_from: str, in_nav: bool, files: Files, config: MkDocsConfig) -> File:
    source, src_uri = ROOT / path, place(path)
    if not source.is_file():
        raise MissingFileError(f"{linked_from} names {path}, which is not in the repository.")
    if source.suffix.lower() in AS_THEY_ARE:
        file = File.generated(config, src_uri, abs_src_path=str(source))
    elif source.suffix == ".md":
        file = File.generated(config, src_uri, content=source.read_text(encoding="utf-8"))
    else:
        inclusion = InclusionLevel.UNDEFINED if in_nav else InclusionLevel.NOT_IN_NAV
        file = File.generated(config, src_uri, content=_code_page(source, searched=in_nav), inclusion=inclusion)
    files.append(file)
    return file


def _file_of(src_uri: str) -> str:
    """The file of the repository that a page outside docs/ is made from: the contrary of `place`."""
    path = origin(src_uri)
    return path if (ROOT / path).is_file() else path.removesuffix(".md")


def _is_code(page: File) -> bool:
    return not page.is_documentation_page() or (
        page.src_uri.startswith(f"{FOLDER}/") and not _file_of(page.src_uri).endswith(".md")
    )


def _code_page(source: Path, searched: bool) -> str:
    name = source.relative_to(ROOT).as_posix()
    code = source.read_text(encoding="utf-8").rstrip("\n")
    language = LANGUAGES.get(source.suffix, "text")
    exclude = "" if searched else "search:\n  exclude: true\n"
    return f"---\ntitle: {source.name}\n{exclude}---\n\n# `{name}`\n\n~~~~~~~~{language}\n{code}\n~~~~~~~~\n"


def _linked_from(page: File) -> list[str]:
    found: list[str] = []

    def note(target: str) -> str:
        if (path := target_path(target, page.src_uri)) is not None:
            found.append(path)
        return target

    _for_each_link(page.content_string, note)
    return found


def _for_each_link(markdown: str, change: Callable[[str], str]) -> str:
    def replace(match: re.Match[str]) -> str:
        if match["target"] is None:
            return match[0]
        return f"{match['before']}{change(match['target'])}{match['after']}"

    return _CODE_OR_LINK.sub(replace, markdown)


def _named_by(nav: object) -> list[str]:
    """The pages of the navigation that are outside docs/."""
    if isinstance(nav, list):
        return [path for entry in nav for path in _named_by(entry)]
    if isinstance(nav, dict):
        return [path for entry in nav.values() for path in _named_by(entry)]
    return [nav] if isinstance(nav, str) and nav.startswith(f"{FOLDER}/") else []
