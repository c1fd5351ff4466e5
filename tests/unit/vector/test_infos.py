"""Infos packed into rows of bytes and put together again."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from envfleet import AsyncVectorEnv, ResetNeeded
from envfleet.testing import assert_same
from envfleet.testing.reference import stack_infos
from envfleet.vector.infos import ROW_BYTES, InfoReader, InfoReport, InfoWriter, batch_infos


def write(writer: InfoWriter, infos: Sequence[Any]) -> InfoReport | None:
    writer.begin()
    for row, info in enumerate(infos):
        if info:
            writer.put(row, info)
    return writer.end()


class Fleet:
    """Writers and a reader over one block, as the engine uses them: ``sizes`` environments a shard."""

    def __init__(self, *sizes: int) -> None:
        edges = np.cumsum([0, *sizes]).tolist()
        self.bounds = list(pairwise(edges))
        rows, self.kinds = np.zeros((edges[-1], ROW_BYTES), np.uint8), np.zeros(edges[-1], np.uint8)
        self.writers = [InfoWriter(rows[first:last], self.kinds[first:last]) for first, last in self.bounds]
        self.reader = InfoReader(rows, self.kinds, self.bounds)
        self.reports: list[InfoReport | None] = []

    def turn(self, infos: Sequence[Any]) -> dict[str, Any]:
        self.reports = [write(w, infos[first:last]) for w, (first, last) in zip(self.writers, self.bounds, strict=True)]
        self.reader.absorb(self.reports)
        return self.reader.read(self.reports)

    @property
    def carried(self) -> list[dict[str, Any]]:
        """What did not fit into the block this turn."""
        return [info for report in self.reports if report for info in report.carried.values()]


INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
PACKED = [np.bool_, *INTEGERS, np.float16, np.float32, np.float64]
SCALARS = [*PACKED, np.longlong, np.ulonglong, np.longdouble, np.complex64, np.complex128]


@pytest.mark.parametrize("kind", SCALARS)
def test_a_numpy_scalar_gives_a_column_of_its_dtype(kind: Any) -> None:
    values = [kind(1), kind(0), kind(3)]
    for _ in range(2):
        infos = Fleet(2, 1).turn([{"x": value} for value in values])
        assert_same(infos, {"x": np.array(values), "_x": np.ones(3, np.bool_)})
        assert infos["x"].dtype == np.dtype(kind)


@pytest.mark.parametrize(
    ("values", "dtype"), [([True, False], np.bool_), ([3, -(2**63)], np.int64), ([0.5, -np.inf], np.float64)]
)
def test_a_python_number_gives_numpys_column(values: list[Any], dtype: Any) -> None:
    infos = Fleet(1, 1).turn([{"x": value} for value in values])
    assert_same(infos, {"x": np.array(values, dtype), "_x": np.ones(2, np.bool_)})


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.float16])
def test_every_float_comes_back_bit_by_bit(kind: Any) -> None:
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, 1 / 3, -1e-7, 6e4]
    if kind is not float:
        info = np.finfo(kind)
        values += [info.max, info.min, info.tiny, info.smallest_subnormal]
    values = [kind(value) for value in values]
    expected = np.array(values)
    assert Fleet(len(values)).turn([{"x": value} for value in values])["x"].tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", INTEGERS)
def test_every_integer_reaches_its_bounds(kind: Any) -> None:
    bounds = [kind(np.iinfo(kind).min), kind(np.iinfo(kind).max)]
    infos = Fleet(2).turn([{"a": bounds[0], "b": bounds[1]}, {"a": bounds[1], "b": bounds[0]}])
    assert (infos["a"].tolist(), infos["b"].tolist()) == ([int(b) for b in bounds], [int(b) for b in bounds[::-1]])


def test_numbers_of_all_types_lie_side_by_side_without_touching() -> None:
    info = {kind.__name__: kind(1) for kind in PACKED} | {"int": -1, "float": 0.1, "bool": True}
    fleet = Fleet(1, 1)
    assert_same(fleet.turn([info, info]), stack_infos([info, info]))
    assert fleet.carried == []


@pytest.mark.parametrize("huge", [2**63, -(2**63) - 1, 2**64, 10**40])
def test_integers_beyond_64_bits_keep_their_value(huge: int) -> None:
    fleet = Fleet(2, 1)
    assert fleet.turn([{"x": 1}, {"x": huge}, {}])["x"].tolist()[1] == huge
    assert fleet.carried == [{"x": huge}]
    assert_same(fleet.turn([{"x": 1}, {"x": 2}, {}]), {"x": np.array([1, 2, 0]), "_x": np.array([True, True, False])})


def test_dtypes_promote_over_environments_and_are_forgotten_the_next_turn() -> None:
    fleet = Fleet(1, 2)
    assert_same(fleet.turn([{"x": 1}, {"x": 1.9}, {}])["x"], np.array([1.0, 1.9, 0.0]))
    assert_same(fleet.turn([{"x": 1}, {"x": True}, {}])["x"], np.array([1, 1, 0]))
    assert_same(fleet.turn([{"x": np.int8(1)}, {"x": np.uint8(255)}, {}])["x"], np.array([1, 255, 0], np.int16))
    assert_same(fleet.turn([{}, {"x": np.bool_(True)}, {}])["x"], np.array([False, True, False]))


def test_numbers_beside_other_things_give_objects() -> None:
    infos = Fleet(1, 1, 1).turn([{"x": 1}, {"x": "one"}, {}])
    assert_same(infos["x"], np.array([1, "one", None], object))


@pytest.mark.parametrize("empty", [None, {}])
def test_nothing_is_written_when_there_is_nothing_to_write(empty: Any) -> None:
    fleet = Fleet(2, 1)
    assert fleet.turn([empty] * 3) == {}
    assert fleet.reports == [None, None]
    fleet.turn([{"x": 1}] * 3)
    assert fleet.turn([empty] * 3) == {}
    assert fleet.turn([{"x": 2}, empty, empty])["_x"].tolist() == [True, False, False]


def test_keys_come_go_and_change_their_type() -> None:
    fleet, scripts = Fleet(1, 2), [{"a": 1}, {"a": 1.5, "b": 2}, {"b": True}, {}, {"b": 2, "a": 1.5}, {"a": "text"}]
    for turn in range(20):
        infos = [scripts[(turn * (env + 1)) % len(scripts)] for env in range(3)]
        assert_same(fleet.turn(infos), stack_infos(infos))


def test_a_schema_is_told_once() -> None:
    fleet = Fleet(2)
    fleet.turn([{"a": 1}, {"a": 2.0}])
    assert len(fleet.reports[0].schemas) == 2  # type: ignore[union-attr]
    fleet.turn([{"a": 3.0}, {"a": 4}])
    assert fleet.reports == [None]


def test_more_signatures_than_there_are_numbers_for() -> None:
    fleet = Fleet(2, 1)
    for turn in range(300):
        infos = [{f"key {turn}": turn}, {f"other {turn}": 0.5, "x": turn}, {"x": turn}]
        assert_same(fleet.turn(infos), stack_infos(infos))
    infos = [{"key 0": 7}, {"never seen": 1}, {"x": 1}]
    assert_same(fleet.turn(infos), stack_infos(infos))
    assert fleet.carried == [{"never seen": 1}]  # what was learnt in time is still packed


@pytest.mark.parametrize(("keys", "packed"), [(ROW_BYTES // 8, True), (ROW_BYTES // 8 + 1, False)])
def test_a_row_holds_128_numbers_and_more_travel_beside(keys: int, packed: bool) -> None:
    fleet = Fleet(1, 1)
    infos = [{f"key {i}": i + env for i in range(keys)} for env in range(2)]
    assert_same(fleet.turn(infos), stack_infos(infos))
    assert (fleet.carried == []) is packed


def test_arrays_and_nested_dicts() -> None:
    first = {"a": np.arange(3), "n": {"deep": {"x": 1}, "y": np.ones(2)}, "empty": {}}
    second = {"a": np.array([0.5, 1, 2]), "n": {"deep": {"x": 2.5}, "z": "text"}}
    infos = Fleet(1, 1, 1).turn([first, second, {}])
    assert_same(infos, stack_infos([first, second, {}]))
    assert infos["n"]["deep"]["x"].tolist() == [1.0, 2.5, 0.0]
    assert infos["n"]["_deep"].tolist() == [True, True, False]


def test_arrays_that_differ_in_shape_become_objects() -> None:
    infos = Fleet(2).turn([{"a": np.zeros(2)}, {"a": np.ones(3)}])
    assert infos["a"].dtype == object
    assert [value.tolist() for value in infos["a"]] == [[0.0, 0.0], [1.0, 1.0, 1.0]]


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize("value", [None, "text", [1, 2], (1,), 1j, Colour.RED, {1, 2}, np.array("text", object)])
def test_other_values_become_objects_as_they_are(value: Any) -> None:
    column = Fleet(1, 1).turn([{}, {"x": value}])["x"]
    assert column.dtype == object
    assert column[0] is None
    assert column[1] is value


def test_final_obs_is_never_stacked() -> None:
    column = Fleet(2).turn([{"final_obs": np.zeros(2)}, {"final_obs": np.ones(2)}])["final_obs"]
    assert column.dtype == object
    assert column[1].tolist() == [1, 1]
    assert Fleet(2).turn([{"final_obs": 3, "final_info": {}}, {}])["final_obs"].tolist() == [3, None]
    assert Fleet(2).turn([{"final_obs": {"a": 1}}, {}])["final_obs"].tolist() == [{"a": 1}, None]


def test_a_lone_final_obs_is_not_packed() -> None:
    assert Fleet(2).turn([{"final_obs": 3}, {}])["final_obs"].tolist() == [3, None]


def test_what_is_read_is_the_callers_and_what_was_written_is_untouched() -> None:
    fleet = Fleet(2)
    infos = [{"x": 1, "a": np.zeros(2), "n": {"y": 1}}, {"x": 2}]
    before = deepcopy(infos)
    first = fleet.turn(infos)
    kept = deepcopy(first)
    assert_same(infos, before)
    fleet.turn([{"x": 7, "a": np.ones(2), "n": {"y": 5}}, {"x": 8}])
    assert_same(first, kept)
    first["x"][:] = 100
    assert_same(fleet.turn(infos), kept)


def test_batch_infos_is_the_same_layout_without_a_block() -> None:
    infos = [{"x": 1, "n": {"y": 2.0}}, {}, {"x": 1.5, "s": "text"}]
    assert_same(batch_infos(3, enumerate(infos)), stack_infos(infos))


def test_a_mapping_that_is_no_dict_is_an_info_too() -> None:
    assert_same(Fleet(1).turn([MappingProxyType({"x": 1})]), stack_infos([{"x": 1}]))


def test_masks_win_over_keys_that_look_like_them() -> None:
    turn = [{"_a": "text", "a": 1}, {"a": 1, "_a": 2}]
    assert Fleet(2).turn(turn)["_a"].tolist() == [True, True]


def test_a_row_of_a_lost_worker_is_not_read_as_those_of_its_successor() -> None:
    """A worker publishes a row and is lost; the one in its place publishes another; both are received in one batch."""
    rows, kinds = np.zeros((2, ROW_BYTES), np.uint8), np.zeros(2, np.uint8)
    reader, reports = InfoReader(rows, kinds, [(0, 2)]), []
    for row, info in enumerate(({"speed": 1.5}, {"lives": 3})):
        writer = InfoWriter(rows, kinds)  # each worker has its own
        writer.begin_row(row)
        writer.put(row, info)
        reports.append(writer.end())
    for order in (np.array([0, 1]), np.array([1, 0])):
        told = [reports[row] for row in order]
        reader.absorb_rows(order, told)
        infos = reader.read_rows(order, told)
        assert infos["speed"][order == 0].tolist() == [1.5]
        assert infos["lives"][order == 1].tolist() == [3]
        assert infos["_speed"].tolist() == (order == 0).tolist()
        assert infos["_lives"].tolist() == (order == 1).tolist()


class NumberedEnv(gym.Env[Any, Any]):
    observation_space = action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        return 0, {"first": 1}

    def step(self, action: Any) -> Any:
        return 0, 0.0, False, False, {"second": 2.0} if action else {"third": 3, "fourth": 4}


@pytest.mark.parametrize("kwargs", [{"num_workers": 2}, {"num_workers": 2, "caller_works": True}], ids=str)
def test_schemas_lost_to_an_interruption_are_heard_of_again(kwargs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C between reading the workers' reports and using them must not shift later infos."""
    with AsyncVectorEnv([NumberedEnv] * 3, **kwargs) as envs:
        envs.reset()

        def read_and_be_interrupted(timeout: float | None, finish: Any = envs._engine._finish_workers) -> Any:
            finish(timeout)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(envs._engine, "_finish_workers", read_and_be_interrupted)
            with pytest.raises(KeyboardInterrupt):
                envs.step([1, 1, 1])
        with pytest.raises(ResetNeeded):
            envs.step([0, 0, 0])
        assert envs.reset()[1]["first"].tolist() == [1, 1, 1]
        infos = envs.step([0, 1, 0])[4]
        assert infos["third"].tolist() == [3, 0, 3]
        assert infos["fourth"].tolist() == [4, 0, 4]
        assert infos["second"].tolist() == [0.0, 2.0, 0.0]
