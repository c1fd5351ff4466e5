"""Contract: actions are checked before anything is sent, and arrive as they were given."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from envfleet.errors import InvalidActionError
from envfleet.testing.base import ContractBase, EnvFn, Fleet, pytest
from envfleet.testing.compare import assert_same, assert_step
from envfleet.testing.envs import Frame, PlaybackEnv, counter_fns, endless_fns
from envfleet.testing.reference import ReferenceFleet, stack_items
from envfleet.testing.strategies import BagSpace

BOX = spaces.Box(-1, 1, (2,), np.float32)
SMALL = spaces.MultiDiscrete([5, 5], dtype=np.int8)
NESTED = spaces.Dict({"arm": BOX, "legs": spaces.Tuple((spaces.Discrete(3), BOX))})


def recorders(num_envs: int, action_space: spaces.Space[Any]) -> list[EnvFn]:
    """Return makers of environments that only keep the actions they receive."""
    observation_space = spaces.Discrete(1)
    return [partial(PlaybackEnv, observation_space, [Frame(0)], action_space) for _ in range(num_envs)]


class ActionsContract(ContractBase):
    """Count, shape and dtype are checked first; a refused call changes nothing."""

    def _assert_actions_refused(self, envs: Fleet, actions: Any) -> None:
        """Assert that both ways to step refuse the actions and leave nothing pending."""
        with pytest.raises(InvalidActionError) as caught:
            envs.step(actions)
        assert isinstance(caught.value, ValueError)
        with pytest.raises(InvalidActionError):
            envs.step_async(actions)

    @pytest.mark.parametrize("count", [0, 1, 4, 6, 50])
    @pytest.mark.parametrize("kind", ["array", "list"])
    def test_a_wrong_number_of_actions_changes_nothing(self, count: int, kind: str) -> None:
        """Too few or too many actions are refused and the trajectory goes on as if nobody had asked."""
        reference = ReferenceFleet(counter_fns(5), AutoresetMode.NEXT_STEP)
        wrong = np.zeros(count, np.int64) if kind == "array" else [0] * count
        actions = np.arange(5)
        with self.fleet(counter_fns(5)) as envs:
            reference.reset(range(5))
            envs.reset(seed=0)
            for _ in range(4):
                self._assert_actions_refused(envs, wrong)
                assert_step(envs.step(actions), reference.step(actions), reference.observation_space)

    @pytest.mark.parametrize(
        "actions",
        [
            np.zeros((5, 1), np.int64),
            np.zeros((1, 5), np.int64),
            np.int64(0),
            None,
            "abcde",
            {"a": np.zeros(5)},
            np.zeros(5, np.float64),
            np.full(5, 0.5),
            [0.0] * 5,
            np.array(["0"] * 5),
            [None] * 5,
            [0, 0, [0], 0, 0],
        ],
        ids=[
            "column",
            "row",
            "scalar",
            "None",
            "text",
            "mapping",
            "whole floats",
            "floats",
            "list of floats",
            "strings",
            "Nones",
            "ragged",
        ],
    )
    def test_discrete_actions_of_another_shape_or_kind_are_refused(self, actions: Any) -> None:
        """Discrete actions are num_envs integers, nothing else."""
        with self.fleet(endless_fns(5)) as envs:
            envs.reset()
            self._assert_actions_refused(envs, actions)
            assert envs.get_attr("steps") == (0,) * 5
            envs.step(np.zeros(5, np.int64))
            assert envs.get_attr("steps") == (1,) * 5

    @pytest.mark.parametrize(
        "actions",
        [
            np.zeros(2, np.float32),
            np.zeros((5, 1), np.float32),
            np.zeros((5, 3), np.float32),
            np.zeros((5, 2, 1), np.float32),
            np.zeros((4, 2), np.float32),
            np.zeros((5, 2), np.complex64),
            [[0.0, 0.0]] * 4 + [[0.0]],
        ],
        ids=["one row", "would broadcast", "too wide", "extra axis", "too few", "complex", "ragged"],
    )
    def test_box_actions_of_another_shape_or_kind_are_refused(self, actions: Any) -> None:
        """Box actions have exactly the shape (num_envs, *shape); nothing is ever broadcast."""
        with self.fleet(recorders(5, BOX)) as envs:
            envs.reset()
            self._assert_actions_refused(envs, actions)
            assert envs.get_attr("received") == ([],) * 5

    def test_integers_that_do_not_fit_are_refused(self) -> None:
        """An integer that does not survive the cast to the space's dtype is refused, one that does is accepted."""
        with self.fleet(recorders(5, SMALL)) as envs:
            envs.reset()
            self._assert_actions_refused(envs, np.full((5, 2), 300, np.int64))
            envs.step(np.full((5, 2), 3, np.int64))
            for (action,) in envs.get_attr("received"):
                assert_same(action, np.array([3, 3], np.int8))

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda good: {"arm": good["arm"]},
            lambda good: {**good, "tail": good["arm"]},
            lambda good: {**good, "legs": good["legs"][:1]},
            lambda good: {**good, "legs": (good["legs"][0][:-1], good["legs"][1])},
            lambda good: {**good, "legs": (good["legs"][0], good["legs"][1][:, :1])},
            lambda good: {**good, "arm": good["arm"][:-1]},
            lambda good: [good] * 5,
            lambda good: good["arm"],
        ],
        ids=[
            "missing key",
            "extra key",
            "short tuple",
            "short leaf",
            "narrow leaf",
            "short array",
            "list of rows",
            "no mapping",
        ],
    )
    def test_nested_actions_are_checked_leaf_by_leaf(self, spoil: Any) -> None:
        """Each leaf of a nested action is checked before any environment receives a part of it."""
        good = {"arm": np.zeros((5, 2), np.float32), "legs": (np.zeros(5, np.int64), np.ones((5, 2), np.float32))}
        with self.fleet(recorders(5, NESTED)) as envs:
            envs.reset()
            self._assert_actions_refused(envs, spoil(good))
            assert envs.get_attr("received") == ([],) * 5
            envs.step(good)
            for (action,) in envs.get_attr("received"):
                assert_same(action["arm"], np.zeros(2, np.float32))
                assert_same(action["legs"][1], np.ones(2, np.float32))

    @pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8], ids=lambda dtype: dtype.__name__)
    def test_discrete_actions_arrive_as_scalars_of_the_space(self, dtype: type[np.integer[Any]]) -> None:
        """Whatever integer dtype was sent, each environment receives a NumPy scalar of the space's dtype."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            envs.step(np.arange(self.num_envs, dtype=dtype))
            for index, (action,) in enumerate(envs.get_attr("actions")):
                assert type(action) is np.int64
                assert action == index

    def test_a_list_of_integers_is_accepted(self) -> None:
        """A plain list of num_envs integers is a batch of discrete actions."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            observations, *_ = envs.step(list(range(self.num_envs)))
            assert observations[:, 3].tolist() == list(range(self.num_envs))

    @pytest.mark.parametrize("space", [spaces.Text(3), BagSpace(2), spaces.Dict({"t": spaces.Text(3)})], ids=str)
    @pytest.mark.parametrize("count", [0, 4, 6])
    def test_a_wrong_number_of_loose_actions_is_refused(self, space: spaces.Space[Any], count: int) -> None:
        """Actions without a fixed layout are counted too, and a text is no batch of letters."""
        samples = [space.sample() for _ in range(6)]
        with self.fleet(recorders(5, space)) as envs:
            envs.reset()
            self._assert_actions_refused(envs, stack_items(space, samples[:count]))
            self._assert_actions_refused(envs, "abcde")
            envs.step(stack_items(space, samples[:5]))
            assert envs.get_attr("received") == tuple([sample] for sample in samples[:5])

    @pytest.mark.parametrize(
        "kind",
        ["float64", "integers", "list", "rows", "reversed", "fortran", "big-endian", "read-only", "array-like"],
    )
    def test_box_actions_may_come_in_any_equivalent_form(self, kind: str) -> None:
        """Wider floats, integers, lists, odd strides and byte orders all arrive as the space's dtype."""
        n = self.num_envs
        values = np.arange(2 * n, dtype=np.float64).reshape(n, 2)
        forms: dict[str, Any] = {
            "float64": values,
            "integers": values.astype(np.int64),
            "list": values.tolist(),
            "reversed": values[::-1].copy()[::-1],
            "fortran": np.asfortranarray(values.astype(np.float32)),
            "big-endian": values.astype(">f4"),
            "rows": tuple(values.astype(np.float32)),
            "read-only": np.broadcast_to(values.astype(np.float32), values.shape),
            "array-like": _ArrayLike(values),
        }
        with self.fleet(recorders(n, BOX)) as envs:
            envs.reset()
            envs.step(forms[kind])
            for index, (action,) in enumerate(envs.get_attr("received")):
                assert_same(action, values[index].astype(np.float32))

    def test_an_environment_may_keep_and_change_its_actions(self) -> None:
        """Each action is the environment's own: later steps do not change it, and changing it is nobody's loss."""
        n = self.num_envs
        batches = [np.full((n, 2), step, np.float32) + np.arange(n)[:, None] for step in range(4)]
        batches = [batch.astype(np.float32) for batch in batches]
        with self.fleet([partial(_ActionSpoiler, n) for _ in range(n)]) as envs:
            envs.reset()
            for batch in batches:
                sent = batch.copy()
                envs.step(sent)
                assert_same(sent, batch)
            for index, received in enumerate(envs.get_attr("received")):
                assert_same(received, [batch[index] + n for batch in batches])

    def test_actions_are_taken_when_they_are_sent(self) -> None:
        """Changing the array between step_async and step_wait does not change what the environments receive."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            actions = np.full(self.num_envs, 4)
            envs.step_async(actions)
            actions[:] = 9
            observations, *_ = envs.step_wait()
            assert observations[:, 3].tolist() == [4] * self.num_envs

    def test_refused_actions_before_the_first_reset_harm_nothing(self) -> None:
        """Actions refused before the first reset leave the fleet ready for that reset."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            self._assert_actions_refused(envs, np.zeros(self.num_envs + 1, np.int64))
            observations, _ = envs.reset()
            assert observations[:, 1].tolist() == [1] * self.num_envs


class _ArrayLike:
    """Something NumPy can convert, as the tensors of other libraries are."""

    def __init__(self, values: npt.NDArray[np.float64]) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.values, dtype) if copy is not False else self.values


class _ActionSpoiler(PlaybackEnv):
    """Adds a number to each action in place, after receiving it."""

    def __init__(self, offset: float) -> None:
        super().__init__(spaces.Discrete(1), [Frame(0)], BOX)
        self.offset = offset

    def step(self, action: Any) -> Any:
        action += np.float32(self.offset)
        return super().step(action)
