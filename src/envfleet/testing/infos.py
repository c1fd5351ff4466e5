"""Contract: info dicts become columns with masks, and no value loses its type."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from envfleet.testing.base import ContractBase, EnvFn, pytest
from envfleet.testing.compare import assert_same
from envfleet.testing.envs import Frame, PlaybackEnv
from envfleet.testing.reference import stack_infos
from envfleet.testing.strategies import hypothesis, info_scripts


def objects(*values: Any) -> np.ndarray[Any, Any]:
    """Return an object array of exactly these values."""
    column = np.full(len(values), None, object)
    for index, value in enumerate(values):
        column[index] = value
    return column


ABSENT = object()

# One value per environment (ABSENT: no such key) and the column they must give.
COLUMNS: dict[str, tuple[list[Any], Any]] = {
    "ints": ([1, ABSENT, 3], np.array([1, 0, 3], np.int64)),
    "floats": ([1.5, 2.5, ABSENT], np.array([1.5, 2.5, 0.0])),
    "int then float": ([1, 1.9, 2], np.array([1.0, 1.9, 2.0])),
    "float then int": ([1.9, 1, ABSENT], np.array([1.9, 1.0, 0.0])),
    "bools": ([True, False, ABSENT], np.array([True, False, False])),
    "numpy bools": ([np.True_, np.False_, np.True_], np.array([True, False, True])),
    "both bools": ([True, np.True_, ABSENT], np.array([True, True, False])),
    "float32": ([np.float32(0.5), np.float32(1), ABSENT], np.array([0.5, 1, 0], np.float32)),
    "float32 and float64": ([np.float32(0.5), np.float64(0.1), 1.0], np.array([0.5, 0.1, 1.0])),
    "int8 and int16": ([np.int8(1), np.int16(300), ABSENT], np.array([1, 300, 0], np.int16)),
    "text": (["a", ABSENT, "ccc"], objects("a", None, "ccc")),
    "None": ([None, None, None], objects(None, None, None)),
    "int and None": ([1, None, ABSENT], objects(1, None, None)),
    "int and text": ([ABSENT, "two", 3], objects(None, "two", 3)),
    "huge int": ([2**70, 1, ABSENT], objects(2**70, 1, None)),
    "arrays": ([np.array([1, 2]), ABSENT, np.array([3, 4])], np.array([[1, 2], [0, 0], [3, 4]])),
    "arrays of two dtypes": (
        [np.array([1, 2]), np.array([0.5, 1.5]), ABSENT],
        np.array([[1, 2], [0.5, 1.5], [0, 0]]),
    ),
    "arrays of two shapes": (
        [np.array([1, 2]), np.array([1, 2, 3]), ABSENT],
        objects(np.array([1, 2]), np.array([1, 2, 3]), None),
    ),
    "array and number": ([np.array([1, 2]), 3, ABSENT], objects(np.array([1, 2]), 3, None)),
    "lists": ([[1], [2, 3], ABSENT], objects([1], [2, 3], None)),
    "dict and number": ([{"x": 1}, 2, ABSENT], objects({"x": 1}, 2, None)),
}


GYMNASIUM_COLUMNS = ("ints", "floats", "bools", "float32", "text", "None", "arrays", "lists")
"""Those in which all values are of one type."""


class GymnasiumInfos(ContractBase):
    """Columns over the environments with `_key` masks."""

    def _info_fns(self, script: list[list[dict[str, Any]]]) -> list[EnvFn]:
        """Return makers of environments that return info script[t][i] at their t-th call."""
        num_envs = len(script[0])
        space = spaces.Discrete(1)
        return [partial(PlaybackEnv, space, [Frame(0, info=row[i]) for row in script]) for i in range(num_envs)]

    @pytest.mark.parametrize("case", GYMNASIUM_COLUMNS, ids=str)
    def test_a_column_has_the_type_of_all_its_values(self, case: str) -> None:
        """A column holds the values of all environments, zeros or None where there are none, and has a mask."""
        values, expected = COLUMNS[case]
        infos = [{} if value is ABSENT else {"key": value} for value in values]
        mask = np.array([value is not ABSENT for value in values])
        with self.fleet(self._info_fns([infos])) as envs:
            for _ in range(2):
                assert_same(envs.reset()[1], {"key": expected, "_key": mask})
                assert_same(envs.step(np.zeros(3, np.int64))[4], {"key": expected, "_key": mask})

    def test_empty_infos_give_an_empty_dict(self) -> None:
        """Environments without infos cost no keys."""
        with self.fleet(self._info_fns([[{}, {}, {}]])) as envs:
            assert envs.reset()[1] == {}
            assert envs.step(np.zeros(3, np.int64))[4] == {}

    def test_a_key_that_went_away_is_gone(self) -> None:
        """A key no environment returned in this step does not appear, however often it was seen before."""
        script: list[list[dict[str, Any]]] = [
            [{"a": 1}, {"a": 2}],
            [{"a": 3}, {"a": 4}],
            [{}, {}],
            [{}, {"a": 5}],
            [{"a": "text"}, {}],
            [{"a": 0.5}, {"a": 6}],
        ]
        with self.fleet(self._info_fns(script)) as envs:
            assert_same(envs.reset()[1], stack_infos(script[0]))
            for row in script[1:]:
                assert_same(envs.step(np.zeros(2, np.int64))[4], stack_infos(row))


class InfosContract(GymnasiumInfos):
    """Columns over the environments with `_key` masks; dtypes promote over the environments of a step."""

    @pytest.mark.parametrize("case", [case for case in COLUMNS if case not in GYMNASIUM_COLUMNS], ids=str)
    def test_a_column_is_promoted_over_all_its_values(self, case: str) -> None:
        """The dtype of a column is promoted over all environments, and is object where values do not mix."""
        self.test_a_column_has_the_type_of_all_its_values(case)

    def test_nested_dicts_become_nested_columns(self) -> None:
        """A dict inside an info is batched by the same rule, with masks on every level."""
        infos: list[dict[str, Any]] = [{"a": {"b": {"c": 1}}}, {}, {"a": {"b": {"c": 2.5}, "d": "x"}}]
        first_and_last = np.array([True, False, True])
        last = np.array([False, False, True])
        expected = {
            "a": {
                "b": {"c": np.array([1.0, 0.0, 2.5]), "_c": first_and_last},
                "_b": first_and_last,
                "d": objects(None, None, "x"),
                "_d": last,
            },
            "_a": first_and_last,
        }
        with self.fleet(self._info_fns([infos])) as envs:
            assert_same(envs.reset()[1], expected)
            assert_same(envs.step(np.zeros(3, np.int64))[4], expected)

    def test_infos_are_safe_to_keep(self) -> None:
        """No later step changes an info that was returned, and writing into one reaches nobody."""
        script = [[{"a": t + i, "v": np.array([t, i]), "n": {"x": t}} for i in range(3)] for t in range(6)]
        with self.fleet(self._info_fns(script), copy=False) as envs:
            kept = [envs.reset()[1]] + [envs.step(np.zeros(3, np.int64))[4] for _ in range(5)]
            assert_same(kept, [stack_infos(row) for row in script])
            kept[-1]["a"][:] = -1
            kept[-1]["_a"][:] = False
            assert_same(envs.step(np.zeros(3, np.int64))[4], stack_infos(script[-1]))

    def test_an_environments_own_info_is_not_changed(self) -> None:
        """Batching does not write into the dict an environment returned."""
        frames = [Frame(0, info={"a": {"b": 1}}), Frame(0, terminated=True, info={"a": {"b": 2}}), Frame(0)]
        fns = [partial(PlaybackEnv, spaces.Discrete(1), frames) for _ in range(3)]
        with self.fleet(fns, autoreset_mode=AutoresetMode.SAME_STEP) as envs:
            envs.reset()
            envs.step(np.zeros(3, np.int64))
            for kept in envs.get_attr("frames"):
                assert [frame.info for frame in kept] == [{"a": {"b": 1}}, {"a": {"b": 2}}, {}]

    def test_final_info_is_a_nested_info(self) -> None:
        """In SAME_STEP mode final_info is batched like any nested dict, its dtypes promoted, its masks its own."""
        frames = [
            [Frame(0), Frame(0, terminated=True, info={"x": 1}), Frame(0, info={"r": 1})],
            [Frame(0), Frame(0, truncated=True, info={"x": 1.9, "y": np.True_}), Frame(0, info={"r": 2.5})],
            [Frame(0), Frame(0, info={"x": 7}), Frame(0)],
            [Frame(0), Frame(0, terminated=True), Frame(0)],
        ]
        fns = [partial(PlaybackEnv, spaces.Discrete(1), frame) for frame in frames]
        with self.fleet(fns, autoreset_mode=AutoresetMode.SAME_STEP) as envs:
            envs.reset()
            infos = envs.step(np.zeros(4, np.int64))[4]
            del infos["final_obs"], infos["_final_obs"]
            expected: list[dict[str, Any]] = [
                {"final_info": {"x": 1}, "r": 1},
                {"final_info": {"x": 1.9, "y": np.True_}, "r": 2.5},
                {"x": 7},
                {"final_info": {}},
            ]
            assert_same(infos, stack_infos(expected))

    @pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
    def test_an_environment_may_reuse_its_info(self, mode: AutoresetMode) -> None:
        """An environment that returns one dict for ever, overwritten in place, loses nothing: not its final_info."""
        with self.fleet([_ReusingEnv] * 3, autoreset_mode=mode) as envs:
            kept = [envs.reset()[1]] + [envs.step(np.zeros(3, np.int64))[4] for _ in range(2)]
            values = [0, 1, 2] if mode != AutoresetMode.SAME_STEP else [0, 1, 0]
            for infos, value in zip(kept, values, strict=True):
                assert_same(infos["array"], np.full((3, 2), value))
                assert_same(infos["nested"]["number"], np.full(3, value))
            if mode == AutoresetMode.SAME_STEP:
                assert_same(kept[-1]["final_info"]["array"], np.full((3, 2), 2))
                assert_same(kept[-1]["final_info"]["nested"]["number"], np.full(3, 2))

    def test_environments_may_share_one_info(self) -> None:
        """Environments that all return the same dict, each with its own number in it, keep their numbers."""
        with self.fleet([partial(_SharingEnv, index) for index in range(4)]) as envs:
            envs.reset()
            for _ in range(2):
                assert_same(envs.step(np.zeros(4, np.int64))[4]["index"], np.arange(4))

    @pytest.mark.parametrize("key", ["final_obs", 7, (1, 2), "key with spaces"], ids=str)
    def test_any_key_is_a_key(self, key: Any) -> None:
        """Keys need not be names; one called final_obs is always a column of objects."""
        row: list[dict[Any, Any]] = [{key: np.array([1, 2])}, {}, {key: np.array([3.5, 4])}]
        with self.fleet(self._info_fns([row])) as envs:
            assert_same(envs.reset()[1], stack_infos(row))
            assert_same(envs.step(np.zeros(3, np.int64))[4], stack_infos(row))

    def test_any_infos_over_any_steps(self) -> None:
        """Random infos that change their keys and types from step to step agree with the oracle."""

        @hypothesis.settings(
            max_examples=2 * self.max_examples, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        @hypothesis.given(info_scripts(3))
        def check(script: list[list[dict[str, Any]]]) -> None:
            with self.fleet(self._info_fns(deepcopy(script))) as envs:
                assert_same(envs.reset()[1], stack_infos(script[0]))
                for row in script[1:]:
                    assert_same(envs.step(np.zeros(3, np.int64))[4], stack_infos(row))

        check()


class _SharingEnv(PlaybackEnv):
    """All instances in a process return one dict."""

    shared: ClassVar[dict[str, Any]] = {}

    def __init__(self, index: int) -> None:
        super().__init__(spaces.Discrete(1), [Frame(0)])
        self.index = index

    def step(self, action: Any) -> Any:
        self.shared["index"] = self.index
        return *super().step(action)[:4], self.shared


class _ReusingEnv(PlaybackEnv):
    """Counts its steps in one info dict that it returns again and again; ends after two."""

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(1), [Frame(0), Frame(0), Frame(0, terminated=True), Frame(0)])
        self.info: dict[str, Any] = {"array": np.zeros(2, np.int64), "nested": {"number": 0}}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, _ = super().reset(seed=seed, options=options)
        return observation, self._count(0)

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        return *result, self._count(self.info["nested"]["number"] + 1)

    def _count(self, value: int) -> dict[str, Any]:
        self.info["array"][:] = value
        self.info["nested"]["number"] = value
        return self.info
