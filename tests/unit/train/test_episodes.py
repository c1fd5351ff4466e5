from __future__ import annotations

import pytest
from gymnasium.vector import AutoresetMode
from tiny_envs import EXAMPLE, NEXT_STEP, SAME_STEP, counting_policy, scripted_fleet

from envfleet.train.collecting import Episode, EpisodeTracker, Rollout, begin, collect

MODES = pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP], ids=["NEXT_STEP", "SAME_STEP"])
SCRIPTED = [Episode(float(sum(step**2 for step in range(1, length + 1))), length) for length, _ in EXAMPLE]


def rollouts(mode: AutoresetMode, lengths: list[int]) -> list[Rollout]:
    with scripted_fleet(mode, (EXAMPLE,)) as envs:
        position, found = begin(envs, 0), []
        for steps in lengths:
            found.append(collect(envs, counting_policy(1), steps, position))
            position = found[-1].end
    return found


@MODES
@pytest.mark.parametrize("lengths", [[40], [1] * 40, [2, 5, 33]])
def test_returns_and_lengths_of_whole_episodes(mode: AutoresetMode, lengths: list[int]) -> None:
    tracker = EpisodeTracker(1)
    episodes = [episode for rollout in rollouts(mode, lengths) for episode in tracker.finished(rollout)]
    assert len(episodes) >= 10
    assert episodes == (SCRIPTED * 4)[: len(episodes)]


def test_what_stands_in_a_reset_row_counts_nothing() -> None:
    (rollout,) = rollouts(NEXT_STEP, [20])
    before = EpisodeTracker(1).finished(rollout)
    rollout.rewards[~rollout.valid] = 1e6
    assert EpisodeTracker(1).finished(rollout) == before


def test_episodes_come_in_the_order_of_their_end() -> None:
    with scripted_fleet(SAME_STEP, (((4, "truncated"),), ((3, "terminated"),))) as envs:
        rollout = collect(envs, counting_policy(2), 8, begin(envs, 0))
    assert [episode.length for episode in EpisodeTracker(2).finished(rollout)] == [3, 4, 3, 4]


def test_it_can_go_on_from_its_state() -> None:
    first, second = rollouts(SAME_STEP, [2, 10])
    tracker, other = EpisodeTracker(1), EpisodeTracker(1)
    assert tracker.finished(first) == []
    other.load_state(tracker.state())
    assert other.finished(second) == tracker.finished(second) == (SCRIPTED * 2)[:5]


def test_a_restart_forgets_the_episodes_under_way() -> None:
    first, second = rollouts(SAME_STEP, [2, 1])
    tracker = EpisodeTracker(1)
    tracker.finished(first)
    tracker.restart()
    assert tracker.finished(second) == [Episode(9.0, 1)]
