"""Info dicts of single environments <-> columns with masks.

Where environments run, ``InfoWriter`` packs a dict of plain numbers into the environment's row of the
block: no pickling, and nothing at all when the dict is empty. Dicts with anything else in them are carried
beside the block as they are. Where the batch is put together, ``InfoReader`` turns both into Gymnasium's
layout: for each key an array over the environments and a mask ``_key`` that tells who had it.

Each dict is packed for itself, so how environments are spread over workers cannot change the result.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet import _core
from envfleet.errors import FleetError
from envfleet.vector.layout import Array, LayoutError
from envfleet.vector.pickling import schema_digest, value_digest

Info: TypeAlias = "dict[str, Any]"

ROW_BYTES = 1024
"""The room in the block for one environment's packed info."""

_SLOT = 8
_PLAIN_KEYS = {str}
_MOST_LEVELS = 100
"""How deep info dicts may be nested: they are batched level by level."""
_MOST_DICTS = 100_000
"""How many of them may lie on one level: a dict that contains itself twice has ever more."""
_EMPTY, _CARRIED, _MAX_SCHEMAS = 0, 255, 254

# Python's and NumPy's scalar types: how struct packs them, and what NumPy reads them as.
_SCALARS: dict[type, tuple[str, np.dtype[Any]]] = {
    bool: ("?7x", np.dtype(np.bool_)),
    int: ("q", np.dtype(np.int64)),
    float: ("d", np.dtype(np.float64)),
    np.bool_: ("?7x", np.dtype(np.bool_)),
    np.int8: ("b7x", np.dtype(np.int8)),
    np.int16: ("h6x", np.dtype(np.int16)),
    np.int32: ("i4x", np.dtype(np.int32)),
    np.int64: ("q", np.dtype(np.int64)),
    np.uint8: ("B7x", np.dtype(np.uint8)),
    np.uint16: ("H6x", np.dtype(np.uint16)),
    np.uint32: ("I4x", np.dtype(np.uint32)),
    np.uint64: ("Q", np.dtype(np.uint64)),
    np.float16: ("e6x", np.dtype(np.float16)),
    np.float32: ("f4x", np.dtype(np.float32)),
    np.float64: ("d", np.dtype(np.float64)),
}

# The same for the compiled packer: NumPy's float64 is a Python float, its other scalars are copied as they are.
_QUICK_FORMATS = {**dict.fromkeys(_SCALARS, "n"), bool: "?", int: "q", float: "d", np.float64: "d"}


@dataclass(frozen=True)
class InfoSchema:
    """The keys of an info dict of plain numbers, one eight-byte slot each, in order."""

    keys: tuple[str, ...]
    types: tuple[type, ...]

    @staticmethod
    def fits(types: Sequence[type]) -> bool:
        """Whether values of these types can be packed."""
        return len(types) * _SLOT <= ROW_BYTES and all(kind in _SCALARS for kind in types)

    @property
    def num_bytes(self) -> int:
        """How much of a row it takes."""
        return len(self.types) * _SLOT

    def packer(self) -> struct.Struct:
        """Packs the values into a row."""
        return struct.Struct("=" + "".join(_SCALARS[kind][0] for kind in self.types))

    def columns(self, rows: npt.NDArray[np.uint8]) -> dict[str, Array]:
        """The columns of the given rows, a view on them a key."""
        columns = {}
        for slot, (key, kind) in enumerate(zip(self.keys, self.types, strict=True)):
            dtype = _SCALARS[kind][1]
            start = slot * _SLOT
            columns[key] = rows[:, start : start + dtype.itemsize].view(dtype)[:, 0]
        return columns


@dataclass(slots=True)
class InfoReport:
    """What of a turn's infos does not lie in the block.

    Attributes:
        carried: Infos that were not packed, by row of the shard.
        schemas: Schemas the reader may not know yet, by the kind that stands for them in the block.
    """

    carried: dict[int, Info] = field(default_factory=dict)
    schemas: dict[int, InfoSchema] = field(default_factory=dict)


@final
class InfoWriter:
    """Packs the infos of one shard. ``rows`` is uint8 (envs, ROW_BYTES), ``kinds`` uint8 (envs,).

    A turn is ``begin()`` (or ``begin_row()``), ``put()`` for every info that is not empty, ``end()``. An info is
    packed when it is put: environments may reuse their dicts, and even share one. ``packer`` is the quick half of
    ``put()``: it does one like the last or refuses.
    """

    def __init__(self, rows: npt.NDArray[np.uint8], kinds: npt.NDArray[np.uint8]) -> None:
        self._memory = rows.data.cast("B")
        self._kinds = kinds
        self._known: dict[tuple[Any, ...], tuple[int, struct.Struct] | None] = {}
        self._schemas: dict[int, InfoSchema] = {}
        # A lost worker may have published rows that nobody has read yet: they must not be taken for ours.
        self._free_kinds = iter(sorted({*range(_EMPTY + 1, _CARRIED)} - {*kinds.tolist()}))
        self._report = InfoReport()
        self.packer = _core.InfoPacker(rows, kinds)
        self.begin = self.packer.begin
        self.begin_row = self.packer.begin_row

    def end(self) -> InfoReport | None:
        """What did not fit into the block, if anything."""
        report = self._report
        if not report.carried and not report.schemas:
            return None
        self._report = InfoReport()
        return report

    def announce_again(self) -> None:
        """Tells the reader all schemas once more: an interruption may have kept it from hearing of some."""
        self._report.schemas.update(self._schemas)

    def put(self, row: int, info: Info) -> None:
        """Packs the info of one environment, or keeps it to be carried beside the block."""
        if self.packer.put(row, info):
            return
        known = None
        if {*map(type, info)} == _PLAIN_KEYS:  # others may do anything when they are hashed or compared
            signature: tuple[Any, ...] = (*info, *map(type, info.values()))
            known = self._known[signature] if signature in self._known else self._learn(signature, info)
        if known is not None:
            kind, packer = known
            try:
                packer.pack_into(self._memory, row * ROW_BYTES, *info.values())
            except struct.error:  # an integer beyond 64 bits
                known = None
            else:
                self._kinds[row] = kind
                self._teach(kind, signature[: len(info)], signature[len(info) :])
        if known is None:
            _check_carried(info)
            self._report.carried[row] = dict(info)
            self._kinds[row] = _CARRIED

    def _teach(self, kind: int, keys: tuple[str, ...], types: tuple[type, ...]) -> None:
        formats = "".join(_QUICK_FORMATS[each] for each in types)
        self.packer.learn(kind, keys, types, formats, schema_digest(keys, types))

    def digest(self, row: int, info: Info) -> int:
        """The ``info_digest`` of what was put last, into this row."""
        return info_digest(info) if self._kinds[row] == _CARRIED else self.packer.digest(row)

    def _learn(self, signature: tuple[Any, ...], info: Info) -> tuple[int, struct.Struct] | None:
        known = None
        types = signature[len(info) :]
        if len(self._known) >= _MAX_SCHEMAS:  # an environment that invents keys must not fill our memory
            return None
        if "final_obs" not in info and InfoSchema.fits(types) and (kind := next(self._free_kinds, None)) is not None:
            schema = self._schemas[kind] = self._report.schemas[kind] = InfoSchema(tuple(info), types)
            known = kind, schema.packer()
        self._known[signature] = known
        return known


def _check_carried(info: Info) -> None:
    """Refuses, where the environment can be named, what cannot be batched: what is checked here cannot fail there."""
    level: list[dict[Any, Any]] = [info]
    for _ in range(_MOST_LEVELS):
        for each in level:
            for key in each:
                if type(key) is not str:
                    _check_key(key)
        level = [value for each in level for value in each.values() if isinstance(value, dict)]
        if not level:
            return
        if len(level) > _MOST_DICTS:
            break
    raise LayoutError(
        f"info: expected dicts nested at most {_MOST_LEVELS} deep and {_MOST_DICTS} a level, got more; one that "
        "contains itself has no end"
    )


def _check_key(key: Any) -> None:
    try:
        fits = hash(key) == hash(key) and key == key and key != object() and bool(f"_{key}")
    except (Exception, SystemExit) as error:
        raise LayoutError(
            f"info: expected keys that are strings, got one of type {type(key).__name__}, which raises "
            f"{type(error).__name__} when it is hashed, compared or shown"
        ) from None
    if not fits:
        raise LayoutError(f"info: expected keys that are strings, got a {type(key).__name__} that differs from itself")


def info_digest(info: Info) -> int:
    """A number that stands for an info, the same whether or not it can be packed; see ``value_digest``."""
    if not info:
        return _core.digest_of(b"", 0)
    keys, types = tuple(info), tuple(map(type, info.values()))
    if "final_obs" not in info and InfoSchema.fits(types):
        with suppress(struct.error):  # an integer beyond 64 bits
            packed = InfoSchema(keys, types).packer().pack(*info.values())
            return _core.digest_of(packed, schema_digest(keys, types))
    return value_digest(info)


@final
class InfoReader:
    """Puts the infos of a fleet together. ``bounds`` are the ``(first, last + 1)`` rows of each shard."""

    def __init__(
        self, rows: npt.NDArray[np.uint8], kinds: npt.NDArray[np.uint8], bounds: Sequence[tuple[int, int]]
    ) -> None:
        self._rows, self._kinds, self._bounds = rows, kinds, bounds
        self._shard_of = [shard for shard, (first, last) in enumerate(bounds) for _ in range(first, last)]
        self._schemas: list[dict[int, InfoSchema]] = [{} for _ in bounds]
        self._no_kinds = bytes(len(kinds))
        self._usual_kinds = b""
        self._usual_infos: list[tuple[str, Array]] = []

    def absorb(self, reports: Sequence[InfoReport | None]) -> None:
        """Takes note of new schemas; to hear of one twice does no harm."""
        for shard, report in enumerate(reports):
            self._absorb_report(shard, report)

    def _absorb_report(self, shard: int, report: InfoReport | None) -> None:
        if report is not None and report.schemas:
            self._schemas[shard].update(report.schemas)
            self._usual_kinds = b""  # a worker that took a dead one's place may use its kinds again

    def read(self, reports: Sequence[InfoReport | None]) -> Info:
        """The infos of the turn that just ended, given one report (or None) per shard, which were absorbed before."""
        kinds = self._kinds.tobytes()
        if kinds == self._no_kinds:
            return {}
        if kinds != self._usual_kinds and (common := self._common_schema()) is not None:
            self._usual_infos = _with_masks(common.columns(self._rows), len(self._kinds))
            self._usual_kinds = kinds
        if kinds == self._usual_kinds:
            return {key: column.copy() for key, column in self._usual_infos}
        pieces: dict[str, list[_Piece]] = {}
        for shard, report in enumerate(reports):
            self._read_packed(shard, pieces)
            if report is not None:
                first = self._bounds[shard][0]
                _add_pieces(pieces, ((first + row, info) for row, info in report.carried.items()))
        return _join(pieces, len(self._kinds))

    def absorb_rows(self, rows: npt.NDArray[np.intp], reports: Sequence[InfoReport | None]) -> None:
        """Takes note of new schemas, given one report (or None) for each of some rows."""
        for row, report in zip(rows.tolist(), reports, strict=True):
            if report is not None:
                self._absorb_report(self._shard_of[row], report)

    def read_rows(self, rows: npt.NDArray[np.intp], reports: Sequence[InfoReport | None]) -> Info:
        """The infos of some rows, in arrays of their number, given one report (or None) each."""
        kinds: list[int] = self._kinds[rows].tolist()
        if not any(kinds):  # all are _EMPTY
            return {}
        pieces: dict[str, list[_Piece]] = {}
        groups: dict[tuple[int, int], list[int]] = {}
        for place, (row, kind, report) in enumerate(zip(rows.tolist(), kinds, reports, strict=True)):
            if kind == _CARRIED and report is not None:
                _add_pieces(pieces, ((place, info) for info in report.carried.values()))
            elif kind not in (_EMPTY, _CARRIED):
                groups.setdefault((self._shard_of[row], kind), []).append(place)
        for (shard, kind), places in groups.items():
            schema = _schema(self._schemas[shard], kind, int(rows[places[0]]))
            for key, values in schema.columns(self._rows[rows[places]]).items():
                pieces.setdefault(key, []).append(_Piece(places, values))
        return _join(pieces, len(rows))

    def _common_schema(self) -> InfoSchema | None:
        """The schema of all infos if they have only one: most steps of most environments."""
        common = None
        for (first, last), schemas in zip(self._bounds, self._schemas, strict=True):
            kind = self._kinds[first]
            if kind in (_EMPTY, _CARRIED) or (self._kinds[first:last] != kind).any():
                return None
            schema = _schema(schemas, int(kind), first)
            if common is not None and schema != common:
                return None
            common = schema
        return common

    def _read_packed(self, shard: int, pieces: dict[str, list[_Piece]]) -> None:
        first, last = self._bounds[shard]
        kinds = self._kinds[first:last]
        for kind in sorted({*kinds.tolist()} - {_EMPTY, _CARRIED}):
            envs = first + np.flatnonzero(kinds == kind)
            schema = _schema(self._schemas[shard], kind, int(envs[0]))
            for key, values in schema.columns(self._rows[envs]).items():
                pieces.setdefault(key, []).append(_Piece(envs, values))


def _schema(known: dict[int, InfoSchema], kind: int, env: int) -> InfoSchema:
    schema = known.get(kind)
    if schema is None:
        raise FleetError(
            f"The info of environment {env} lies in the shared block as one of a kind that nobody has told of: garbage "
            "was written there, by one of the environments. Find out which with SyncVectorEnv."
        )
    return schema


def _with_masks(columns: dict[str, Array], num_envs: int) -> list[tuple[str, Array]]:
    masks = {f"_{key}": np.ones(num_envs, np.bool_) for key in columns}
    return [*({**columns, **masks}).items()]


def batch_infos(num_envs: int, infos: Iterable[tuple[int, Info]]) -> Info:
    """Infos of some environments, given as ``(index, info)``, in Gymnasium's batched layout."""
    pieces: dict[str, list[_Piece]] = {}
    _add_pieces(pieces, infos)
    return _join(pieces, num_envs)


@dataclass(slots=True)
class _Piece:
    """Some environments' values under one key: a numeric array, or one object of one environment."""

    envs: npt.NDArray[np.intp] | list[int]
    values: Array | list[Any]


def _add_pieces(pieces: dict[str, list[_Piece]], infos: Iterable[tuple[int, Info]]) -> None:
    for env, info in infos:
        for key, value in info.items():
            numeric = None if key == "final_obs" else _as_numeric(value)
            values: Array | list[Any] = [value] if numeric is None else numeric[np.newaxis]
            pieces.setdefault(key, []).append(_Piece([env], values))


def _as_numeric(value: Any) -> Array | None:
    """Numbers and arrays of numbers as an array; None for anything else."""
    if isinstance(value, np.ndarray):
        return value if value.dtype != object else None
    if type(value) in _SCALARS or isinstance(value, np.number | np.bool_):
        array = np.asarray(value)
        return array if array.dtype != object else None
    return None


def _join(pieces: dict[str, list[_Piece]], num_envs: int) -> Info:
    infos: Info = {key: _join_values(key, parts, num_envs) for key, parts in pieces.items()}
    # Masks last: where an environment's own key looks like a mask, the mask wins, whatever came first.
    for key, parts in pieces.items():
        mask = np.zeros(num_envs, np.bool_)
        for part in parts:
            mask[part.envs] = True
        infos[f"_{key}"] = mask
    return infos


def _join_values(key: str, parts: list[_Piece], num_envs: int) -> Any:
    if key != "final_obs" and all(type(part.values) is list and isinstance(part.values[0], dict) for part in parts):
        return batch_infos(num_envs, ((part.envs[0], part.values[0]) for part in parts))
    arrays = [part.values for part in parts if isinstance(part.values, np.ndarray)]
    if len(arrays) == len(parts) and len({array.shape[1:] for array in arrays}) == 1:
        dtype = _promoted(arrays)
        if dtype is not None:
            joined = np.zeros((num_envs, *arrays[0].shape[1:]), dtype)
            for part in parts:
                joined[part.envs] = part.values
            return joined
    objects = np.full(num_envs, None, dtype=object)
    for part in parts:
        for env, value in zip(part.envs, part.values, strict=True):
            objects[env] = value
    return objects


def _promoted(arrays: list[Array]) -> np.dtype[Any] | None:
    try:
        return np.result_type(*{array.dtype for array in arrays})
    except TypeError:  # numbers beside strings or dates
        return None
