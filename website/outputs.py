"""What tutorials show when they are run, on their pages: it is in the notebooks beside them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import notebooks


@dataclass(frozen=True)
class Shown:
    """The pages' pictures, and what is to stand below each block of code.

    Attributes:
        below: Markdown, one text for each block of Python.
        pictures: PNGs by the names that the Markdown uses.
    """

    below: tuple[str, ...]
    pictures: dict[str, bytes]


def shown_by(page: Path) -> Shown:
    """What the notebook beside a page shows.

    A notebook that is older than its page is refused: it would show what other code has printed.
    """
    if not notebooks.is_current(page):
        raise ValueError(f"{page.with_suffix('.ipynb').name} is not as {page.name} is: run make notebooks.")
    notebook = json.loads(page.with_suffix(".ipynb").read_text(encoding="utf-8"))
    pictures: dict[str, bytes] = {}
    below = [
        "\n".join(_markdown(output, page.stem, pictures) for output in cell["outputs"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
    return Shown(tuple(below), pictures)


def with_outputs(markdown: str, shown: Shown) -> str:
    """The page's Markdown with what each block of Python shows below it."""
    below: Iterator[str] = iter(shown.below)
    return notebooks.BLOCK.sub(lambda block: f"{block[0]}\n{next(below)}", markdown)


def _markdown(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    if output["output_type"] == "stream":
        return _text("".join(output["text"]))
    data = {kind: "".join(content) for kind, content in output["data"].items()}
    if "image/png" in data:
        file = f"{name}-{len(pictures) + 1}.png"
        pictures[file] = base64.b64decode(data["image/png"])
        return f"\n![Figure {len(pictures)} of this page: what the block above draws]({file})\n"
    if not data.get("text/plain", "").strip():
        return ""  # a progress bar that is done
    if "text/html" in data:
        return f'\n<div class="notebook-output">\n{data["text/html"]}\n</div>\n'
    return _text(data["text/plain"])


def _text(text: str) -> str:
    return f"\n``` {{ .text .notebook-output }}\n{text.rstrip()}\n```\n"
