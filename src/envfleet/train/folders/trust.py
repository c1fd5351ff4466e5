"""Whose runs may import what they name.

A configuration can name a module or a file, `"env_id": "my_module:MyEnv-v0"` or `"my_env.py:MyEnv"`, and making that
environment imports it, which executes it. In a run of one's own that is what one wants; in a folder that somebody sent
it is their code. So the runs that this user has trained on this machine are remembered, outside their folders, by path
and content of their config.json. All others have to be allowed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from envfleet._references import MAIN, split
from envfleet.errors import UntrustedRunError
from envfleet.train.atomic_files import replacing
from envfleet.train.config import TrainConfig

AllowImport: TypeAlias = "bool | str | Sequence[str]"
"""True: whatever modules the run names; a module's name or several: these; False: those of trusted runs only."""

_MODULE = re.compile(r"\s*([^\s:/\\]+|[^:]*\.py)\s*:")
"""How a text begins that an environment which is given it may take for a module, or a file, and a name."""


def modules_named(config: TrainConfig) -> tuple[str, ...]:
    """The modules and files that making a run's environments may import because its configuration says so; sorted.

    In `env_id` every colon counts, as it does for Gymnasium, unless it names the program that runs, which has been
    executed already. In the environment's arguments, which some environments hand to Gymnasium in turn, every text that
    begins like `module:name` does.
    """
    found = {split(config.env_id)[0]} - {"", MAIN}
    drawn = [getattr(distribution, "options", ()) for distribution in config.randomize.values()]
    for text in _texts([dict(config.env_kwargs), *drawn]):
        match = _MODULE.match(text)
        found |= {match[1]} if match else set()
    return tuple(sorted(found))


def is_trusted(run: Path, content: bytes) -> bool:
    """Whether this user has trained, or allowed, the run there with this config.json."""
    record = _record(run, content)
    try:
        return record is not None and record.stat().st_uid == os.getuid()
    except OSError:
        return False


def remember(run: Path, content: bytes) -> None:
    """Trust the run there from now on, as long as its config.json has this content."""
    record = _record(run, content)
    if record is None:
        return
    # Where nothing can be written the run is asked about again, which is safe.
    with suppress(OSError):
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(record, mode=0o600) as temporary:
            temporary.write_text(json.dumps({"run": str(run.resolve())}) + "\n")


def check_allowed(run: Path, content: bytes, config: TrainConfig, allow_import: AllowImport) -> None:
    """Refuse a run that names modules, unless they are allowed or the run is trusted; imports nothing."""
    refused = [] if allow_import is True else _not_among(modules_named(config), allow_import)
    if refused and not is_trusted(run, content):
        names = ", ".join(refused)
        raise UntrustedRunError(
            f"{run} was not trained here by you, and its configuration names a module or file that would be imported, "
            f"which executes it: {names} (env_id {config.env_id!r}). Nothing was imported. If you know what is in "
            f"it, allow it: --allow-import on the command line, allow_import=True in Python."
        )


def _not_among(names: Sequence[str], allowed: AllowImport) -> list[str]:
    listed = () if isinstance(allowed, bool) else (allowed,) if isinstance(allowed, str) else tuple(allowed)
    return [name for name in names if name not in listed]


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping):
        for key, entry in tree.items():
            yield from _texts(key)
            yield from _texts(entry)
    elif isinstance(tree, (list, tuple)):
        for entry in tree:
            yield from _texts(entry)


def _record(run: Path, content: bytes) -> Path | None:
    """The file whose existence says that a run is trusted, or None for a user without a home."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    try:
        state = Path(folder) if Path(folder).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    key = hashlib.sha256(os.fsencode(run.resolve()) + b"\0" + hashlib.sha256(content).digest())
    return state / "envfleet" / "trusted" / key.hexdigest()
