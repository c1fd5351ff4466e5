"""Runs a program with compiled modules from another build: ``python sanitized.py folder program arguments ...``."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path


def load(folder: Path, name: str) -> None:
    """Takes a compiled module from a folder, before the package imports the usual one."""
    (file,) = folder.glob(f"{name}.*.so")
    spec = importlib.util.spec_from_file_location(f"envfleet.{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    folder, program = Path(sys.argv[1]), sys.argv[2]
    del sys.argv[:2]
    for each in ("_core", "_native"):
        load(folder, each)
    runpy.run_path(program, run_name="__main__")
