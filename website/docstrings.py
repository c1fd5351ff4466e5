"""Docstrings as Markdown: a code block that reStructuredText begins with two colons needs none."""

from __future__ import annotations

import re
from typing import Any

import griffe


class PlainBlocks(griffe.Extension):
    """Takes the two colons away, or leaves one if they end a sentence."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for everything that may have a docstring."""
        if obj.docstring is not None:
            alone = re.sub(r"^[ ]*::[ ]*\n", "", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r"::[ ]*$", ":", alone, flags=re.MULTILINE)
