"""docs/errors.md: its messages are those of the source, all that users can cause; some of each kind are raised."""

from __future__ import annotations

import builtins
import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import MESSAGES, PAGE, Raised, parts, plain, quotes, raised, texts_of_the_source
from gymnasium import spaces

import envfleet
from envfleet import make_vec, normal, uniform
from envfleet.cli import main
from envfleet.train import A2CConfig, DQNConfig, SACConfig, evaluate, load_agent, plot_runs, showcase, train

# Not messages by themselves: what catches these puts their texts into messages of its own, which the index has.
PARTS_OF_OTHERS = {
    "AttributeError": "as Python says it",
    "DamagedRunError": "… is damaged: …",
    "DivergedError": "why an environment was not brought back, in the error of the worker that was lost",
    "ForkServerError": "another way to start workers is taken",
    "LayoutError": "returned from … what does not fit its spaces; The actions do not fit the action space",
    "LostWorker": "worker … was killed by …, and others",
    "SnapshotError": "The state cannot be put back into environment …",
    "TrialLostError": "what make_vec's plan says",
    "TrialRaisedError": "what make_vec's plan says",
    "UnknownStartError": "as DivergedError",
    "UnsupportedError": "backend=… does not support …",
    "damage": "… is damaged: …",
    "self._damage": "… is damaged: …",
    "self._no_attribute": "A native environment has …; it has …",
    "self._recovery.error": "was ended: … after … s (start_timeout)",
}
# The same of single texts; and what no user can cause.
PARTS = {
    "Write make_vec(..., num_envs=8, backend=…).": "… must be a positive integer, got …",
    "The saved": "… is damaged: …",
    "it lacks …": "… is damaged: …",
    "its planned episodes are none": "The state cannot be put back into environment …",
    "it is not known which parameters it had": "as DivergedError",
    "it was not ready after": "as ForkServerError",
    "it ended while it imported": "as ForkServerError",
    "a row of metrics needs a": "training itself writes these rows",
    '"step" has to be': "training itself writes these rows",
    "is nothing that JSON can hold": "an error in our own code",
    "its lock changes hands all the time": "… is in use",
}
NO_USERS_OF_THESE = ("testing/",)  # the suite's own environments raise what it expects
WITHIN_OTHERS = {"native/own/library.py": "… describes an environment that cannot be"}


def is_part_of_another(place: Raised) -> bool:
    """Whether what is raised there is not what a user reads."""
    if place.kind == "UnsupportedError" and place.text.endswith("."):
        return False  # a sentence
    in_others = WITHIN_OTHERS.get(place.module) is not None and place.kind == "ValueError"
    return place.kind in PARTS_OF_OTHERS or in_others or any(part in place.text for part in PARTS)


def test_all_messages_are_in_the_source() -> None:
    """All of their parts; together in one text, or put together from several."""
    texts = texts_of_the_source()
    for message in MESSAGES:
        assert parts(message), f"nothing of it is always the same: {message}"
        if not any(all(part in text for part in parts(message)) for text in texts):
            for part in parts(message):
                assert any(part in text for text in texts), f"{part}, of {message}"


def test_no_message_is_there_twice() -> None:
    assert len(MESSAGES) == len(set(MESSAGES))


def test_every_message_that_users_can_cause_is_in_the_index() -> None:
    places = [place for place in raised() if not place.module.startswith(NO_USERS_OF_THESE)]
    assert len(places) > 500
    missing = [
        f"{place.module}: {place.kind}: {place.text}"
        for place in places
        if not is_part_of_another(place) and not any(quotes(message, place.text) for message in MESSAGES)
    ]
    assert not missing, "give docs/errors.md a line for each:\n" + "\n".join(missing)


def test_what_is_left_out_is_still_there() -> None:
    assert PARTS_OF_OTHERS.keys() <= {place.kind for place in raised()}
    assert [part for part in PARTS if not any(part in place.text for place in raised())] == []


def test_every_entry_says_what_to_do() -> None:
    for entry in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        body = entry.partition("\n")[2].partition("\n## ")[0].partition("\nOthers, in short")[0]
        assert len(body.partition("**Cure.**")[2].split()) > 1, entry
    for row in re.findall(r"^\| `.*$", PAGE, flags=re.MULTILINE):
        message, what_to_do = row.strip("| ").split("` | ")
        assert len(what_to_do.split()) > 1, message


def test_every_error_of_ours_that_can_be_caught_is_in_the_index() -> None:
    abstract = {"FleetError", "WorkerError", "CustomSpaceError", "ClosedEnvironmentError"}
    for name in envfleet.errors.__all__:
        assert name in abstract or f"`{name}`" in PAGE, name


class Broken(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole that does what an action asks for: 0 raises, 1 ends its process."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        if action == 0:
            raise RuntimeError("as asked")
        os._exit(3)


class Blind(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose observations have another shape than its space."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), 0.0, False, False, {}


def stepped(env: Any, actions: Any, backend: str = "sync", **arguments: Any) -> None:
    with make_vec(env, 2, backend, vector_kwargs=arguments) as envs:
        envs.reset(seed=0)
        envs.step(actions)


def step_after_a_failure() -> None:
    with make_vec(Broken, 2, "sync") as envs:
        envs.reset(seed=0)
        with contextlib.suppress(RuntimeError):
            envs.step([0, 0])
        envs.step([0, 0])


def step_after_the_end() -> None:
    with make_vec("CartPole-v1", 1, "sync", autoreset_mode="DISABLED") as envs:
        envs.reset(seed=0)
        for _ in range(500):
            envs.step([0])


def twice_async() -> None:
    with make_vec("CartPole-v1", 2, "sync") as envs:
        envs.reset(seed=0)
        envs.step_async([0, 0])
        envs.reset()


def wait_for_nothing() -> None:
    with make_vec("CartPole-v1", 2, "sync") as envs:
        envs.reset(seed=0)
        envs.step_wait()


def different_spaces() -> None:
    envfleet.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1"), lambda: gymnasium.make("Pendulum-v1")])


def no_environment() -> Any:
    gymnasium.make("CartPole-v1")


class TextSpace(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole that says what it shows in words."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(gymnasium.make("CartPole-v1", **arguments))
        self.observation_space = spaces.Text(5)


TINY: dict[str, Any] = {"num_envs": 2, "total_steps": 64, "backend": "sync", "hidden_sizes": (4,)}

RAISED: dict[str, Callable[[], Any]] = {
    "There is no environment …": lambda: make_vec("CartPole-v77"),
    "… is an environment that is made already, and several copies are needed": lambda: make_vec(
        gymnasium.make("CartPole-v1"),  # type: ignore[arg-type]
        2,
    ),
    "… must make a gymnasium.Env, but it returned …": lambda: make_vec(no_environment, 2),
    "… is a class without step() and reset(), so no gymnasium.Env": lambda: make_vec(dict, 2),  # type: ignore[arg-type]
    "There is no file … in …": lambda: make_vec("not_there.py:Env"),
    "There is no module … to import for …": lambda: make_vec("not_there_at_all:Env-v0"),
    "Neither make_vec nor the constructor of … has an argument …": lambda: make_vec("CartPole-v1", 2, num_worker=1),
    "vector_kwargs has no argument …; it takes …": lambda: make_vec("CartPole-v1", 2, vector_kwargs={"nothing": 1}),
    "backend=… and vectorization_mode=… contradict each other.": lambda: make_vec(
        "CartPole-v1", 2, "sync", vectorization_mode="async"
    ),
    "first_ready=… and batch_size=… contradict each other": lambda: make_vec(
        "CartPole-v1", 4, "sync", first_ready=2, batch_size=3
    ),
    "first_ready must be between 1 and the number of environments, …, got …": lambda: make_vec(
        "CartPole-v1", 4, "sync", first_ready=9
    ),
    "env_fns[…] must be a function that makes an environment, got …": lambda: envfleet.SyncVectorEnv(["CartPole-v1"]),  # type: ignore[list-item]
    "Environment … has the observation space …, the first one …": different_spaces,
    "…, which has not been written in C++": lambda: make_vec(Blind, 2, "native"),
    "set_state needs a state of … from get_state(), got …": lambda: make_vec("CartPole-v1", 1, "native").set_state(
        0, 3
    ),  # type: ignore[arg-type]
    "Call reset() before the next step.": step_after_a_failure,
    "The episodes of environments … have ended and autoreset is disabled.": step_after_the_end,
    "…: expected shape …, got …": lambda: stepped("CartPole-v1", [0, 0, 0]),
    "…() while a … is under way: collect it with …_wait() first.": twice_async,
    "…_wait() without …_async(): …": wait_for_nothing,
    "seed must have one entry per environment: expected …, got …": lambda: make_vec("CartPole-v1", 2).reset(seed=[1]),
    "Environment … (in …) raised … in …: …": lambda: stepped(Broken, [0, 0]),
    "Environment … (in …) returned from … what does not fit its spaces.": lambda: stepped(Blind, [0, 0]),
    "worker … ended with exit code … while environment … was at work": lambda: stepped(
        Broken, [1, 1], "process", caller_works=False
    ),
    "… has no parameter …; its constructor accepts …": lambda: make_vec(
        "CartPole-v1", 2, randomize={"gravitation": uniform(1, 2)}
    ),
    "… cannot be both randomised and given as a constructor argument.": lambda: make_vec(
        "LunarLander-v3", 2, randomize={"gravity": normal(-10, 1)}, gravity=-9
    ),
    "uniform() needs low <= high, got low=… and high=…; swap them?": lambda: uniform(2, 1),
    "randomize[…] needs uniform(), loguniform(), normal() or choice(), got …": lambda: make_vec(
        "LunarLander-v3",
        2,
        randomize={"gravity": -9},  # type: ignore[dict-item]
    ),
    "… needs continuous actions (…), got …; use …": lambda: train(
        SACConfig("CartPole-v1", learning_starts=9, **TINY), progress=False
    ),
    "DQN needs actions that are one choice, Discrete, got …": lambda: train(
        DQNConfig("Pendulum-v1", learning_starts=9, **TINY), progress=False
    ),
    "Observations must be Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these": lambda: train(
        A2CConfig(TextSpace, **TINY), progress=False
    ),
    "total_steps=… is less than one rollout of … environments x … steps": lambda: train(
        A2CConfig("CartPole-v1", **TINY), progress=False
    ),
    "… is not the folder of a run: it has no config.json.": lambda: load_agent("."),
    "a video's path must end in .mp4 or .gif, got …": lambda: showcase("run", path="film.avi", progress=False),
    "nothing to draw: …": lambda: plot_runs("run", metric="success"),
}
COMMANDS = {
    "there is no command …": ["trian"],
    "cannot read …: expected NAME=VALUE, such as gravity=-5 or enable_wind=True.": [
        *("train", "CartPole-v1", "--env-kwargs", "gravity"),
    ],
    "… is given twice; put everything behind one: … FIRST SECOND.": [
        *("train", "CartPole-v1", "--env-kwargs", "a=1", "--env-kwargs", "b=2"),
    ],
    "expected a whole number, such as 300000, 300_000 or 3e5, got …": ["train", "CartPole-v1", "--total-steps", "few"],
}


@pytest.fixture(scope="module")
def folder_with_a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    config = A2CConfig("CartPole-v1", **{**TINY, "total_steps": 512}, rollout_steps=128)
    train(config, run_dir=folder / "run", progress=False, loggers=())
    return folder


@pytest.fixture
def _in_it(folder_with_a_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder_with_a_run)


def matches(message: str, said: str) -> bool:
    """Whether a message is one of this entry of the index."""
    pattern = ".*".join(re.escape(part) for part in parts(message))
    return re.search(pattern, plain(said), re.IGNORECASE) is not None


@pytest.mark.usefixtures("_in_it", "box2d")
@pytest.mark.parametrize("message", RAISED)
def test_what_is_raised_is_what_the_index_says(message: str) -> None:
    assert message in MESSAGES
    with pytest.raises(Exception) as caught:  # noqa: PT011  which one is what the index says
        RAISED[message]()
    assert matches(message, str(caught.value)), str(caught.value)
    entry = PAGE.partition(f"### `{message}`\n")[2].partition("\n### ")[0]
    named = re.findall(r"`(\w+Error|ResetNeeded)`", entry.partition("**C")[0])
    for name in named:
        kind = getattr(envfleet, name, None) or getattr(builtins, name)
        assert isinstance(caught.value, kind), f"{type(caught.value)} is no {name}"


@pytest.mark.usefixtures("_in_it")
@pytest.mark.parametrize("message", COMMANDS)
def test_what_a_command_says_is_what_the_index_says(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in MESSAGES
    with contextlib.suppress(SystemExit):
        assert main(COMMANDS[message]) != 0
    captured = capsys.readouterr()
    said = re.sub("[│╭╮╰╯─]", " ", captured.err + captured.out)
    assert matches(message, said), said


def test_a_third_of_the_entries_with_a_heading_is_raised() -> None:
    assert len(RAISED) + len(COMMANDS) > len(re.findall("^### ", PAGE, re.MULTILINE)) / 3


def test_evaluations_of_damaged_runs_are_refused(folder_with_a_run: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in (folder_with_a_run / "run").iterdir():
        if path.is_file():
            (damaged / path.name).write_bytes(path.read_bytes())
    (damaged / "actor.safetensors").write_bytes(b"nothing")
    with pytest.raises(envfleet.DamagedRunError) as caught:
        evaluate(damaged, episodes=1)
    assert "is damaged" in str(caught.value)
