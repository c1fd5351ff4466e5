"""Environments compiled from C++: which there are, what lies between them and Python, and how to add your own."""

from envfleet.native.own.compiled import CompiledEnvironment, compile  # noqa: A004  always said with its module
from envfleet.native.own.library import LibraryEnvironment, LibraryError, include_dir, load

__all__ = ["CompiledEnvironment", "LibraryEnvironment", "LibraryError", "compile", "include_dir", "load"]
