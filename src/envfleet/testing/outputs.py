"""Contract: what environments return is accepted where harmless and refused by name where not."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.errors import InvalidOutputError, WorkerError
from envfleet.testing.base import ContractBase, EnvFn, pytest
from envfleet.testing.compare import assert_same
from envfleet.testing.envs import Frame, PlaybackEnv, Raw

FLOATS = spaces.Box(-np.inf, np.inf, (4,), np.float32)
BYTES = spaces.Box(0, 255, (2,), np.uint8)
NESTED = spaces.Dict({"a": FLOATS, "b": spaces.Tuple((spaces.Discrete(5), BYTES))})
NESTED_GOOD = {"a": np.zeros(4, np.float32), "b": (1, np.zeros(2, np.uint8))}

BAD_OBSERVATIONS: dict[str, tuple[spaces.Space[Any], Any, Any]] = {
    "too short": (FLOATS, np.zeros(4), np.zeros(3, np.float32)),
    "would broadcast": (FLOATS, np.zeros(4), np.zeros(1, np.float32)),
    "scalar": (FLOATS, np.zeros(4), 0.0),
    "extra axis": (FLOATS, np.zeros(4), np.zeros((1, 4), np.float32)),
    "same size": (FLOATS, np.zeros(4), np.zeros((2, 2), np.float32)),
    "None": (FLOATS, np.zeros(4), None),
    "text": (FLOATS, np.zeros(4), "four"),
    "complex": (FLOATS, np.zeros(4), np.zeros(4, np.complex64)),
    "float into integer": (BYTES, np.zeros(2, np.uint8), np.array([0.5, 1.0])),
    "whole float into integer": (BYTES, np.zeros(2, np.uint8), np.array([0.0, 1.0])),
    "integer too large": (BYTES, np.zeros(2, np.uint8), np.array([0, 256])),
    "integer too small": (BYTES, np.zeros(2, np.uint8), np.array([-1, 0])),
    "float into discrete": (spaces.Discrete(3), 0, 1.5),
    "array into discrete": (spaces.Discrete(3), 0, np.array([1])),
    "missing key": (NESTED, NESTED_GOOD, {"a": NESTED_GOOD["a"]}),
    "extra key": (NESTED, NESTED_GOOD, {**NESTED_GOOD, "c": 0}),
    "no mapping": (NESTED, NESTED_GOOD, np.zeros(4, np.float32)),
    "short tuple": (NESTED, NESTED_GOOD, {**NESTED_GOOD, "b": (1,)}),
    "bad leaf": (NESTED, NESTED_GOOD, {**NESTED_GOOD, "b": (1, np.zeros(3, np.uint8))}),
}


class GymnasiumOutputs(ContractBase):
    """Rewards and flags may be any number and any boolean."""

    @pytest.mark.parametrize(
        "reward",
        [2, 2.0, np.float32(2), np.int64(2), np.array(2.0)],
        ids=["int", "float", "float32", "int64", "0-d"],
    )
    def test_a_reward_may_be_any_single_number(self, reward: Any) -> None:
        """Python's numbers and NumPy's scalars all give a float64 row, in every env of the batch."""
        fns = [partial(PlaybackEnv, spaces.Discrete(1), [Frame(0, reward=reward)]) for _ in range(self.num_envs)]
        with self.fleet(fns) as envs:
            envs.reset()
            for _ in range(2):
                assert_same(envs.step(self.zeros())[1], np.full(self.num_envs, 2.0))

    @pytest.mark.parametrize("which", ["terminated", "truncated"])
    @pytest.mark.parametrize("flag", [True, np.True_], ids=["bool", "numpy.bool"])
    def test_a_flag_may_be_any_boolean(self, which: str, flag: Any) -> None:
        """Python and NumPy booleans both end an episode."""
        fns = [
            partial(PlaybackEnv, spaces.Discrete(1), [Frame(0), Frame(0, **{which: flag})])
            for _ in range(self.num_envs)
        ]
        with self.fleet(fns) as envs:
            envs.reset()
            _, _, terminated, truncated, _ = envs.step(self.zeros())
            assert_same(terminated, np.full(self.num_envs, which == "terminated"))
            assert_same(truncated, np.full(self.num_envs, which == "truncated"))


class OutputsContract(GymnasiumOutputs):
    """Bad observations, rewards and flags are errors that name the environment, the expected and the got."""

    bad_index: int = 2

    def _with_one_bad(self, space: spaces.Space[Any], good: list[Frame | Raw], bad: list[Frame | Raw]) -> list[EnvFn]:
        """Return makers of environments that play `good`, but the one at `bad_index` plays `bad`."""
        return [partial(PlaybackEnv, space, bad if index == self.bad_index else good) for index in range(self.num_envs)]

    def _assert_refused_by_name(self, fns: list[EnvFn], *words: str, resets: int = 1) -> None:
        """Assert that the step after `resets` resets is refused for `bad_index`, and that a reset mends the fleet."""
        with self.fleet(fns) as envs:
            for _ in range(resets):
                envs.reset()
            with pytest.raises(InvalidOutputError) as caught:
                envs.step(self.zeros()) if resets else envs.reset()
            assert isinstance(caught.value, (WorkerError, ValueError))
            assert caught.value.env_indices == (self.bad_index,)
            for word in (str(self.bad_index), *words):
                assert word in str(caught.value)
            envs.reset()
            envs.step(self.zeros())

    @pytest.mark.parametrize("case", BAD_OBSERVATIONS, ids=str)
    @pytest.mark.parametrize("method", ["reset", "step"])
    def test_a_bad_observation_is_refused_by_name(self, case: str, method: str) -> None:
        """A wrong shape, an unsafe dtype or wrong keys raise InvalidOutputError; the fleet works after a reset."""
        space, good, bad = BAD_OBSERVATIONS[case]
        before = [Frame(good)] if method == "step" else []
        fns = self._with_one_bad(space, [Frame(good)], [*before, Frame(bad), Frame(good)])
        self._assert_refused_by_name(fns, resets=len(before))

    def test_the_error_says_what_was_expected_and_what_came(self) -> None:
        """The message of a refused observation holds the expected and the received shape or dtype."""
        good, bad = np.zeros(4, np.float32), np.zeros(3, np.float32)
        fns = self._with_one_bad(FLOATS, [Frame(good)], [Frame(good), Frame(bad), Frame(good)])
        self._assert_refused_by_name(fns, "(4,)", "(3,)")
        pair = np.zeros(2, np.uint8)
        fns = self._with_one_bad(BYTES, [Frame(pair)], [Frame(pair), Frame(np.zeros(2, np.float64)), Frame(pair)])
        self._assert_refused_by_name(fns, "uint8", "float64")
        fns = self._with_one_bad(
            NESTED, [Frame(NESTED_GOOD)], [Frame(NESTED_GOOD), Frame({"a": good}), Frame(NESTED_GOOD)]
        )
        self._assert_refused_by_name(fns, "b")

    @pytest.mark.parametrize(
        ("space", "given", "expected"),
        [
            (FLOATS, [1, 2, 3, 4], np.array([1, 2, 3, 4], np.float32)),
            (FLOATS, (0.5, 1.5, 2.5, 3.5), np.array([0.5, 1.5, 2.5, 3.5], np.float32)),
            (FLOATS, np.array([0.1, np.nan, np.inf, 1]), np.array([0.1, np.nan, np.inf, 1], np.float32)),
            (FLOATS, np.arange(8.0)[::2], np.array([0, 2, 4, 6], np.float32)),
            (FLOATS, np.arange(4), np.arange(4, dtype=np.float32)),
            (BYTES, np.array([0, 255], np.int64), np.array([0, 255], np.uint8)),
            (spaces.Discrete(5), 3, np.int64(3)),
            (spaces.Discrete(5), np.int32(3), np.int64(3)),
            (spaces.Discrete(5), np.array(3), np.int64(3)),
        ],
        ids=["list", "tuple", "float64", "strided", "integers", "wide", "int", "int32", "0-d"],
    )
    def test_harmless_casts_are_accepted(self, space: spaces.Space[Any], given: Any, expected: Any) -> None:
        """Lists, wider floats, integers that survive and NumPy scalars arrive as the space's dtype."""
        fns = [partial(PlaybackEnv, space, [Frame(given)]) for _ in range(self.num_envs)]
        with self.fleet(fns) as envs:
            batch = np.array([expected] * self.num_envs)
            assert_same(envs.reset()[0], batch)
            assert_same(envs.step(self.zeros())[0], batch)

    @pytest.mark.parametrize("reward", [np.array([2.0]), np.array([2])], ids=["shape (1,)", "integer (1,)"])
    def test_a_reward_may_be_an_array_of_one_number(self, reward: Any) -> None:
        """An array of one element is a number too, and gives a float64 row, not another shape."""
        self.test_a_reward_may_be_any_single_number(reward)

    def test_a_boolean_reward_is_a_number(self) -> None:
        """A reward of True is 1.0."""
        fns = [partial(PlaybackEnv, spaces.Discrete(1), [Frame(0, reward=True)]) for _ in range(self.num_envs)]
        with self.fleet(fns) as envs:
            envs.reset()
            assert_same(envs.step(self.zeros())[1], np.ones(self.num_envs))

    @pytest.mark.parametrize(
        "reward",
        [np.zeros(2), np.zeros((1, 1)), np.zeros(0), None, "one", 1j, {"r": 1}],
        ids=["shape (2,)", "shape (1, 1)", "empty", "None", "text", "complex", "mapping"],
    )
    def test_a_reward_that_is_no_single_number_is_refused_by_name(self, reward: Any) -> None:
        """Any other reward raises InvalidOutputError with the environment's index and the word reward."""
        fns = self._with_one_bad(spaces.Discrete(1), [Frame(0)], [Frame(0), Frame(0, reward=reward), Frame(0)])
        self._assert_refused_by_name(fns, "reward")

    @pytest.mark.parametrize("which", ["terminated", "truncated"])
    @pytest.mark.parametrize("flag", [None, "no", np.zeros(2, np.bool_)], ids=["None", "text", "shape (2,)"])
    def test_a_flag_that_is_no_boolean_is_refused_by_name(self, which: str, flag: Any) -> None:
        """Anything that is no boolean raises InvalidOutputError with the environment's index and the flag's name."""
        fns = self._with_one_bad(spaces.Discrete(1), [Frame(0)], [Frame(0), Frame(0, **{which: flag}), Frame(0)])
        self._assert_refused_by_name(fns, which)

    @pytest.mark.parametrize(
        ("method", "value"),
        [
            ("reset", 0),
            ("reset", (0,)),
            ("reset", (0, ["no dict"])),
            ("step", (0, 0.0, False, {})),
            ("step", None),
            ("step", (0, 0.0, False, False, "no dict")),
            ("step", (0, 0.0, False, False, None)),
        ],
        ids=["bare observation", "one of two", "reset info", "old gym", "nothing", "step info", "no info"],
    )
    def test_a_result_of_another_form_names_the_environment(self, method: str, value: Any) -> None:
        """A reset or step that returns something else than the API's tuple is an error with the env's index."""
        before: list[Frame | Raw] = [Frame(0)] if method == "step" else []
        fns = self._with_one_bad(spaces.Discrete(1), [Frame(0)], [*before, Raw(value), Frame(0)])
        with self.fleet(fns) as envs:
            if before:
                envs.reset()
            with pytest.raises(WorkerError) as caught:
                envs.step(self.zeros()) if before else envs.reset()
            assert caught.value.env_indices == (self.bad_index,)
            envs.reset()
            envs.step(self.zeros())
