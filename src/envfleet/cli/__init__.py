"""The command line: parse, then call the API."""

from envfleet.cli.app import main

__all__ = ["main"]
