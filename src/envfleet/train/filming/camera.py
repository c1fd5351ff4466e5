"""What happens on a stage as the frames of a film, and as one picture of the best episode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

from envfleet.rendering import Frame, check_frame
from envfleet.train.agent import Agent
from envfleet.train.filming.canvas import Canvas
from envfleet.train.filming.frames import enlarged, enlargement
from envfleet.train.filming.stage import Episode, Stage
from envfleet.train.filming.stills import Exposures, picture_of
from envfleet.train.running.progress_line import ProgressLine
from envfleet.train.running.reporting import score

_HOLD_SECONDS = 1.0
"""How long the end of an episode is shown, to read its return."""


@final
class Camera:
    """Films a stage.

    Args:
        stage: its environments have render_mode="rgb_array".
        caption: whether to write the episode, the step and the return below the picture.
        room: the width and the height that the film must fit into.
        least_fps: frames per second that are enough. Where the environment makes twice as many steps per second, or
            three times, only every second or third of them is drawn.
        line: told how far it is.
    """

    def __init__(
        self, stage: Stage, caption: bool, room: tuple[float, float], least_fps: float, line: ProgressLine
    ) -> None:
        self._stage, self._caption, self._room, self._line = stage, caption, room, line
        self._stride = max(1, int(stage.fps / least_fps))
        self._canvas: Canvas | None = None
        self._shape: tuple[int, ...] = ()
        self._exposures: dict[int, Exposures] = {}
        self._shown_ended: set[int] = set()
        self._best: Episode | None = None

    @property
    def fps(self) -> float:
        """Frames per second of the film."""
        return self._stage.fps / self._stride

    def film(self, agent: Agent, seed: int, deterministic: bool) -> Iterator[Frame]:
        """The frames of all episodes, the first and the last of each included; all in the same array."""
        for group in self._stage.play(agent, seed, deterministic):
            for place, episode in enumerate(group):
                self._look_at(place, episode)
            assert self._canvas is not None
            over = all(episode.over for episode in group)
            if over or max(episode.length for episode in group) % self._stride == 0:
                self._line.show(self._state(group))
                yield self._canvas.picture
            if over:
                self._keep_best(group)
                for _ in range(round(_HOLD_SECONDS * self.fps)):
                    yield self._canvas.picture
        self._line.show("writing the film", now=True)

    def still(self) -> Frame:
        """The best episode in one picture, when all have been filmed."""
        assert self._best is not None
        times = enlargement(*self._shape[:2])
        return picture_of([enlarged(frame, times) for frame in self._exposures[self._best.number].frames()])

    def _look_at(self, place: int, episode: Episode) -> None:
        """Draw what has changed, if it is time."""
        if episode.number in self._shown_ended or (episode.length % self._stride and not episode.over):
            return
        frame = self._render(episode.env)
        if self._canvas is None:
            self._canvas = Canvas(frame.shape, self._stage.at_once, self._caption, self._room)
            self._shape = frame.shape
        elif frame.shape != self._shape:
            raise ValueError(
                f"all frames of a video must have one size, but {self._stage.env_id} drew {self._shape} at first and "
                f"{frame.shape} in episode {episode.number}, step {episode.length}."
            )
        self._exposures.setdefault(episode.number, Exposures()).add(frame)
        self._canvas.draw(place, frame, self._texts(episode), episode.over, darker=self._stage.at_once > 1)
        if episode.over:
            self._shown_ended.add(episode.number)

    def _keep_best(self, group: Sequence[Episode]) -> None:
        rivals = [*group] if self._best is None else [self._best, *group]
        best = self._best = max(rivals, key=lambda episode: episode.score)  # of equals the first
        self._exposures = {best.number: self._exposures[best.number]}

    def _texts(self, episode: Episode) -> list[str]:
        """What a caption says, from the longest version to the shortest."""
        number, total = f"{episode.number + 1}/{self._stage.episodes}", score(episode.score)
        step = f"{'ended at ' if episode.over else ''}step {episode.length}"
        return [
            f"episode {number}    {step}    return {total}",
            f"{number}   {step}   return {total}",
            f"{step}   return {total}",
            f"{episode.length}   {total}",
            total,
        ]

    def _state(self, group: Sequence[Episode]) -> str:
        step = max(episode.length for episode in group)
        if self._stage.at_once == 1:
            return f"filming episode {group[0].number + 1} of {self._stage.episodes}: step {step:,}"
        ended = sum(episode.over for episode in group)
        return f"filming {len(group)} episodes: step {step:,}, {ended} ended"

    def _render(self, env: Any) -> Frame:
        try:
            frame: Frame = env.render()
        except Exception as error:
            said = f"{self._stage.env_id} could not be drawn: {type(error).__name__}: {error}."
            if "mujoco" in type(env.unwrapped).__module__:
                hint = "Where there is no screen, set the environment variable MUJOCO_GL=egl (or osmesa) beforehand."
                raise OSError(f"{said} {hint}") from error
            raise RuntimeError(said) from error
        check_frame(f"what {self._stage.env_id}'s render() returns", frame)
        return frame
