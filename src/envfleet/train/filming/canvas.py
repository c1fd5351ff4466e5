"""The picture that a film shows: one episode, or several side by side, each with a line of text below it.

The text has a band of its own. So it is readable whatever the environment draws, and covers nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, final

import numpy as np

from envfleet._optional import require
from envfleet.rendering import GAP, GROUND, Frame, Tiles
from envfleet.train.filming.frames import enlarged, enlargement

_TEXT = (235, 235, 235)
_ENDED_TEXT = (255, 190, 80)
_SMALLEST_TEXT, _LARGEST_TEXT = 12, 18
_CHARACTERS = 26
"""How many times the text's size a picture should be wide: about fifty characters."""

_Colour: TypeAlias = tuple[int, int, int]


@final
class Canvas:
    """Places for `count` pictures of one size, in rows and columns, drawn on in place.

    Args:
        shape: the size of an environment's picture, (height, width, 3).
        count: how many there are.
        captions: whether there is a line of text below each.
        room: the width and the height that the whole must fit into.

    Attributes:
        picture: what is on the canvas now, uint8[height, width, 3].
    """

    def __init__(self, shape: Sequence[int], count: int, captions: bool, room: tuple[float, float]) -> None:
        height, width = shape[:2]
        columns, scale = _layout(height, width, count, room)
        self._height, self._width = max(1, round(height * scale)), max(1, round(width * scale))
        self._times = int(scale) if scale >= 1 else 0
        self._lettering = _Lettering(self._width) if captions else None
        below = self._lettering.height if self._lettering else 0
        self._tiles = Tiles(count, self._height + below, self._width, columns)
        self.picture: Frame = self._tiles.picture

    def draw(self, place: int, frame: Frame, texts: Sequence[str], ended: bool, darker: bool) -> None:
        """Put a picture into its place.

        Args:
            place: counted from 0, row by row.
            frame: of the size this canvas was made for.
            texts: what to write below it, from the longest to the shortest version; the first that fits is taken.
            ended: whether the episode is over; the text then has another colour.
            darker: whether the picture of an episode that is over is made darker, as something that stands still.
        """
        tile = self._tiles[place]
        fitting = enlarged(frame, self._times) if self._times else _shrunk(frame, self._height, self._width)
        tile[: self._height] = fitting // 2 if ended and darker else fitting
        if self._lettering is not None:
            self._lettering.write(tile[self._height :], texts, _ENDED_TEXT if ended else _TEXT)


def _layout(height: int, width: int, count: int, room: tuple[float, float]) -> tuple[int, float]:
    """The columns with which pictures are shown largest, and how many times their size that is.

    Large pictures are not enlarged, and small ones by a whole number.
    """
    scales = {}
    for columns in range(1, count + 1):
        rows = math.ceil(count / columns)
        across, down = room[0] / columns - GAP, room[1] / rows - GAP - 2 * _LARGEST_TEXT
        scales[columns] = min(across / width, down / height)
    columns = max(scales, key=lambda number: scales[number])
    scale = min(scales[columns], enlargement(height, width))
    return columns, float(int(scale)) if scale >= 1 else scale


def _shrunk(frame: Frame, height: int, width: int) -> Frame:
    image = require("PIL.Image", "train")
    return np.asarray(image.fromarray(np.ascontiguousarray(frame)).resize((width, height), image.Resampling.BOX))


@final
class _Lettering:
    """Writes a line of text into a band of a given width, of the height this asks for.

    Characters are drawn once and copied from then on: a line costs some microseconds.
    """

    def __init__(self, width: int) -> None:
        size = min(max(width // _CHARACTERS, _SMALLEST_TEXT), _LARGEST_TEXT)
        fonts = require("PIL.ImageFont", "train")
        self._font = fonts.load_default(size)
        self._margin = max(2, size // 3)
        self._line_height = sum(self._font.getmetrics())
        self.height = self._line_height + self._margin
        self._room = width - 2 * self._margin
        self._glyphs: dict[tuple[str, _Colour], Frame] = {}

    def write(self, band: Frame, texts: Sequence[str], colour: _Colour) -> None:
        """Fill the band with the ground's colour and the first of the texts that fits."""
        band[:] = GROUND
        lines = ([self._glyph(character, colour) for character in text] for text in texts)
        fitting = next((line for line in lines if sum(glyph.shape[1] for glyph in line) <= self._room), None)
        if fitting:
            line = np.concatenate(fitting, axis=1)
            top = self._margin // 2
            band[top : top + self._line_height, self._margin : self._margin + line.shape[1]] = line

    def _glyph(self, character: str, colour: _Colour) -> Frame:
        if (character, colour) not in self._glyphs:
            self._glyphs[character, colour] = self._draw(character, colour)
        return self._glyphs[character, colour]

    def _draw(self, character: str, colour: _Colour) -> Frame:
        images, drawing = require("PIL.Image", "train"), require("PIL.ImageDraw", "train")
        width = max(1, round(self._font.getlength(character)))
        image: Any = images.new("RGB", (width, self._line_height), GROUND)
        drawing.Draw(image).text((0, 0), character, fill=colour, font=self._font)
        return np.asarray(image)
