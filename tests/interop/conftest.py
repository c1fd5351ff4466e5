"""The tests here need libraries that `make test` does not have: run.py runs each file where its library is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from libraries import INTEROP

sys.path.append(str(Path(__file__).parents[1] / "adapters"))  # coming_from.py

collect_ignore_glob = [] if INTEROP in os.environ else ["test_*.py"]
