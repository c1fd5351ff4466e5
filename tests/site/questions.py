"""What a newcomer asks, what he types into the search of the site, and the page that answers."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """A question of a newcomer.

    Attributes:
        asked: As one would ask a colleague.
        typed: As one types it into a search.
        page: The page that must be among the first results.
    """

    asked: str
    typed: str
    page: str


QUESTIONS = [
    Question("How do I install it?", "install", "start.html"),
    Question("How do I train on my own environment?", "train own environment", "own_environment.html"),
    Question("How do I go on with a run that I stopped?", "resume training", "training.html"),
    Question("Which arguments does make_vec take?", "make_vec arguments", "make_vec.html"),
    Question("My environment crashes now and then. What can I do?", "environment crashes", "failures.html"),
    Question("How do I randomise gravity for each episode?", "domain randomisation", "randomization.html"),
    Question("How do I use it with Stable-Baselines3?", "stable baselines3", "coming_from/sb3.html"),
    Question("My agent does not learn. Where do I look?", "does not learn", "curves.html"),
    Question("How do I save an agent and load it again?", "save load agent", "tutorials/saving.html"),
    Question("How do I make a video of my agent?", "video film agent", "tutorials/showcasing.html"),
    Question("What does entropy in the curves tell me?", "entropy curve", "curves.html"),
    Question("How do I export a policy to ONNX?", "onnx", "export.html"),
    Question("What does this message mean?", "worker ended with exit code", "errors.html"),
    Question("And this one?", "several copies are needed", "errors.html"),
    Question("And this rare one?", "buffer_size must be at least num_envs", "errors.html"),
    Question("Which settings does PPO have, and when do I change them?", "PPO settings", "ppo.html"),
    Question("How does GAE work?", "gae advantages", "tutorials/advantages.html"),
]
