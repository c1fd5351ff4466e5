"""Tensors in safetensors files: written whole or not at all, read without executing anything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from envfleet.errors import DamagedRunError
from envfleet.train.atomic_files import replacing
from envfleet.vector.runtime import signals_blocked

_NAMES = "names"
"""The entry that lists the tensors a file was written with: safetensors would not miss any of them."""

_NAMED_AT_MOST = 3


def save_tensors(path: Path, kind: str, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Write tensors, and notes that JSON can hold, to a file that says what kind it is."""
    plain = _apart({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    entries = {"envfleet": kind, "notes": json.dumps(notes), _NAMES: json.dumps(sorted(plain))}
    with replacing(path) as temporary:
        save_file(plain, temporary, metadata=entries)


def load_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save_tensors` wrote; a missing, damaged or foreign file is refused by name."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; expected a file that a training run of envfleet wrote.")
    try:
        # A Ctrl-C comes before or after: torch turns one that comes meanwhile into an error of the file.
        with signals_blocked(), safe_open(path, framework="pt") as file:
            entries = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
        notes, names = (json.loads(entries.get(entry, default)) for entry, default in (("notes", "{}"), (_NAMES, "[]")))
    except (SafetensorError, ValueError, RecursionError) as error:
        raise DamagedRunError(
            f"{path} is damaged or no safetensors file ({error}); restore it or train again."
        ) from error
    if entries.get("envfleet") != kind:
        raise DamagedRunError(
            f"{path} holds other tensors than expected: it should be marked as envfleet's {kind!r}, "
            f"got {entries.get('envfleet')!r}."
        )
    if not isinstance(notes, dict) or not isinstance(names, list):
        raise damage(path, "its notes are not what envfleet writes")
    check_names(path, tensors, names)
    return tensors, notes


def check_names(path: Path, tensors: Mapping[str, Tensor], names: Iterable[str]) -> None:
    """Refuse a file without some of the tensors it must hold."""
    missing = sorted({*map(str, names)} - tensors.keys())
    if missing:
        others = f" and {len(missing) - _NAMED_AT_MOST} more" if len(missing) > _NAMED_AT_MOST else ""
        raise damage(path, f"it lacks the tensors {', '.join(missing[:_NAMED_AT_MOST])}{others}")


def damage(path: Path, what: str) -> DamagedRunError:
    """The error for a file that says what is wrong with it; to be raised."""
    return DamagedRunError(f"{path} is damaged or was changed: {what}. Restore it from a copy, or train again.")


def load_module(module: nn.Module, tensors: Mapping[str, Tensor], what: str) -> None:
    """Put tensors into a module; one that does not fit is refused before anything is changed."""
    expected = module.state_dict()
    missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unknown:
        raise ValueError(
            f"{what} does not fit the network: it lacks {missing or 'nothing'} and has {unknown or 'nothing'} besides. "
            "Was it trained with other networks? Pass those as networks=."
        )
    for name, tensor in expected.items():
        if tensor.shape != tensors[name].shape:
            raise ValueError(
                f"{what} does not fit the network: {name} has shape {tuple(tensors[name].shape)} there and "
                f"{tuple(tensor.shape)} here. Was it trained with other settings or another environment?"
            )
    module.load_state_dict(dict(tensors))


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, copied where two share memory, as those of a layer used twice do: safetensors refuses that."""
    apart: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return apart
