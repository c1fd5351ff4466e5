from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from test_replay import CPU, MOMENT, STORIES, Story, fabricated, inner, rows_in, rows_of
from tiny_envs import SAME_STEP

from envfleet.train.algorithms.priorities import Priorities
from envfleet.train.algorithms.replay import ReplayBuffer

CHANGES = st.lists(st.lists(st.tuples(st.integers(0, 10**6), st.floats(-1e3, 1e3)), max_size=20), max_size=10)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 70), st.floats(0.1, 1.0), CHANGES, st.integers(0, 99))
def test_chances_are_in_proportion_to_errors_to_a_power(
    capacity: int, exponent: float, changes: Any, seed: int
) -> None:
    found, expected = Priorities(capacity, exponent), np.zeros(capacity)
    found.add(np.arange(capacity))
    expected[:] = 1.0
    for change in changes:
        slots = np.array([slot % capacity for slot, _ in change], np.int64)
        errors = np.array([error for _, error in change])
        found.change(slots, errors)
        for slot, error in zip(slots, errors, strict=True):
            expected[slot] = (abs(error) + 1e-6) ** exponent
    chances = expected / expected.sum()
    np.testing.assert_allclose(found.chances(np.arange(capacity)), chances, rtol=1e-9)
    # Drawn from equal parts of the sum, so many of a slot are what its chance says, but for those at its two ends.
    counts = np.bincount(found.draw(1000, np.random.default_rng(seed)), minlength=capacity)
    assert len(counts) == capacity
    assert np.abs(counts - 1000 * chances).max() < 2


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 70), st.data())
def test_what_was_never_filled_is_never_drawn(capacity: int, data: Any) -> None:
    filled = data.draw(st.lists(st.integers(0, capacity - 1), min_size=1, unique=True))
    found = Priorities(capacity, 1.0)
    found.add(np.array(filled))
    found.change(np.array(filled), np.array([data.draw(st.sampled_from([0.0, 1e-9, 1.0, 1e9])) for _ in filled]))
    assert set(found.draw(500, np.random.default_rng(0))) <= set(filled)


def test_what_is_new_is_as_likely_as_the_likeliest_so_far() -> None:
    found = Priorities(4, 1.0)
    found.add(np.array([0, 1]))
    found.change(np.array([0, 1]), np.array([5.0, -20.0]))
    found.change(np.array([1]), np.array([1.0]))
    found.add(np.array([2]))
    np.testing.assert_allclose(found.of_slots, [5, 1, 20, 0], rtol=1e-5)


def test_a_number_at_the_very_end_leads_to_something() -> None:
    """Rounding may carry it beyond all sums; slots that hold nothing lie there."""

    class AlmostOne:
        def random(self, size: int) -> Any:
            return np.full(size, np.nextafter(1.0, 0.0))

    found = Priorities(1000, 0.6)
    found.add(np.arange(700))
    found.change(np.arange(700), np.random.default_rng(0).uniform(0, 1, 700))
    generator: Any = AlmostOne()
    assert (found.draw(64, generator) < 700).all()


def buffer_of(story: Story, capacity: int, exponent: float = 1.0, seed: int = 0) -> ReplayBuffer:
    space = spaces.Dict({"inner": spaces.Dict({"moment": MOMENT})}) if story.nested else MOMENT
    return ReplayBuffer(space, 1, len(story.scripts), capacity, seed, priority_exponent=exponent)


def moments(batch: Any) -> Any:
    return inner(batch.observations)[:, 0].numpy()


def learn(buffer: ReplayBuffer, size: int) -> None:
    """Draw, and say that the error of what began at a moment is a function of that moment."""
    batch = buffer.sample(size, CPU, correction=0.5)
    assert batch.slots is not None
    buffer.prioritize(batch.slots, error_at(moments(batch)))


def error_at(moment: Any) -> Any:
    return 0.5 + moment % 7


@settings(deadline=None, max_examples=30)
@given(STORIES, st.integers(3, 80))
def test_an_overwritten_slot_is_as_likely_as_anything_new(story: Story, capacity: int) -> None:
    buffer, rows = buffer_of(story, capacity), []
    for rollout in story.told():
        buffer.add(rollout)
        rows += rows_of(rollout)
        batch = buffer.sample(200, CPU)
        assert set(rows_in(batch)) <= set(rows[-capacity:])
        learn(buffer, 20)
    # All alike again: whatever was learnt of the slots, what is in them now is as likely as the likeliest.
    for rollout in story.told():
        buffer.add(rollout)
        rows += rows_of(rollout)
    if len(story.told()) and sum(rollout.transitions for rollout in story.told()) >= capacity:
        assert set(rows_in(buffer.sample(50 * len(buffer), CPU))) == set(rows[-capacity:])


def test_weights_make_good_for_unequal_chances() -> None:
    story = Story([((3, "terminated"),), ((5, "truncated"),)], SAME_STEP, [(15, False)])
    buffer = buffer_of(story, 100)
    for rollout in story.told():
        buffer.add(rollout)
    everything = buffer.sample(600, CPU)
    assert everything.slots is not None
    buffer.prioritize(everything.slots, error_at(moments(everything)))
    errors = error_at(inner(everything.observations)[:, 0].numpy())
    (plain,) = [buffer.sample(30_000, CPU, correction=0.0).weights]
    assert plain is not None
    assert torch.equal(plain, torch.ones(30_000))
    batch = buffer.sample(30_000, CPU, correction=1.0)
    assert batch.weights is not None
    assert batch.weights.max() == 1
    torch.testing.assert_close(
        batch.weights, torch.from_numpy(errors.min() / error_at(moments(batch))).float(), rtol=1e-4, atol=0
    )
    # A weighted mean of anything is that of a buffer that draws all alike.
    weights = batch.weights.double().numpy()
    uniform = np.mean([row[0] for row in set(rows_in(everything))])
    assert np.sum(weights * moments(batch)) / weights.sum() == pytest.approx(uniform, rel=0.02)


def test_several_steps_follow_what_was_drawn() -> None:
    story = Story([((4, "terminated"),)], SAME_STEP, [(30, False)])
    buffer = buffer_of(story, 20)
    for rollout in story.told():
        buffer.add(rollout)
    learn(buffer, 20)
    for row, discount in zip(
        rows_in(batch := buffer.sample(100, CPU, steps=3, gamma=0.5)), batch.discounts, strict=True
    ):
        steps = int(row[4] - row[0])
        assert discount == 0.5**steps
        assert row[3] == sum(0.5**i * (int(row[0]) % 10 + 1 + i) ** 2 for i in range(steps))


@settings(deadline=None, max_examples=30)
@given(STORIES, STORIES.map(lambda story: story.rollouts), st.integers(3, 80), st.integers(0, 50))
def test_a_loaded_buffer_draws_the_same(story: Story, later: list[Any], capacity: int, more: int) -> None:
    """Also one with more room, as long as none of it was needed before."""
    rollouts = Story(story.scripts, story.mode, story.rollouts + later, story.nested).told()
    saved = buffer_of(story, capacity, 0.6)
    for rollout in rollouts[: len(story.rollouts)]:
        saved.add(rollout)
        learn(saved, 10)
    room = capacity + (more if len(saved) < capacity else 0)
    loaded = buffer_of(story, room, 0.6, seed=1)
    loaded.load_tensors({name: tensor.clone() for name, tensor in saved.tensors().items()})
    if room == capacity:
        for rollout in rollouts[len(story.rollouts) :]:
            for buffer in (saved, loaded):
                buffer.add(rollout)
                learn(buffer, 10)
    ours, theirs = (buffer.sample(30, CPU, correction=0.4) for buffer in (saved, loaded))
    assert rows_in(ours) == rows_in(theirs)
    assert ours.weights is not None
    assert theirs.weights is not None
    assert torch.equal(ours.weights, theirs.weights)


def test_a_full_buffer_goes_on_with_more_room_and_its_priorities() -> None:
    story = Story([((3, "terminated"),), ((5, "truncated"),)], SAME_STEP, [(25, False)])
    saved, larger = buffer_of(story, 30), buffer_of(story, 64)
    for rollout in story.told():
        saved.add(rollout)
    for _ in range(20):
        learn(saved, 30)
    larger.load_tensors({name: tensor.clone() for name, tensor in saved.tensors().items()})
    batch = larger.sample(20_000, CPU)
    found, counts = np.unique(moments(batch), return_counts=True)
    assert len(found) == 30
    chances = error_at(found) / error_at(found).sum()
    np.testing.assert_allclose(counts, 20_000 * chances, atol=2)


@pytest.mark.parametrize("poison", [-1.0, float("nan"), float("inf")])
def test_priorities_that_are_none_are_refused(poison: float) -> None:
    story = Story([((3, "terminated"),)], SAME_STEP, [(10, False)])
    saved = buffer_of(story, 30)
    for rollout in story.told():
        saved.add(rollout)
    tensors = {name: tensor.clone() for name, tensor in saved.tensors().items()}
    tensors["priorities"][3] = poison
    with pytest.raises(ValueError, match="saved buffer's priorities"):
        buffer_of(story, 30).load_tensors(tensors)


def test_those_that_are_ready_first_spoil_nobody_elses_priorities() -> None:
    """Environment 0 is so slow that the others fill the buffer between two of its steps."""
    buffer, count = ReplayBuffer(MOMENT, 1, 3, 7, seed=0, priority_exponent=1.0), np.zeros(3)
    random = np.random.default_rng(0)
    for _ in range(100):
        ready = random.random(3) < [0.1, 0.9, 0.5]
        before = np.stack([1000.0 * np.arange(3), count], -1)
        count = count + ready
        rollout = fabricated(before, np.stack([1000.0 * np.arange(3), count], -1), ended=False)
        rollout.valid[:] = ready
        buffer.add(rollout)
        if len(buffer):
            for row in rows_in(buffer.sample(20, CPU)):
                assert row[5] == row[1] + 1
            learn(buffer, 5)
