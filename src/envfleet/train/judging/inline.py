"""What notebooks show of films, pictures and tables, when they are the last line of a cell."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path, PosixPath
from typing import final

_LARGEST = 20_000_000
"""Bytes of a film that are put into a notebook; a larger one would make it slow to open and to save."""

_DOTS_PER_PIXEL = 2
"""Plots are drawn for print, with twice the dots a screen needs."""


def film_html(film: Path, still: Path, caption: str) -> str:
    """A film to play in a page, in which it is contained; of a large one, the still.

    Args:
        film: .mp4 or .gif.
        still: .png.
        caption: a line of text below.
    """
    below = f"<div>{html.escape(caption)}</div>"
    if not film.is_file():
        return f"<div>{html.escape(str(film))} is not there any more.</div>{below}"
    if film.stat().st_size > _LARGEST:
        return _image(still) + below
    if film.suffix.lower() == ".gif":
        return _image(film) + below
    return f'<video controls loop muted style="max-width: 100%" src="{film_source(film)}"></video>{below}'


def film_source(film: Path) -> str | None:
    """A film or a picture, .mp4, .gif or .png, as an address that contains it; None if it is too large for a page."""
    if film.stat().st_size > _LARGEST:
        return None
    kind = "video/mp4" if film.suffix.lower() == ".mp4" else f"image/{film.suffix.lower().removeprefix('.')}"
    return f"data:{kind};base64,{_encoded(film)}"


def table_html(headline: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """A table for a page; a row that is shorter than the headline has its last cell over all remaining columns.

    Args:
        headline: the titles of the columns.
        rows: their cells, each a text.
        note: a line of text below.
    """
    head = "".join(f"<th>{html.escape(title)}</th>" for title in headline)
    lines = [f"<tr>{head}</tr>"]
    for row in rows:
        *cells, last = (html.escape(cell) for cell in row)
        rest = len(headline) - len(cells)
        span = f' colspan="{rest}" style="text-align: left"' if rest > 1 else ""
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + f"<td{span}>{last}</td></tr>")
    return f"<table>{''.join(lines)}</table>" + (f"<div>{html.escape(note)}</div>" if note else "")


@final
class PictureFile(PosixPath):
    """The path of a picture. In a notebook it is shown as the picture itself."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]] | None:
        if self.suffix.lower() != ".png" or not self.is_file():
            return None
        content = self.read_bytes()
        width = int.from_bytes(content[16:20], "big")  # where every png says it
        return content, {"width": width // _DOTS_PER_PIXEL}

    def _repr_svg_(self) -> str | None:
        return self.read_text() if self.suffix.lower() == ".svg" and self.is_file() else None


def _image(path: Path) -> str:
    kind = path.suffix.lower().removeprefix(".")
    return f'<img style="max-width: 100%" src="data:image/{kind};base64,{_encoded(path)}">'


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
