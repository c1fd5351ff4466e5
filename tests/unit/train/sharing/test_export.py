"""`export`: a policy's file, in the library that it is for, acts as the agent does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from selection import left_to_test_all
from small_runs import changed
from tiny_envs import ACTION_SPACES, ANY_SPACE, NESTED_ACTION_SPACES, OBSERVATION_SPACES
from torch import Tensor, nn

from envfleet.cli import main
from envfleet.train import Agent, MemoryActor, Networks, TrainConfig, export, train
from envfleet.train.algorithms.registry import config_class, learner_class
from envfleet.train.environments import make_task
from envfleet.train.networks.distributions import distribution_for
from envfleet.train.networks.memory import GRUMemory
from envfleet.train.networks.networks import Actor, observe
from envfleet.train.observations import to_tensors
from envfleet.wrappers._leaves import flatten, named_leaves, unflatten

# TorchScript is going out of use, and torch says so where it is loaded.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")

CPU = torch.device("cpu")
COUNT = 1000
SUFFIXES = {"onnx": ".onnx", "torch": ".pt2", "torchscript": ".pt"}


def observations_of(space: Space[Any], count: int = COUNT, seed: int = 0) -> Any:
    space.seed(seed)
    rows = [flatten(space, space.sample()) for _ in range(count)]
    dtypes = [leaf.dtype for _, leaf in named_leaves(space)]
    return unflatten(
        space, [np.array(column, dtype) for column, dtype in zip(zip(*rows, strict=True), dtypes, strict=True)]
    )


def agent_for(observations: Space[Any], actions: Space[Any], config: TrainConfig, networks: Any = None) -> Agent:
    task = make_task(config, observations, actions, networks)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        actor = learner_class(config).actor_for(config, task)
        for parameter in actor.parameters():
            parameter.data.add_(0.1 * torch.randn_like(parameter))
    observe(actor, to_tensors(observations_of(observations, 50, seed=1), CPU))
    return Agent(config, actor.eval(), observations, actions, CPU)


def config_of(algo: str) -> TrainConfig:
    return config_class(algo)(ANY_SPACE, num_envs=2, hidden_sizes=(8,), device="cpu", normalize_observations=True)


def runs(path: Path, agent: Agent, format_: str) -> Any:
    """What another program would do with the file: from batches of observations to lists of arrays."""

    def run(observations: Any, *more: Any) -> list[Any]:
        leaves = [*flatten(agent.observation_space, observations), *more]
        if format_ == "onnx":
            import onnxruntime

            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            names = [entry.name for entry in session.get_inputs()]
            return session.run(None, dict(zip(names, leaves, strict=True)))
        load = torch.jit.load if format_ == "torchscript" else lambda file: torch.export.load(file).module()
        return [tensor.numpy() for tensor in load(str(path))(*map(torch.from_numpy, leaves))]

    return run


def check(agent: Agent, path: Path, format_: Any) -> None:
    made = export(agent, path, format=format_)
    assert made.difference <= 1e-6
    assert made.other_choices == 0
    observations = observations_of(agent.observation_space)
    found = runs(path, agent, format_)(observations)
    wanted = flatten(agent.action_space, agent.act(observations))
    for got, expected in zip(found, wanted, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)
    assert not all((expected == expected[0]).all() for expected in wanted), "an agent that always does the same"


EXPORTED = pytest.mark.parametrize("format_", ["torchscript", "torch", "onnx"])
ONNX_TAKES_SECONDS = left_to_test_all(lambda given: given["format_"] != "torchscript")


@EXPORTED
@ONNX_TAKES_SECONDS
@pytest.mark.parametrize("name", OBSERVATION_SPACES)
def test_every_kind_of_observation(name: str, format_: str, tmp_path: Path) -> None:
    agent = agent_for(OBSERVATION_SPACES[name], ACTION_SPACES["box"], config_of("a2c"))
    check(agent, tmp_path / f"p{SUFFIXES[format_]}", format_)


@EXPORTED
@ONNX_TAKES_SECONDS
@pytest.mark.parametrize("algo", ["ppo", "sac"])
@pytest.mark.parametrize("name", [*ACTION_SPACES, *NESTED_ACTION_SPACES])
def test_every_kind_of_action(name: str, algo: str, format_: str, tmp_path: Path) -> None:
    space = {**ACTION_SPACES, **NESTED_ACTION_SPACES}[name]
    if algo == "sac" and not all(leaf.dtype.kind == "f" for _, leaf in named_leaves(space)):
        with pytest.raises(TypeError, match="SAC needs continuous actions"):
            agent_for(OBSERVATION_SPACES["vector"], space, config_of(algo))
        return
    agent = agent_for(OBSERVATION_SPACES["vector"], space, config_of(algo))
    check(agent, tmp_path / f"p{SUFFIXES[format_]}", format_)


@pytest.mark.parametrize(
    ("format_", "algo", "observations", "actions"),
    [
        ("onnx", "ppo", "tuple", "both"),
        ("onnx", "a2c", "image, channels last", "multi-discrete"),
        ("onnx", "sac", "matrix", "box, 2-d, float64"),
        ("torch", "ppo", "dict", "both"),
        ("torch", "sac", "vector", "box"),
        ("torchscript", "dqn", "dict", "discrete"),
        ("torchscript", "td3", "vector", "box"),
        ("onnx", "dqn", "vector", "discrete"),
        ("onnx", "td3", "matrix", "box, 2-d, float64"),
    ],
)
def test_some_of_each_in_the_slower_formats(
    format_: str, algo: str, observations: str, actions: str, tmp_path: Path
) -> None:
    space = {**ACTION_SPACES, **NESTED_ACTION_SPACES}[actions]
    agent = agent_for(OBSERVATION_SPACES[observations], space, config_of(algo))
    check(agent, tmp_path / f"p{SUFFIXES[format_]}", format_)


def test_a_run_of_the_command_line_keeps_bounds_and_normalisation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    result = train(changed("sac", normalize_observations=True), run_dir=run, progress=False, loggers=())
    assert main(["export", str(run), "--onnx"]) == 0
    said = capsys.readouterr().out
    assert f"policy: {run / 'policy.onnx'}\ninputs: observation\noutputs: action\n" in said
    assert "checked on 1,000 observations" in said
    observations = observations_of(result.agent.observation_space)
    (found,) = runs(run / "policy.onnx", result.agent, "onnx")(observations)
    np.testing.assert_allclose(found, result.agent.act(observations), rtol=0, atol=1e-6)
    box = result.agent.action_space
    assert isinstance(box, spaces.Box)
    assert (found >= box.low).all()
    assert (found <= box.high).all()
    import onnx

    told = {entry.key: entry.value for entry in onnx.load(run / "policy.onnx").metadata_props}
    assert (told["env_id"], told["algo"]) == (ANY_SPACE, "sac")


@pytest.mark.parametrize("format_", ["torchscript", "onnx"])
def test_a_policy_that_remembers_takes_and_gives_its_state(format_: str, tmp_path: Path) -> None:
    space, actions = OBSERVATION_SPACES["vector"], ACTION_SPACES["multi-binary"]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        body = nn.Linear(6, 3)
        actor = MemoryActor(GRUMemory(space, 6), Actor(body, distribution_for(actions)), 6)
    agent = Agent(config_of("ppo"), actor.eval(), space, actions, CPU)
    path = tmp_path / f"p{SUFFIXES[format_]}"
    made = export(agent, path, format=format_)  # type: ignore[arg-type]
    assert made.inputs == ("observation", "state", "resets")
    assert made.outputs == ("action", "next_state")
    run = runs(path, agent, format_)
    state, resets = np.zeros((5, 6), np.float32), np.ones(5, np.bool_)
    for step in range(4):
        observations = observations_of(space, 5, seed=step)
        found, state = run(observations, state, resets)
        np.testing.assert_array_equal(found, agent.act(observations, resets=resets))
        resets = np.array([step == 1, False, False, False, False])


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, inputs), nn.Linear(inputs, outputs)
        self.dropout = nn.Dropout(0.5)

    def forward(self, observations: Tensor) -> Tensor:
        out: Tensor = self.last(observations + self.dropout(torch.relu(self.first(observations))))
        return out


class Undecided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, observations: Tensor) -> Tensor:
        out: Tensor = self.layer(observations)
        return -out if float(observations.detach().sum()) > 0 else out


@pytest.mark.parametrize("format_", ["torchscript", "torch", "onnx"])
def test_a_network_of_the_users_own(format_: str, tmp_path: Path) -> None:
    networks = Networks(actor=Residual(3, 2), critic=Residual(3, 1))
    agent = agent_for(OBSERVATION_SPACES["vector"], ACTION_SPACES["box"], config_of("ppo"), networks)
    check(agent, tmp_path / f"p{SUFFIXES[format_]}", format_)


@pytest.mark.parametrize(
    ("format_", "words"),
    [("torch", "cannot be written as torch: .* must do without Python"), ("torchscript", "not act as the agent does")],
)
def test_a_network_that_cannot_be_written_is_refused_with_the_reason(format_: str, words: str, tmp_path: Path) -> None:
    networks = Networks(actor=Undecided(), critic=Residual(3, 1))
    agent = agent_for(OBSERVATION_SPACES["vector"], ACTION_SPACES["box"], config_of("ppo"), networks)
    path = tmp_path / f"p{SUFFIXES[format_]}"
    with pytest.raises(ValueError, match=words):
        export(agent, path, format=format_)  # type: ignore[arg-type]
    assert not path.exists()


def test_files_say_what_they_are(tmp_path: Path) -> None:
    agent = agent_for(OBSERVATION_SPACES["dict"], ACTION_SPACES["discrete"], config_of("ppo"))
    path = tmp_path / "p.pt"
    export(agent, path, format="torchscript")
    notes = {"envfleet.json": ""}
    torch.jit.load(str(path), _extra_files=notes)
    told = json.loads(notes["envfleet.json"])
    assert told["inputs"] == [f"observation/{name}" for name, _ in named_leaves(agent.observation_space)]
    assert told["algo"] == "ppo"


def test_misuse_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = agent_for(OBSERVATION_SPACES["vector"], ACTION_SPACES["box"], config_of("ppo"))
    with pytest.raises(ValueError, match=r"onnx, torch, torchscript, got 'onx' \(did you mean 'onnx'"):
        export(agent, tmp_path / "p", format="onx")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="say where to write"):
        export(agent)
    with pytest.raises(ValueError, match=r"ends in \.onnx"):
        export(agent, tmp_path / "p.pt")
    assert main(["export", str(tmp_path)]) == 2
    assert "give one of --onnx, --torch and --torchscript, got none" in capsys.readouterr().err
