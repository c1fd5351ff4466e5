from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_envs import NEXT_STEP, OBSERVATION_SPACES, SAME_STEP, Script, scripted_fleet

from envfleet.train.algorithms import replay
from envfleet.train.algorithms.replay import ReplayBuffer, Transitions
from envfleet.train.collecting import Position, Rollout, begin, collect
from envfleet.train.observations import map_leaves, to_tensors

CPU = torch.device("cpu")
MOMENT = spaces.Box(-np.inf, np.inf, (2,), np.float64)

ENDINGS = st.sampled_from(["terminated", "truncated", "both"])
SCRIPTS = st.lists(st.tuples(st.integers(1, 6), ENDINGS), min_size=1, max_size=4).map(tuple)

Row = tuple[float, ...]
"""A transition: observation, action, reward, next observation, terminated."""


@dataclass(frozen=True)
class Story:
    """A fleet's life: rollouts of so many steps each, some of them after a reset of everything."""

    scripts: list[Script]
    mode: AutoresetMode
    rollouts: list[tuple[int, bool]]
    nested: bool = False

    def told(self) -> list[Rollout]:
        actions = iter(range(10**9))
        envs = scripted_fleet(self.mode, self.scripts, nested=self.nested)
        position, rollouts = begin(envs, 0), []
        for steps, afresh in self.rollouts:
            position = begin(envs, 0) if afresh else position
            rollout = collect(envs, lambda _: np.array([next(actions) % 3 for _ in self.scripts]), steps, position)
            rollouts.append(rollout)
            position = rollout.end
        envs.close()
        return rollouts


STORIES = st.builds(
    Story,
    st.lists(SCRIPTS, min_size=1, max_size=3),
    st.sampled_from([SAME_STEP, NEXT_STEP]),
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=6),
    st.booleans(),
)


def inner(observations: Any) -> Any:
    return observations["inner"]["moment"] if isinstance(observations, dict) else observations


def rows_of(rollout: Rollout) -> list[Row]:
    """The transitions of a rollout, one after another, by what a rollout is said to be."""
    observations, finals = inner(rollout.observations), iter(inner(rollout.final_observations))
    following = np.concatenate([observations[1:], inner(rollout.end.observations)[None]])
    rows = []
    for step, env in np.ndindex(*rollout.rewards.shape):
        after = next(finals) if rollout.done[step, env] else following[step, env]
        if rollout.valid[step, env]:
            numbers = (rollout.actions[step, env], rollout.rewards[step, env])
            rows.append((*observations[step, env], *numbers, *after, rollout.terminated[step, env]))
    return [tuple(map(float, row)) for row in rows]


def rows_in(batch: Transitions) -> list[Row]:
    columns = [
        inner(batch.observations),
        batch.actions,
        batch.rewards,
        inner(batch.next_observations),
        batch.terminated,
    ]
    return [tuple(row) for row in torch.column_stack([column.double() for column in columns]).tolist()]


def filled(story: Story, capacity: int) -> tuple[ReplayBuffer, list[Row]]:
    """A buffer, and what it should hold."""
    space = spaces.Dict({"inner": spaces.Dict({"moment": MOMENT})}) if story.nested else MOMENT
    buffer = ReplayBuffer(space, 1, len(story.scripts), capacity, seed=0)
    rows: list[Row] = []
    for rollout in story.told():
        buffer.add(rollout)
        rows += rows_of(rollout)
    return buffer, rows[-capacity:]


@settings(deadline=None, max_examples=30)
@given(STORIES, st.integers(3, 80))
def test_every_transition_drawn_is_a_real_one_and_every_real_one_is_drawn(story: Story, capacity: int) -> None:
    buffer, rows = filled(story, capacity)
    assert len(buffer) == len(rows)
    # Each of n rows is missed with a chance of exp(-50).
    assert set(rows_in(buffer.sample(50 * len(rows), CPU))) == set(rows)


@settings(deadline=None, max_examples=30)
@given(STORIES, st.integers(3, 80))
def test_a_step_leads_on_in_its_own_episode(story: Story, capacity: int) -> None:
    buffer, _ = filled(story, capacity)
    for moment, _, action, reward, next_moment, last_action, terminated in rows_in(buffer.sample(200, CPU)):
        env, episode, step = int(moment) // 1000, int(moment) % 1000 // 10, int(moment) % 10
        length, ending = story.scripts[env][episode % len(story.scripts[env])]
        assert next_moment == moment + 1
        assert last_action == action
        assert reward == (step + 1) ** 2
        assert terminated == (step + 1 == length and ending != "truncated")


UNINTERRUPTED = STORIES.map(lambda story: replace(story, rollouts=[(steps, False) for steps, _ in story.rollouts]))


@settings(deadline=None, max_examples=30)
@given(UNINTERRUPTED, st.integers(3, 80), st.integers(1, 7))
def test_several_steps_are_those_of_one_episode_as_far_as_it_is_known(story: Story, capacity: int, most: int) -> None:
    buffer, rows = filled(story, capacity)
    known = {int(row[0]) for row in rows}
    batch = buffer.sample(200, CPU, steps=most, gamma=0.5)
    for row, discount in zip(rows_in(batch), batch.discounts.tolist(), strict=True):
        moment, _, _, reward, next_moment, _, terminated = row
        steps, first = int(next_moment - moment), int(moment) % 10 + 1
        script = story.scripts[int(moment) // 1000]
        length, ending = script[int(moment) % 1000 // 10 % len(script)]
        ends = first + steps - 1 == length
        assert 1 <= steps <= most
        assert steps == most or ends or int(next_moment) not in known
        assert discount == 0.5**steps
        assert reward == sum(0.5**i * (first + i) ** 2 for i in range(steps))
        assert terminated == (ends and ending != "truncated")


def test_all_transitions_are_equally_likely() -> None:
    story = Story([((3, "terminated"),), ((5, "truncated"),)], NEXT_STEP, [(1, False)] * 40)
    buffer, rows = filled(story, 30)
    counts = dict.fromkeys(rows, 0)
    for row in rows_in(buffer.sample(30_000, CPU)):
        counts[row] += 1
    expected = [1000 * rows.count(row) for row in counts]
    # The largest of 30 deviations of about 32 each.
    assert np.abs(np.subtract(list(counts.values()), expected)).max() < 160


def test_the_seed_decides_what_is_drawn() -> None:
    story = Story([((3, "terminated"),)], SAME_STEP, [(20, False)])
    first, again = (rows_in(filled(story, 30)[0].sample(20, CPU)) for _ in range(2))
    assert first == again
    buffer = filled(story, 30)[0]
    assert rows_in(buffer.sample(20, CPU)) != rows_in(buffer.sample(20, CPU))


@settings(deadline=None, max_examples=30)
@given(STORIES, STORIES.map(lambda story: story.rollouts), st.integers(3, 80))
def test_a_loaded_buffer_goes_on_like_the_saved_one(story: Story, later: list[tuple[int, bool]], capacity: int) -> None:
    whole = Story(story.scripts, story.mode, story.rollouts + later, story.nested)
    rollouts = whole.told()
    space = spaces.Dict({"inner": spaces.Dict({"moment": MOMENT})}) if story.nested else MOMENT
    saved, loaded = (ReplayBuffer(space, 1, len(story.scripts), capacity, seed) for seed in (0, 1))
    for rollout in rollouts[: len(story.rollouts)]:
        saved.add(rollout)
    saved.sample(7, CPU)
    loaded.load_tensors({name: tensor.clone() for name, tensor in saved.tensors().items()})
    for rollout in rollouts[len(story.rollouts) :]:
        saved.add(rollout)
        loaded.add(rollout)
        assert rows_in(saved.sample(10, CPU)) == rows_in(loaded.sample(10, CPU))
    ours, theirs = saved.tensors(), loaded.tensors()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@settings(deadline=None, max_examples=40)
@given(STORIES, STORIES.map(lambda story: story.rollouts), st.integers(3, 60), st.integers(3, 120))
def test_a_buffer_goes_on_with_another_capacity(
    story: Story, later: list[tuple[int, bool]], before: int, after: int
) -> None:
    """As when a run is extended: it may then fill more than it could before."""
    rollouts = Story(story.scripts, story.mode, story.rollouts + later).told()
    saved, loaded = (ReplayBuffer(MOMENT, 1, len(story.scripts), capacity, 0) for capacity in (before, after))
    rows: list[Row] = []
    for rollout in rollouts[: len(story.rollouts)]:
        saved.add(rollout)
        rows += rows_of(rollout)
    if len(saved) > after:
        with pytest.raises(ValueError, match="a larger buffer_size"):
            loaded.load_tensors(saved.tensors())
        return
    loaded.load_tensors({name: tensor.clone() for name, tensor in saved.tensors().items()})
    rows = rows[-before:]
    assert set(rows_in(loaded.sample(50 * len(rows), CPU))) == set(rows)
    for rollout in rollouts[len(story.rollouts) :]:
        loaded.add(rollout)
        rows = (rows + rows_of(rollout))[-after:]
        assert set(rows_in(loaded.sample(50 * len(rows), CPU))) == set(rows)


def test_a_larger_buffer_that_was_not_full_draws_what_the_saved_one_would_have_drawn() -> None:
    saved, _ = filled(Story([((3, "terminated"),), ((5, "truncated"),)], SAME_STEP, [(10, False)]), 30)
    larger = ReplayBuffer(MOMENT, 1, 2, 1000, seed=1)
    larger.load_tensors({name: tensor.clone() for name, tensor in saved.tensors().items()})
    assert rows_in(larger.sample(100, CPU, steps=3)) == rows_in(saved.sample(100, CPU, steps=3))


@pytest.mark.parametrize("ends", [True, False])
def test_an_environment_whose_latest_step_is_overwritten_spoils_nobody_elses(ends: bool) -> None:
    """Under first-ready, environment 0 is so slow that the others fill the buffer between two of its steps."""
    buffer, moments, random = ReplayBuffer(MOMENT, 1, 3, 7, seed=0), np.zeros(3), np.random.default_rng(0)
    shown = np.stack([1000.0 * np.arange(3), moments], -1)
    for _ in range(100):
        ready = random.random(3) < [0.1, 0.9, 0.5]
        before, moments = shown, moments + ready
        shown = np.stack([1000.0 * np.arange(3), moments], -1)
        rollout = fabricated(before, shown, ended=False)
        done = (ready & ends & (moments % 4 == 0))[None]
        rollout = replace(rollout, valid=ready[None], terminated=done, final_observations=shown[done[0]])
        buffer.add(rollout)
        for env, moment, _, _, next_env, next_moment, _ in rows_in(buffer.sample(50, CPU)):
            assert (next_env, next_moment) == (env, moment + 1)


def test_only_what_is_filled_is_saved() -> None:
    buffer, rows = filled(Story([((3, "terminated"),)], SAME_STEP, [(10, False)]), 100_000)
    assert all(len(tensor) < 50 for tensor in buffer.tensors().values())
    assert len(buffer.tensors()["rewards"]) == len(rows) == 10


def test_a_buffer_of_other_settings_is_refused_and_nothing_changes() -> None:
    story = Story([((3, "terminated"),)], SAME_STEP, [(10, False)])
    saved = filled(story, 100)[0].tensors()
    small, rows = filled(story, 5)
    with pytest.raises(ValueError, match="10 transitions of 1 environments, this one has room for 5 of 1"):
        small.load_tensors(saved)
    with pytest.raises(ValueError, match="of 1 environments, this one has room for 100 of 2"):
        ReplayBuffer(MOMENT, 1, 2, 100, 0).load_tensors(saved)
    assert set(rows_in(small.sample(250, CPU))) == set(rows)


def any_leaf(tree: Any) -> Any:
    """Any one of the arrays of a batch."""
    while isinstance(tree, (dict, tuple)):
        tree = next(iter(tree.values() if isinstance(tree, dict) else tree))
    return tree


def fabricated(observations: Any, following: Any, *, ended: bool, actions: Any = None) -> Rollout:
    """One step of every environment, from observations [N, ...] to `following`."""
    num_envs = len(any_leaf(observations))
    flags = np.full((1, num_envs), ended)
    finals = following if ended else map_leaves(lambda leaf: leaf[:0], following)
    return Rollout(
        map_leaves(lambda leaf: leaf[None], observations),
        np.zeros((1, num_envs, 1), np.float32) if actions is None else actions[None],
        np.zeros((1, num_envs)),
        flags,
        np.zeros_like(flags),
        np.ones_like(flags),
        finals,
        Position(following, np.zeros(num_envs, np.bool_)),
    )


def drawn(space: spaces.Space[Any], count: int) -> Any:
    """A batch [count, ...] with another value in every row where the space allows it."""
    space.seed(count)
    if isinstance(space, spaces.Dict):
        return {key: drawn(entry, count) for key, entry in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(drawn(entry, count) for entry in space)
    return np.stack([space.sample() for _ in range(count)]).astype(space.dtype)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("name", list(OBSERVATION_SPACES))
def test_every_space_comes_back_in_its_own_dtype(name: str, ended: bool) -> None:
    space = OBSERVATION_SPACES[name]
    before, after = drawn(space, 2), drawn(space, 3)
    after = map_leaves(lambda leaf: leaf[:2], after)
    buffer = ReplayBuffer(space, 3, 2, 10, 0)
    actions = np.arange(12, dtype=np.float64).reshape(2, 3, 2)[..., :1]
    buffer.add(fabricated(before, after, ended=ended, actions=actions))
    batch = buffer.sample(20, CPU)
    which = (batch.actions[:, 0] > 0).long()
    assert batch.actions.dtype == torch.float32
    assert set(map(tuple, batch.actions.tolist())) == {(0, 2, 4), (6, 8, 10)}

    def same(found: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(found, expected[which], rtol=0, atol=0)

    map_leaves(same, batch.observations, to_tensors(before, CPU))
    map_leaves(same, batch.next_observations, to_tensors(after, CPU))


def test_frames_are_not_stored_twice() -> None:
    space = spaces.Box(0, 255, (4, 4), np.uint8)
    buffer = ReplayBuffer(space, 1, 2, 100, 0)
    frames = np.random.default_rng(0).integers(0, 256, (31, 2, 4, 4)).astype(np.uint8)
    for before, after in pairwise(frames):
        buffer.add(fabricated(before, after, ended=False))
    pixels = sum(tensor.numel() for tensor in buffer.tensors().values() if tensor.dim() == 3)
    assert pixels == 62 * 16


def test_room_of_final_observations_is_used_again() -> None:
    space = spaces.Box(0, 255, (4, 4), np.uint8)
    buffer = ReplayBuffer(space, 1, 2, 10, 0)
    frames = np.random.default_rng(0).integers(0, 256, (100, 2, 4, 4)).astype(np.uint8)
    for before, after in pairwise(frames):
        buffer.add(fabricated(before, after, ended=True))
    assert len(buffer.tensors()["loose.0"]) <= 10 + 2 * 2


def test_a_batch_can_be_drawn_from_what_no_episode_has_ended_in_yet() -> None:
    buffer = ReplayBuffer(MOMENT, 1, 1, 10, 0)
    buffer.add(fabricated(np.zeros((1, 2)), np.ones((1, 2)), ended=False))
    assert rows_in(buffer.sample(1, CPU)) == [(0, 0, 0, 0, 1, 1, 0)]


def test_a_buffer_smaller_than_the_fleet_is_refused() -> None:
    with pytest.raises(ValueError, match=r"buffer_size must be at least num_envs \(8\), got 7"):
        ReplayBuffer(MOMENT, 1, 8, 7, 0)


def test_a_buffer_larger_than_the_memory_is_refused_with_what_would_fit() -> None:
    image = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    with pytest.raises(
        ValueError, match=r"of 28,244 bytes take 28244\.0 GB.*set buffer_size to at most [\d,]+"
    ) as told:
        ReplayBuffer(image, 1, 8, 10**9, 0)
    most = int(str(told.value).split("at most ")[1].rstrip(".").replace(",", ""))
    ReplayBuffer(image, 1, 8, most, 0)


def test_a_system_that_does_not_tell_its_memory_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_available_memory", lambda: None)
    assert len(ReplayBuffer(MOMENT, 1, 8, 10**7, 0)) == 0
