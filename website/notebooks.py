"""Tutorials as notebooks: each page of docs/tutorials with Python in it is the source of the notebook beside it.

python website/notebooks.py                 make and run every notebook whose page has changed
python website/notebooks.py --all           make and run all of them
python website/notebooks.py making saving   make and run these

A block of Python is a cell of code, what stands between two of them is a cell of text. The notebook is kept with what
it showed when it was run; the site shows that below the blocks of the page.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
SECONDS = 300
"""How long a cell may take."""

BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK_TO_NOTEBOOK = re.compile(r"^This page is also \[a notebook\]\(\w+\.ipynb\)\.\s*", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook.

    Attributes:
        kind: "markdown" or "code".
        source: Its text.
    """

    kind: str
    source: str


def pages() -> list[Path]:
    """The tutorials that are notebooks too, in alphabetical order."""
    return sorted(path for path in TUTORIALS.glob("*.md") if BLOCK.search(path.read_text(encoding="utf-8")))


def cells_of(page: str) -> list[Cell]:
    """The cells that a page's Markdown stands for."""
    cells, end = [], 0
    for block in BLOCK.finditer(page):
        cells += [Cell("markdown", page[end : block.start()]), Cell("code", block["code"])]
        end = block.end()
    cells.append(Cell("markdown", page[end:]))
    cells = [Cell(cell.kind, _LINK_TO_NOTEBOOK.sub("", cell.source).strip()) for cell in cells]
    return [cell for cell in cells if cell.source]


def cells_in(notebook: dict[str, Any]) -> list[Cell]:
    """The cells that a notebook has."""
    return [Cell(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]


def made(cells: Sequence[Cell], name: str) -> Any:
    """A notebook that has not been run, as nbformat knows it."""
    import nbformat.v4

    makers = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "envfleet": {"made_from": f"{name}.md"},
    }
    numbered = [makers[cell.kind](cell.source, id=f"{name}-{number}") for number, cell in enumerate(cells)]
    return nbformat.v4.new_notebook(cells=numbered, metadata=metadata)


def run(notebook: Any) -> None:
    """Runs it in an empty folder; what it shows is in it afterwards."""
    import nbclient

    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(
            notebook,
            timeout=SECONDS,
            resources={"metadata": {"path": folder}},
            record_timing=False,
            extra_arguments=["--IPKernelApp.log_level=40"],  # it warns of its port, which nobody else uses
        )
        client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [_kept(output) for output in joined(cell.outputs) if not _is_about_widgets(output)]


def joined(outputs: Sequence[Any]) -> Iterator[Any]:
    """Outputs in which texts that came one after another are one."""
    last = None
    for output in outputs:
        is_text = output["output_type"] == "stream"
        if is_text and last is not None and last["output_type"] == "stream" and last["name"] == output["name"]:
            last["text"] += output["text"]
            continue
        if last is not None:
            yield last
        last = output
    if last is not None:
        yield last


def _is_about_widgets(output: Any) -> bool:
    """Whether a library only says that it could draw nicer bars: Ray does."""
    return output["output_type"] == "stream" and output["name"] == "stderr" and "ipywidgets" in output["text"]


def _kept(output: Any) -> Any:
    """Without the address in memory that a figure's text has, and with a smaller file of the picture."""
    if "data" in output and "image/png" in output["data"]:
        output["data"]["text/plain"] = "<Figure>"
        output["data"]["image/png"] = _smaller(output["data"]["image/png"])
    return output


def _smaller(picture: str) -> str:
    """A PNG, in base64, with as many colours as a plot needs."""
    from PIL import Image

    target = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(target, "PNG", optimize=True)
    return base64.b64encode(target.getvalue()).decode()


def write(page: Path) -> None:
    """Makes and runs the notebook of a page."""
    import nbformat

    notebook = made(cells_of(page.read_text(encoding="utf-8")), page.stem)
    run(notebook)
    nbformat.write(notebook, page.with_suffix(".ipynb"))


def is_current(page: Path) -> bool:
    """Whether the notebook beside a page has its cells."""
    notebook = page.with_suffix(".ipynb")
    if not notebook.exists():
        return False
    return cells_in(json.loads(notebook.read_text(encoding="utf-8"))) == cells_of(page.read_text(encoding="utf-8"))


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [page.stem for page in pages()]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--all", action="store_true", help="also those that are as their pages")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"there is no tutorial {unknown[0]!r}; there are {', '.join(known)}")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    for page in pages():
        if page.stem in options.names or (not options.names and (options.all or not is_current(page))):
            print(page.stem, file=sys.stderr)
            write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
