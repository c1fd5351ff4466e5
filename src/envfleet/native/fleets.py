"""The former name of ``registration``: saved specs name it as the module of their ``vector_entry_point``."""

from __future__ import annotations

from envfleet.native.registration import __getattr__ as __getattr__
