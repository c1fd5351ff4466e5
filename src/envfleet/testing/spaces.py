"""Contract: every space works, those without a fixed layout too, as observation and as action."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from envfleet.testing.base import ContractBase, pytest
from envfleet.testing.compare import assert_same
from envfleet.testing.envs import Frame, PlaybackEnv
from envfleet.testing.reference import ARRAY_SPACES, stack_items
from envfleet.testing.strategies import BagSpace, hypothesis, space_trees

# isort: split
from hypothesis import strategies as st

NODE = spaces.Box(-1, 1, (2,), np.float32)
STEPS = 5


def is_of_arrays(space: spaces.Space[Any]) -> bool:
    """Return whether all leaves of a space are arrays of one shape and dtype."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return all(map(is_of_arrays, parts))
    return isinstance(space, ARRAY_SPACES)


class OwnBox(spaces.Box):
    """A Box by another name is still a Box."""


ZOO: dict[str, spaces.Space[Any]] = {
    "Box": spaces.Box(-1, 1, (3,), np.float32),
    "Box scalar": spaces.Box(-1, 1, (), np.float64),
    "Box empty": spaces.Box(-1, 1, (0,), np.float32),
    "Box image": spaces.Box(0, 255, (4, 5, 3), np.uint8),
    "Box float16": spaces.Box(-1, 1, (3,), np.float16),
    "Box bool": spaces.Box(0, 1, (3,), np.bool_),
    "Box subclass": OwnBox(-1, 1, (3,)),
    "Discrete": spaces.Discrete(4),
    "Discrete start": spaces.Discrete(4, start=-2),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
    "MultiDiscrete 2D": spaces.MultiDiscrete(np.array([[3, 4], [5, 6]])),
    "MultiBinary": spaces.MultiBinary(4),
    "MultiBinary 2D": spaces.MultiBinary([2, 3]),
    "Text": spaces.Text(8),
    "Text maybe empty": spaces.Text(3, min_length=0),
    "Graph": spaces.Graph(NODE, spaces.Discrete(3)),
    "Graph without edges": spaces.Graph(NODE, None),
    "Sequence": spaces.Sequence(NODE),
    "Sequence stacked": spaces.Sequence(NODE, stack=True),
    "OneOf": spaces.OneOf([spaces.Discrete(3), NODE, spaces.Text(4)]),
    "OneOf arrays": spaces.OneOf([spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (3,))]),
    "custom": BagSpace(3),
    "Tuple": spaces.Tuple((NODE, spaces.Discrete(3))),
    "Tuple of Text": spaces.Tuple((spaces.Text(3), spaces.Text(5))),
    "Dict": spaces.Dict({"b": NODE, "a": spaces.Discrete(3)}),
    "mixed": spaces.Dict({"t": spaces.Text(4), "x": NODE, "g": spaces.Graph(NODE, None), "bag": BagSpace(2)}),
    "deep": spaces.Dict({"a": spaces.Tuple((NODE, spaces.Dict({"b": spaces.Text(3), "c": spaces.MultiBinary(2)})))}),
}


LOOSE = tuple(name for name, space in ZOO.items() if not is_of_arrays(space))
"""Spaces in which not every leaf is an array of one shape: Gymnasium's AsyncVectorEnv has no way for most of them."""


def samples(space: spaces.Space[Any], seed: int, count: int) -> list[Any]:
    """Return `count` samples of a copy of the space."""
    space = deepcopy(space)
    space.seed(seed)
    return [deepcopy(space.sample()) for _ in range(count)]


def as_received(space: spaces.Space[Any], action: Any) -> Any:
    """Return a sampled action as an environment receives it: array leaves in their space's dtype."""
    if isinstance(space, spaces.Dict):
        return {key: as_received(sub, action[key]) for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(as_received(sub, part) for sub, part in zip(space.spaces, action, strict=True))
    return np.asarray(action, space.dtype) if isinstance(space, ARRAY_SPACES) else action


def arrays_of(space: spaces.Space[Any], action: Any) -> Any:
    """Return a received action with its NumPy scalars as 0-d arrays, which compare with their dtype."""
    if isinstance(space, spaces.Dict):
        return {key: arrays_of(space[key], part) for key, part in action.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(arrays_of(sub, part) for sub, part in zip(space.spaces, action, strict=True))
    if isinstance(space, ARRAY_SPACES):
        assert isinstance(action, (np.ndarray, np.generic)), f"{space}: {action!r} is not NumPy's"
        return np.asarray(action)
    return action


class GymnasiumSpaces(ContractBase):
    """Observations come out as they were emitted, actions arrive as they were sent, in every space."""

    def check_space(self, space: spaces.Space[Any], seed: int, mode: AutoresetMode, copy: bool) -> None:
        """Play samples of the space as observations and send others as actions; compare both with the originals."""
        n = self.num_envs
        emitted = [samples(space, seed + i, STEPS) for i in range(n)]
        actions = [samples(space, seed + n + i, STEPS - 1) for i in range(n)]
        fns = [partial(PlaybackEnv, space, [Frame(sample) for sample in emitted[i]], space) for i in range(n)]
        with self.fleet(fns, autoreset_mode=mode, copy=copy) as envs:
            self._check_batched_spaces(envs, space)
            observations, _ = envs.reset(seed=0)
            kept = [(observations, self._rows(space, emitted, 0))] if copy else []
            assert_same(observations, self._rows(space, emitted, 0), "reset")
            for step in range(STEPS - 1):
                observations, *_ = envs.step(self._rows(space, actions, step))
                assert_same(observations, self._rows(space, emitted, step + 1), f"step {step}")
                kept += [(observations, self._rows(space, emitted, step + 1))] if copy else []
            for kept_observations, expected in kept:
                assert_same(kept_observations, expected, "kept")
            if self.can_look_into(envs):
                self._check_received(space, envs.get_attr("received"), actions)

    def _rows(self, space: spaces.Space[Any], streams: Sequence[Sequence[Any]], step: int) -> Any:
        return stack_items(space, [stream[step] for stream in streams])

    def _check_batched_spaces(self, envs: Any, space: spaces.Space[Any]) -> None:
        assert envs.single_observation_space == space
        assert envs.single_action_space == space
        assert envs.observation_space == batch_space(space, self.num_envs)
        assert envs.action_space == batch_space(space, self.num_envs)

    def _check_received(self, space: spaces.Space[Any], received: Any, sent: list[list[Any]]) -> None:
        for index, (got, expected) in enumerate(zip(received, sent, strict=True)):
            assert_same(
                [arrays_of(space, action) for action in got],
                [as_received(space, action) for action in expected],
                f"actions of environment {index}",
            )

    @pytest.mark.parametrize("copy", [True, False], ids=["copy", "live"])
    @pytest.mark.parametrize("name", [name for name in ZOO if name not in LOOSE])
    def test_every_space_travels_both_ways(self, name: str, copy: bool) -> None:
        """Each kind of space works as observation and as action space, and observations change as they should."""
        self.check_space(ZOO[name], 7, AutoresetMode.NEXT_STEP, copy)

    @pytest.mark.parametrize("name", ["Box image", "Tuple", "Dict"])
    def test_final_observations_work_in_every_space(self, name: str) -> None:
        """In SAME_STEP mode final_obs holds the environment's own last observation, whatever its space."""
        space, n = ZOO[name], self.num_envs
        emitted = [samples(space, 3 + i, 4) for i in range(n)]
        fns = [
            partial(PlaybackEnv, space, [Frame(a), Frame(b, terminated=True), Frame(c), Frame(d)])
            for a, b, c, d in emitted
        ]
        with self.fleet(fns, autoreset_mode=AutoresetMode.SAME_STEP) as envs:
            envs.reset()
            observations, *_, infos = envs.step(self.zeros())
            assert_same(observations, self._rows(space, emitted, 2))
            for index in range(n):
                assert_same(stack_items(space, [infos["final_obs"][index]]), stack_items(space, [emitted[index][1]]))

    @pytest.mark.parametrize("name", ["Box image", "Tuple", "Dict"])
    def test_a_masked_reset_keeps_the_other_rows_in_every_space(self, name: str) -> None:
        """A masked reset returns the last observation of the others, whatever the space."""
        space, n = ZOO[name], self.num_envs
        emitted = [samples(space, 40 + i, 3) for i in range(n)]
        fns = [partial(PlaybackEnv, space, [Frame(sample) for sample in emitted[i]]) for i in range(n)]
        with self.fleet(fns, autoreset_mode=AutoresetMode.DISABLED) as envs:
            envs.reset()
            envs.step(self.zeros())
            mask = np.arange(n) % 2 == 0
            observations, _ = envs.reset(options={"reset_mask": mask})
            rows = [stream[2] if mask[i] else stream[1] for i, stream in enumerate(emitted)]
            assert_same(observations, stack_items(space, rows))


class SpacesContract(GymnasiumSpaces):
    """Observations come out as they were emitted, actions arrive as they were sent, in every space."""

    @pytest.mark.parametrize("copy", [True, False], ids=["copy", "live"])
    @pytest.mark.parametrize("name", LOOSE)
    def test_spaces_without_a_fixed_layout_travel_both_ways(self, name: str, copy: bool) -> None:
        """Texts, graphs, sequences, alternatives and custom spaces work as observation and as action space."""
        self.test_every_space_travels_both_ways(name, copy)

    @pytest.mark.parametrize("name", ["Text", "OneOf", "Graph", "mixed"])
    def test_final_observations_work_without_a_fixed_layout(self, name: str) -> None:
        """In SAME_STEP mode final_obs holds the environment's own last observation, also if it is no array."""
        self.test_final_observations_work_in_every_space(name)

    @pytest.mark.parametrize("name", ["Text", "OneOf", "custom", "mixed", "Sequence"])
    def test_a_masked_reset_keeps_rows_without_a_fixed_layout(self, name: str) -> None:
        """A masked reset returns the last observation of the others, also where rows are no array rows."""
        self.test_a_masked_reset_keeps_the_other_rows_in_every_space(name)

    def test_any_space_tree_travels_both_ways(self) -> None:
        """Random trees of all spaces come out as emitted and arrive as sent."""

        @hypothesis.settings(
            max_examples=self.max_examples, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        @hypothesis.given(space_trees(), st.integers(0, 2**20), st.sampled_from(list(AutoresetMode)), st.booleans())
        def check(space: spaces.Space[Any], seed: int, mode: AutoresetMode, copy: bool) -> None:
            self.check_space(space, seed, mode, copy)

        check()
