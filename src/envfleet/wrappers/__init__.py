"""Wrappers that work on a whole batch of environments at once.

Each is a `gymnasium.vector.VectorWrapper` for any vector environment that states its
`metadata["autoreset_mode"]`, and each is correct in all three autoreset modes and with masked resets:

- `BoundedAction` lets policies act in units where -1 to 1 spans the bounds of the action space.
- `FlattenSpaces` shows nested observations as one Box and takes nested actions as one MultiDiscrete or Box.
- `FrameStackObservation` returns the last few observations instead of the last one.
- `NormalizeObservation` scales observations to mean 0 and variance 1.
- `NormalizeReward` scales rewards so that the discounted return has variance 1.
- `RecordEpisodeStatistics` reports return, length and duration of finished episodes.
"""

from envfleet.wrappers.bounded_action import BoundedAction
from envfleet.wrappers.flat_spaces import FlatActions, FlatObservations
from envfleet.wrappers.flatten_spaces import FlattenSpaces
from envfleet.wrappers.frame_stack_observation import FrameStackObservation
from envfleet.wrappers.normalize_observation import NormalizeObservation
from envfleet.wrappers.normalize_reward import NormalizeReward
from envfleet.wrappers.record_episode_statistics import RecordEpisodeStatistics

__all__ = [
    "BoundedAction",
    "FlatActions",
    "FlatObservations",
    "FlattenSpaces",
    "FrameStackObservation",
    "NormalizeObservation",
    "NormalizeReward",
    "RecordEpisodeStatistics",
]
