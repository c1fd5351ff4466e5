"""Notebooks: whether this is one, and a place below the cell whose content can be replaced."""

from __future__ import annotations

import html
import importlib
import sys
from typing import Any, final


def in_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter, Colab, VS Code or the like; IPython in a terminal has none.

    IPython is asked only where it has been imported, as it is in every notebook.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@final
class Display:
    """A place in the output of a notebook's cell whose content can be replaced."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str, share: float | None = None) -> None:
        """Replace the content by lines of text.

        Args:
            text: the lines; they are shown as they are.
            share: how much is done, from 0 to 1, to be drawn as a bar between the text and its last line.
        """
        content = {"text/plain": text, "text/html": _page(text, share)}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display  # where there is a notebook, there it is
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _page(text: str, share: float | None) -> str:
    *lines, last = (html.escape(line) for line in text.splitlines() or [""])
    if share is not None:
        last = f'<progress value="{share:.4f}" max="1" style="width: 20em; vertical-align: middle"></progress> {last}'
    return f'<div style="font-family: monospace">{"<br>".join([*lines, last])}</div>'
