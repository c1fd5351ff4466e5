"""Sections of pages that a program writes: what lies between <!-- NAME: begin --> and <!-- NAME: end -->."""

from __future__ import annotations

import re


def section_of(page: str, name: str) -> str:
    """What lies between the two marks."""
    return _pattern(page, name)[2].strip("\n")


def with_section(page: str, name: str, section: str) -> str:
    """The page with `section` in the place of what was there."""
    found = _pattern(page, name)
    return f"{page[: found.start()]}{found[1]}\n{section}\n{found[3]}{page[found.end() :]}"


def _pattern(page: str, name: str) -> re.Match[str]:
    begin, end = (re.escape(f"<!-- {name}: {which} -->") for which in ("begin", "end"))
    found = re.search(f"({begin})(.*?)({end})", page, re.DOTALL)
    if found is None:
        raise ValueError(f"the page has no place for <!-- {name}: begin --> ... <!-- {name}: end -->")
    return found
