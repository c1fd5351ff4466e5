"""Files of weights, checkpoints and run folders; agents loaded from them; and what is refused."""

from __future__ import annotations

import json
import pickle
import shutil
import signal
from collections import OrderedDict
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from gymnasium.vector.utils import batch_space
from safetensors import safe_open
from small_runs import CONFIGS
from tiny_envs import ACTION_SPACES, ANY_SPACE, OBSERVATION_SPACES
from torch import nn

from envfleet import uniform
from envfleet.train.algorithms.learner import Learner, Task
from envfleet.train.algorithms.registry import make_learner
from envfleet.train.collecting import begin, collect
from envfleet.train.config import A2CConfig, DQNConfig, PPOConfig, SACConfig, TD3Config, TrainConfig
from envfleet.train.environments import make_training_envs
from envfleet.train.folders import weights
from envfleet.train.folders.checkpoint import load_agent, load_checkpoint, restore_learner, save_checkpoint
from envfleet.train.folders.folder import RunFolder
from envfleet.train.folders.weights import load_module, load_tensors, save_tensors
from envfleet.train.networks.networks import Networks
from envfleet.train.running.run import resume, train

CPU = torch.device("cpu")
TENSORS = {
    "a": torch.arange(6.0).reshape(2, 3).T,  # not contiguous
    "b/c": torch.tensor(3, dtype=torch.int64),
    "d": torch.zeros(0, 2, dtype=torch.uint8),
    "e": torch.tensor([True, False]),
    "f": torch.tensor([1e-300], dtype=torch.float64),
}
CONFIG = A2CConfig(
    ANY_SPACE,
    num_envs=2,
    total_steps=64,
    rollout_steps=16,
    hidden_sizes=(8,),
    backend="sync",
    normalize_observations=True,
    env_kwargs={"actions": "box"},
    randomize={"gain": uniform(1, 2)},
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, torch.Tensor]]:
    """A run, and the actor's tensors at its end."""
    result = train(CONFIG, run_dir=tmp_path_factory.mktemp("finished") / "run", progress=False)
    return result.run_dir, {name: tensor.clone() for name, tensor in result.agent.actor.state_dict().items()}


@pytest.fixture
def run(finished: tuple[Path, Any], tmp_path: Path) -> Path:
    """A copy of it that may be spoilt."""
    return Path(shutil.copytree(finished[0], tmp_path / "run"))


def observations(batch: int = 50, seed: int = 0) -> Any:
    space = batch_space(OBSERVATION_SPACES["vector"], batch)
    space.seed(seed)
    return space.sample()


class Bomb:
    """What a stranger's pickle may hold."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self._path,))


class TestTensors:
    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "down" / "file.safetensors"
        save_tensors(path, "test", TENSORS, {"numbers": [1, 0.1, None], "text": "ü"})
        tensors, notes = load_tensors(path, "test")
        assert notes == {"numbers": [1, 0.1, None], "text": "ü"}
        assert tensors.keys() == TENSORS.keys()
        for name, tensor in TENSORS.items():
            assert tensors[name].dtype == tensor.dtype
            assert torch.equal(tensors[name], tensor)

    def test_tensors_may_share_memory(self, tmp_path: Path) -> None:
        """As the layers of one's own networks may: an encoder for both actor and critic, tied weights."""
        whole = torch.arange(6.0)
        save_tensors(tmp_path / "file", "test", {"a": whole, "b": whole, "c": whole[2:]}, {})
        tensors, _ = load_tensors(tmp_path / "file", "test")
        assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
            "a": [0, 1, 2, 3, 4, 5],
            "b": [0, 1, 2, 3, 4, 5],
            "c": [2, 3, 4, 5],
        }

    def test_a_failed_save_leaves_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        save_tensors(path, "test", TENSORS, {"number": 1})
        with pytest.raises(TypeError):
            save_tensors(path, "test", TENSORS, {"number": object()})
        assert load_tensors(path, "test")[1] == {"number": 1}
        assert list(tmp_path.iterdir()) == [path]

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"nothing\.safetensors does not exist; expected a file that"):
            load_tensors(tmp_path / "nothing.safetensors", "test")

    def test_a_cut_off_file_is_refused_wherever_the_cut(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        save_tensors(path, "test", TENSORS, {})
        content = path.read_bytes()
        for length in [0, 1, 7, 8, 9, *range(10, len(content), 37), len(content) - 1]:
            path.write_bytes(content[:length])
            with pytest.raises(
                ValueError, match=r"file is damaged or no safetensors file .*; restore it or train again"
            ):
                load_tensors(path, "test")

    @pytest.mark.parametrize(
        "content", [b"\0" * 100, b"\xff" * 100, b"hello, world\n" * 10, b"\x02" + b"\0" * 7 + b"{}", b"PK\x03\x04" * 9]
    )
    def test_any_other_file_is_refused(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "file"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"file (is damaged or no safetensors file|holds other tensors)"):
            load_tensors(path, "test")

    def test_a_flipped_byte_in_the_header_is_refused_or_harmless(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        save_tensors(path, "test", TENSORS, {})
        content = bytearray(path.read_bytes())
        refused = 0
        for place in range(0, 200, 3):
            spoilt = content.copy()
            spoilt[place] ^= 0x15
            path.write_bytes(spoilt)
            try:
                load_tensors(path, "test")
            except ValueError:
                refused += 1
        assert refused > 20

    def test_foreign_safetensors_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        safetensors.torch.save_file({"weight": torch.zeros(2)}, path)
        with pytest.raises(ValueError, match=r"should be marked as envfleet's 'test', got None"):
            load_tensors(path, "test")
        save_tensors(path, "other", TENSORS, {})
        with pytest.raises(ValueError, match=r"should be marked as envfleet's 'test', got 'other'"):
            load_tensors(path, "test")

    @pytest.mark.parametrize("writer", ["pickle", "torch", "torch, legacy"])
    def test_a_pickle_is_refused_and_never_run(self, tmp_path: Path, writer: str) -> None:
        path, mark = tmp_path / "file", tmp_path / "boom"
        if writer == "pickle":
            path.write_bytes(pickle.dumps(Bomb(mark)))
        else:
            torch.save(Bomb(mark), path, _use_new_zipfile_serialization=writer == "torch")
        with pytest.raises(ValueError, match="is damaged or no safetensors file"):
            load_tensors(path, "test")
        assert not mark.exists()
        pickle.loads(pickle.dumps(Bomb(mark)))
        assert mark.exists(), "the bomb of this test would not have gone off at all"


class TestModules:
    def changed(self, **changes: Any) -> dict[str, torch.Tensor]:
        return {**nn.Linear(3, 2).state_dict(), **changes}

    def refused(self, tensors: dict[str, torch.Tensor]) -> str:
        module = nn.Linear(3, 2)
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        with pytest.raises(ValueError, match="the file does not fit the network") as caught:
            load_module(module, tensors, "the file")
        torch.testing.assert_close(dict(module.state_dict()), before, rtol=0, atol=0)
        return str(caught.value)

    def test_tensors_that_fit_are_taken(self) -> None:
        module, tensors = nn.Linear(3, 2), self.changed(bias=torch.tensor([5.0, 6.0]))
        load_module(module, tensors, "the file")
        assert module.bias.tolist() == [5, 6]
        assert torch.equal(module.weight, tensors["weight"])

    def test_others_are_refused_by_name(self) -> None:
        assert "it lacks ['bias'] and has nothing besides" in self.refused({"weight": torch.zeros(2, 3)})
        message = self.refused(self.changed(extra=torch.zeros(1)))
        assert "it lacks nothing and has ['extra'] besides" in message
        assert "Pass those as networks=" in message
        message = self.refused(self.changed(bias=torch.zeros(3)))
        assert "bias has shape (3,) there and (2,) here" in message


class TestFolder:
    def test_a_config_comes_back(self, tmp_path: Path) -> None:
        for number, config in enumerate((CONFIG, PPOConfig("CartPole-v1"), SACConfig("Pendulum-v1"))):
            for custom in (False, True):
                folder = RunFolder(tmp_path / f"{number}{custom}" / "deep")
                folder.create(config, custom_networks=custom)
                assert folder.read_config() == (config, custom)

    def test_the_file_says_what_readers_expect(self, tmp_path: Path) -> None:
        RunFolder(tmp_path).create(CONFIG, custom_networks=False)
        content = json.loads((tmp_path / "config.json").read_text())
        assert content["format"] == 1
        assert content["algo"] == "a2c"
        assert content["custom_networks"] is False
        assert content["config"]["env_id"] == ANY_SPACE
        assert content["config"]["randomize"] == {"gain": "uniform(1, 2)"}
        assert content.keys() == {"format", "envfleet", "algo", "custom_networks", "config"}

    def test_a_run_is_never_overwritten(self, run: Path) -> None:
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        with pytest.raises(FileExistsError, match=r"run already holds a run; go on with it .*resume\('.*run'\)"):
            train(CONFIG, run_dir=run, progress=False)
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "is damaged: "),
            ('{"format": 1', "is damaged: "),
            ("[1]", "is damaged: expected an object, got list"),
            ('{"format": 2, "envfleet": "9.9"}', "has format 2, this envfleet reads format 1; .* by envfleet 9.9"),
            ("{}", "has format None, .* envfleet of unknown version"),
            ('{"format": 1}', "is damaged: it lacks algo, config, custom_networks"),
            (
                '{"format": 1, "algo": "rainbow", "config": {"env_id": "A"}, "custom_networks": false}',
                "algo must be one of",
            ),
            ('{"format": 1, "algo": "a2c", "config": 3, "custom_networks": false}', "is damaged: "),
            ('{"format": 1, "algo": "a2c", "config": {}, "custom_networks": false}', "is damaged: .*env_id"),
        ],
    )
    def test_a_damaged_config_is_refused(self, tmp_path: Path, content: str, message: str) -> None:
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            RunFolder(tmp_path).read_config()

    def test_any_other_folder_is_refused(self, tmp_path: Path) -> None:
        for call in (load_agent, resume):
            for path in (tmp_path, tmp_path / "nothing"):
                with pytest.raises(FileNotFoundError, match=r"is not the folder of a run: it has no config\.json"):
                    call(path)


def learner_of(config: TrainConfig, seed: int) -> Learner:
    actions = ACTION_SPACES["discrete" if config.algo == "dqn" else "box"]
    task = Task(OBSERVATION_SPACES["dict"], actions, 2, CPU)
    torch.manual_seed(seed)
    return make_learner(config, task)


@pytest.mark.parametrize(
    "config",
    [
        A2CConfig("unused", hidden_sizes=(8,), normalize_observations=True),
        PPOConfig("unused", hidden_sizes=(8,), normalize_observations=True, minibatch_size=4),
        SACConfig("unused", hidden_sizes=(8,), normalize_observations=True, learning_starts=4, batch_size=4),
        TD3Config("unused", hidden_sizes=(8,), normalize_observations=True, learning_starts=4, batch_size=4),
        DQNConfig("unused", hidden_sizes=(8,), dueling=True, priority_exponent=0.6, learning_starts=4, batch_size=4),
    ],
    ids=["a2c", "ppo", "sac", "td3", "dqn"],
)
def test_a_restored_learner_goes_on_like_the_saved_one(config: TrainConfig, tmp_path: Path) -> None:
    kwargs = {"observations": "dict", "actions": "discrete" if config.algo == "dqn" else "box"}
    fleet = A2CConfig(ANY_SPACE, backend="sync", num_envs=2, env_kwargs=kwargs)
    with torch.random.fork_rng(devices=[]), closing(make_training_envs(fleet)) as envs:
        first = learner_of(config, 0)
        rollouts = [collect(envs, first.act, 5, begin(envs, seed)) for seed in range(4)]
        for rollout in rollouts[:2]:
            first.learn(rollout, 0.1)
        save_checkpoint(RunFolder(tmp_path), first, {"own": torch.ones(2)}, {"own": 1})

        def go_on(learner: Learner) -> list[Any]:
            figures = [learner.learn(rollout, 0.2) for rollout in rollouts[2:]]
            return [*figures, learner.act(rollouts[0].end.observations)]

        figures = go_on(first)
        other = learner_of(config, 99)
        checkpoint = load_checkpoint(RunFolder(tmp_path))
        restore_learner(other, checkpoint)
        np.testing.assert_equal(go_on(other), figures)
    assert checkpoint.notes == {"own": 1}
    assert checkpoint.tensors["own"].tolist() == [1, 1]
    for name, module in first.modules.items():
        for key, tensor in module.state_dict().items():
            assert torch.equal(tensor, other.modules[name].state_dict()[key]), (name, key)


class TestLoadAgent:
    def test_it_is_the_agent_at_the_end_of_training(self, finished: tuple[Path, dict[str, torch.Tensor]]) -> None:
        path, trained = finished
        agent = load_agent(path)
        loaded = agent.actor.state_dict()
        assert loaded.keys() == trained.keys()
        for name, tensor in trained.items():
            assert torch.equal(loaded[name], tensor), name
        assert agent.config == CONFIG
        assert agent.observation_space == OBSERVATION_SPACES["vector"]
        assert agent.action_space == ACTION_SPACES["box"]

    def test_statistics_are_those_of_all_training_observations(self, finished: tuple[Path, Any]) -> None:
        loaded = load_agent(finished[0]).actor.state_dict()
        assert loaded["body.encoder.normalizer.count"] == 64
        # The observations are uniform between -2 and 2.
        assert loaded["body.encoder.normalizer.mean"].abs().max() < 0.5
        deviations = (loaded["body.encoder.normalizer.m2"] / 64).sqrt()
        assert (deviations - 4 / 12**0.5).abs().max() < 0.25

    def test_acting_changes_nothing(self, finished: tuple[Path, dict[str, torch.Tensor]]) -> None:
        path, trained = finished
        agent = load_agent(path)
        before = agent.act(observations())
        for seed in range(30):
            agent.act(observations(seed=seed) * 50, deterministic=seed % 2 == 0)
        np.testing.assert_array_equal(agent.act(observations()), before)
        for name, tensor in trained.items():
            assert torch.equal(agent.actor.state_dict()[name], tensor), name

    def test_the_statistics_matter(self, run: Path) -> None:
        """Or the tests above would prove little."""
        before = load_agent(run).act(observations())
        tensors, _ = load_tensors(run / "actor.safetensors", "actor weights")
        tensors["body.encoder.normalizer.mean"] += 1
        save_tensors(run / "actor.safetensors", "actor weights", tensors, {})
        assert not np.array_equal(load_agent(run).act(observations()), before)

    def test_torch_s_generator_is_left_alone(self, finished: tuple[Path, Any]) -> None:
        before = torch.get_rng_state()
        load_agent(finished[0])
        assert torch.equal(torch.get_rng_state(), before)

    def test_weights_are_all_it_needs(self, run: Path) -> None:
        before = load_agent(run).act(observations())
        for path in run.iterdir():
            if path.name not in ("config.json", "actor.safetensors"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        np.testing.assert_array_equal(load_agent(run).act(observations()), before)

    def test_nothing_is_made_that_only_learning_needs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No optimisers, and no replay buffer: one of this size would not fit into any memory."""
        trained = train(CONFIGS["sac"], run_dir=tmp_path / "run", progress=False).agent
        plain = json.loads((tmp_path / "run" / "config.json").read_text())
        plain["config"].update(buffer_size=10**15, total_steps=10**15)
        (tmp_path / "run" / "config.json").write_text(json.dumps(plain))
        monkeypatch.setattr(torch.optim.Adam, "__init__", lambda *_, **__: pytest.fail("an optimiser was made"))
        agent = load_agent(tmp_path / "run")
        assert isinstance(agent.config, SACConfig)
        assert agent.config.buffer_size == 10**15
        np.testing.assert_array_equal(agent.act(observations()), trained.act(observations()))

    @pytest.mark.parametrize("name", ["actor.safetensors", "checkpoint/latest.safetensors"])
    def test_a_pickle_in_the_place_of_weights_is_never_run(self, run: Path, tmp_path: Path, name: str) -> None:
        torch.save(Bomb(tmp_path / "boom"), run / name)
        with pytest.raises(ValueError, match=f"{Path(name).name} is damaged or no safetensors file"):
            load_agent(run) if name.startswith("actor") else resume(run, progress=False)
        assert not (tmp_path / "boom").exists()

    def test_other_weights_are_refused(self, run: Path) -> None:
        shutil.copy(run / "critic.safetensors", run / "actor.safetensors")
        with pytest.raises(ValueError, match="should be marked as envfleet's 'actor weights', got 'critic weights'"):
            load_agent(run)

    def test_weights_of_another_shape_are_refused(self, run: Path) -> None:
        content = json.loads((run / "config.json").read_text())
        content["config"]["hidden_sizes"] = [9]
        (run / "config.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=r"has shape \(8, 3\) there and \(9, 3\) here. Was it trained with other"):
            load_agent(run)
        with pytest.raises(ValueError, match=r"the checkpoint's actor does not fit the network"):
            resume(run, progress=False)

    def test_a_run_that_saved_nothing_yet(self, run: Path) -> None:
        (run / "actor.safetensors").unlink()
        shutil.rmtree(run / "checkpoint")
        with pytest.raises(FileNotFoundError, match=r"safetensors does not exist"):
            load_agent(run)


class Shy(nn.Module):
    """A network whose behaviour depends on its mode: while training, it drops most of what it sees."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            OrderedDict(a=nn.Linear(3, 8), norm=nn.BatchNorm1d(8), drop=nn.Dropout(0.5), b=nn.Linear(8, outputs))
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(observations)
        return result


class TestOwnNetworks:
    config = A2CConfig(ANY_SPACE, num_envs=2, total_steps=64, rollout_steps=16, backend="sync")

    @pytest.fixture
    def own(self, tmp_path: Path) -> tuple[Path, np.ndarray]:
        """A run with networks that share a layer, and what its agent does at the end."""
        shared = nn.Linear(3, 8)
        networks = Networks(nn.Sequential(shared, nn.Linear(8, 3)), nn.Sequential(shared, nn.Linear(8, 1)))
        result = train(self.config, run_dir=tmp_path / "own", networks=networks, progress=False)
        return result.run_dir, result.agent.act(observations())

    def fresh(self, width: int = 8) -> Networks:
        shared = nn.Linear(3, width)
        return Networks(nn.Sequential(shared, nn.Linear(width, 3)), nn.Sequential(shared, nn.Linear(width, 1)))

    def test_fresh_ones_are_filled(self, own: tuple[Path, np.ndarray]) -> None:
        np.testing.assert_array_equal(load_agent(own[0], networks=self.fresh()).act(observations()), own[1])

    def test_without_them_it_says_what_to_do(self, own: tuple[Path, np.ndarray]) -> None:
        for call in (load_agent, resume):
            with pytest.raises(ValueError, match=r"networks of your own, .* networks=Networks\(actor=\.\.\., critic="):
                call(own[0])

    def test_others_are_refused(self, own: tuple[Path, np.ndarray]) -> None:
        with pytest.raises(ValueError, match=r"has shape \(8, 3\) there and \(9, 3\) here"):
            load_agent(own[0], networks=self.fresh(9))

    def test_where_there_were_none_they_are_refused(self, run: Path) -> None:
        for call in (load_agent, resume):
            with pytest.raises(ValueError, match=r"trained with envfleet's own networks; leave networks= out"):
                call(run, networks=self.fresh())

    def test_agents_are_not_training(self, tmp_path: Path) -> None:
        result = train(self.config, run_dir=tmp_path / "shy", networks=Networks(Shy(3), Shy(1)), progress=False)
        for agent in (result.agent, load_agent(result.run_dir, networks=Networks(Shy(3), Shy(1)))):
            state = {name: tensor.clone() for name, tensor in agent.actor.state_dict().items()}
            before = agent.act(observations())
            agent.act(observations(seed=1) * 50)
            np.testing.assert_array_equal(agent.act(observations()), before)
            torch.testing.assert_close(dict(agent.actor.state_dict()), state, rtol=0, atol=0)

    @pytest.mark.parametrize(
        ("networks", "message"),
        [
            (Networks(nn.Linear(3, 2), nn.Linear(3, 1)), r"actor must give \[batch, 3\] .* got \[2, 2\]"),
            (Networks(nn.Linear(3, 3), nn.Linear(3, 2)), r"critic must give \[batch\] or \[batch, 1\], got \[.*, 2\]"),
        ],
    )
    def test_outputs_that_do_not_fit_are_refused(self, tmp_path: Path, networks: Networks, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            train(self.config, run_dir=tmp_path / "run", networks=networks, progress=False)


def test_an_interruption_while_a_file_is_read_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.safetensors"
    weights.save_tensors(path, "checkpoint", {"one": torch.ones(2)}, {})

    class Interrupted:
        """As torch does, turns a Ctrl-C that comes while it reads into an error of its own."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._file = safe_open(*args, **kwargs)

        def __enter__(self) -> Any:
            self._file.__enter__()
            return self

        def __exit__(self, *raised: Any) -> None:
            self._file.__exit__(*raised)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def get_tensor(self, name: str) -> torch.Tensor:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise ValueError("could not determine the shape") from None
            return self._file.get_tensor(name)

    monkeypatch.setattr(weights, "safe_open", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        weights.load_tensors(path, "checkpoint")
