"""Run folders in other people's hands: used twice at once, killed, half-written, damaged."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small_runs import CONFIGS, EVERY, ROLLOUT, changed, interrupt_at_call, outcome, stop_at
from tiny_envs import OBSERVATION_SPACES

from envfleet.errors import DamagedRunError, RunInUseError
from envfleet.train import evaluate, load_agent, plot_runs, resume, train
from envfleet.train.atomic_files import remove_partials, replacing
from envfleet.train.config import TrainConfig, config_to_dict
from envfleet.train.folders.folder import RunFolder
from envfleet.train.folders.locking import LOCK_FILE, locked
from envfleet.train.running import run as training_run
from envfleet.train.running.reporting import Progress

CHECKPOINT = "checkpoint/latest.safetensors"


def contents(run: Path) -> dict[str, bytes]:
    """Every file of a run but the lock and what TensorBoard reads."""
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name != LOCK_FILE and "tfevents" not in path.name
    }


class TestLock:
    """Two trainers never work in one folder."""

    def test_a_second_trainer_is_refused_and_readers_are_not(self, tmp_path: Path) -> None:
        run, refusals = tmp_path / "run", []

        def meddle(progress: Progress) -> bool:
            if progress.step == 5 * ROLLOUT:
                before = contents(run)
                for again in (lambda: resume(run, progress=False), lambda: resume(tmp_path / "link", progress=False)):
                    with pytest.raises(RunInUseError, match=rf"in use: this process \(pid {os.getpid()}\)") as caught:
                        again()
                    refusals.append(str(caught.value))
                with pytest.raises(FileExistsError, match="already holds a run"):
                    train(CONFIGS["a2c"], run_dir=run, progress=False)
                assert contents(run) == before
                evaluate(run, episodes=1, num_envs=1, backend="sync")
                plot_runs(run)
            return True

        (tmp_path / "link").symlink_to(run)
        result = train(CONFIGS["a2c"], run_dir=run, callback=meddle, progress=False)
        assert result.finished
        assert len(refusals) == 2
        assert "Nothing was changed; evaluating and plotting the run are possible meanwhile." in refusals[0]
        assert not (run / LOCK_FILE).exists()
        whole = train(CONFIGS["a2c"], run_dir=tmp_path / "whole", progress=False)
        np.testing.assert_equal(outcome(run), outcome(whole.run_dir))

    def test_two_that_begin_at_once(self, tmp_path: Path) -> None:
        """Both find the folder free; the one that comes later changes nothing."""
        run = tmp_path / "run"
        with locked(run), pytest.raises(RunInUseError, match="is in use"):
            train(CONFIGS["a2c"], run_dir=run, progress=False)
        assert not contents(run)
        assert train(CONFIGS["a2c"], run_dir=run, progress=False).finished

    def test_another_process_is_named(self, tmp_path: Path) -> None:
        with holder(tmp_path) as process:
            number = process.pid
            with pytest.raises(RunInUseError, match=rf"process {number} on .* \(kill {number}; it saves first\)"):
                lock(tmp_path)
            process.kill()
            process.wait()
            lock(tmp_path)

    @pytest.mark.parametrize("fork", ["os.fork", "ctypes.CDLL(None).fork"])
    def test_it_ends_with_the_trainer_whatever_it_has_forked(self, fork: str, tmp_path: Path) -> None:
        """Forked workers have copies of the trainer's descriptors; Python knows nothing of the second fork."""
        forking = f"""
child = {fork}()
if child == 0:
    sys.stdout.close()
    os.close(1)
    os.read(0, 1)
    os._exit(0)
print(child)
"""
        with holder(tmp_path, forking) as process:
            assert process.stdout is not None
            child = int(process.stdout.readline())
            process.kill()
            process.wait()
            os.kill(child, 0)
            lock(tmp_path)
            with locked(tmp_path), pytest.raises(RunInUseError):
                lock(tmp_path)
        assert not (tmp_path / LOCK_FILE).exists()

    def test_a_forked_copy_of_the_trainer_does_not_unlock(self, tmp_path: Path) -> None:
        with locked(tmp_path):
            with_copy = locked(tmp_path / "inner")
            with_copy.__enter__()
            child = os.fork()
            if child == 0:
                with_copy.__exit__(None, None, None)
                os._exit(0)
            os.waitpid(child, 0)
            with pytest.raises(RunInUseError):
                lock(tmp_path / "inner")
            with_copy.__exit__(None, None, None)

    def test_without_locks_of_the_file_system(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def unsupported(*_: Any) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", unsupported)
        with holder(tmp_path) as process:
            with pytest.raises(
                RunInUseError, match=rf"process {process.pid} .* If it is no more, remove .*{LOCK_FILE}\."
            ):
                lock(tmp_path)
            process.kill()
            process.wait()
            with locked(tmp_path), pytest.raises(RunInUseError, match="this process"):
                lock(tmp_path)
        (tmp_path / LOCK_FILE).write_text('{"pid": 1, "place": "elsewhere", "started": null, "since": "long ago"}')
        with pytest.raises(RunInUseError, match="process 1 on elsewhere has been training there since long ago"):
            lock(tmp_path)

    @pytest.mark.parametrize("content", [b"", b"garbage", b"[1]", b'{"pid": "x"}', b"\xff\xfe"])
    def test_a_lock_file_that_says_nothing_is_no_lock(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / LOCK_FILE).write_bytes(content)
        lock(tmp_path)


def lock(folder: Path) -> None:
    with locked(folder):
        pass


class holder:  # noqa: N801  used like a function
    """Another process that holds a folder's lock."""

    def __init__(self, folder: Path, after: str = "") -> None:
        program = f"""
import ctypes, os, pathlib, sys
from envfleet.train.folders.locking import locked
with locked(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    {after.replace(chr(10), chr(10) + "    ")}
    sys.stdout.flush()
    os.read(0, 1)
"""
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> subprocess.Popen[bytes]:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"locked\n"
        return self._process

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.kill()


class Killed(BaseException):
    """Stands for a kill -9: nothing is saved on the way out."""


def killed(progress: Progress) -> bool:
    raise Killed(progress.step)


class TestBeginning:
    """A run can be resumed, or started again, from its first moment on."""

    @EVERY
    def test_killed_before_the_first_regular_checkpoint(self, algo: str, tmp_path: Path) -> None:
        whole = train(CONFIGS[algo], run_dir=tmp_path / "whole", progress=False)
        run = tmp_path / "run"
        with pytest.raises(Killed):
            train(CONFIGS[algo], run_dir=run, callback=killed, progress=False)
        assert load_agent(run) is not None
        for _ in range(2):
            with pytest.raises(Killed):
                resume(run, callback=killed, progress=False)
        assert resume(run, progress=False).finished
        np.testing.assert_equal(outcome(run), outcome(whole.run_dir))

    @pytest.mark.parametrize(("owner", "name"), [(RunFolder, "save_weights"), (training_run, "save_checkpoint")])
    def test_killed_between_the_files_of_its_end(
        self, owner: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = train(CONFIGS["a2c"], run_dir=tmp_path / "whole", progress=False)
        run, calls = tmp_path / "run", itertools.count(1)

        save: Callable[..., None] = getattr(owner, name)

        def dying(*args: Any) -> None:
            save(*args)
            if next(calls) == 2:  # the first one is that of its start
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dying)
            with pytest.raises(Killed):
                train(CONFIGS["a2c"], run_dir=run, progress=False)
        assert resume(run, progress=False).finished
        np.testing.assert_equal(outcome(run), outcome(whole.run_dir))
        for file in ("actor.safetensors", "critic.safetensors"):
            ours, wanted = load_file(run / file), load_file(whole.run_dir / file)
            assert all(ours[name].equal(wanted[name]) for name in wanted)

    def test_killed_before_it_had_begun(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = tmp_path / "run"

        def dying(*_: Any, **__: Any) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "create", dying)
            with pytest.raises(Killed):
                train(CONFIGS["a2c"], run_dir=run, progress=False)
        with pytest.raises(FileNotFoundError, match=r"ended before it had begun, .* Start it again as you did"):
            resume(run, progress=False)
        assert train(CONFIGS["a2c"], run_dir=run, progress=False).finished

    def test_a_run_of_old_without_any_checkpoint_begins_anew(self, tmp_path: Path) -> None:
        whole = train(CONFIGS["a2c"], run_dir=tmp_path / "whole", progress=False)
        run = tmp_path / "run"
        run.mkdir()
        for name in ("config.json", "metrics.csv"):
            shutil.copy(whole.run_dir / name, run)
        assert resume(run, progress=False).finished
        np.testing.assert_equal(outcome(run), outcome(whole.run_dir))

    def test_a_lost_checkpoint_is_not_a_beginning(self, tmp_path: Path) -> None:
        train(CONFIGS["a2c"], run_dir=tmp_path, progress=False)
        shutil.rmtree(tmp_path / "checkpoint")
        before = contents(tmp_path)
        with pytest.raises(FileNotFoundError, match=r"latest\.safetensors does not exist, .* can still be evaluated"):
            resume(tmp_path, progress=False)
        assert contents(tmp_path) == before

    def test_metrics_without_a_configuration_are_not_overwritten(self, tmp_path: Path) -> None:
        train(CONFIGS["a2c"], run_dir=tmp_path, progress=False)
        (tmp_path / "config.json").unlink()
        before = contents(tmp_path)
        with pytest.raises(FileExistsError, match="holds an earlier run's metrics"):
            train(CONFIGS["a2c"], run_dir=tmp_path, progress=False)
        assert contents(tmp_path) == before

    @EVERY
    def test_sigterm_saves_and_returns(self, algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        with monkeypatch.context() as patch:
            interrupt_at_call(patch, 100, signal.SIGTERM)
            result = train(CONFIGS[algo], run_dir=tmp_path / "run", progress=False)
        assert not result.finished
        assert 0 < result.step <= 4 * ROLLOUT
        assert result.stopped_by == signal.SIGTERM
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
        assert resume(tmp_path / "run", progress=False).stopped_by is None
        whole = train(CONFIGS[algo], run_dir=tmp_path / "whole", progress=False)
        np.testing.assert_equal(outcome(tmp_path / "run"), outcome(whole.run_dir))


class TestFiles:
    """No partial files are left, and permissions are the user's."""

    @pytest.fixture
    def umask(self) -> Iterator[Callable[[int], int]]:
        before = os.umask(0o022)
        os.umask(before)
        yield os.umask
        os.umask(before)

    @pytest.mark.parametrize("mask", [0o022, 0o027, 0o007])
    def test_permissions_are_those_of_the_umask(self, mask: int, umask: Callable[[int], int], tmp_path: Path) -> None:
        umask(mask)
        train(changed("a2c", total_steps=2 * ROLLOUT), run_dir=tmp_path / "run", progress=False)
        resume(tmp_path / "run", progress=False)
        modes = {
            str(path): stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run").rglob("*") if path.is_file()
        }
        assert set(modes.values()) == {0o666 & ~mask}, modes
        assert len(modes) > 5

    def test_what_killed_runs_left_is_removed(self, tmp_path: Path) -> None:
        train(CONFIGS["a2c"], run_dir=tmp_path, callback=stop_at([ROLLOUT]), progress=False)
        for name in ("latest.safetensors", "actor.safetensors", "config.json", "showcase.mp4"):
            self.killed_while_writing(tmp_path / ("checkpoint" if name.startswith("latest") else "") / name)
        (tmp_path / "checkpoint" / ".latest.123.safetensors").write_bytes(b"as earlier versions left them")
        (tmp_path / "checkpoint" / ".tmpAb3dE9").write_bytes(b"and safetensors")
        mine = [".mine", "notes.partial", ".notes.1.txt", ".tmpAb3dE9"]
        for name in mine:
            (tmp_path / name).write_text("mine")
        with replacing(tmp_path / "curves.png") as being_written:
            being_written.touch()
            resume(tmp_path, progress=False)
            assert being_written.exists()
        left = {path.name for path in tmp_path.rglob(".*")} | {path.name for path in tmp_path.rglob("*.partial")}
        assert left == {*mine}

    def killed_while_writing(self, path: Path) -> None:
        child = os.fork()
        if child == 0:
            with replacing(path) as temporary:
                temporary.write_bytes(b"half")
                os._exit(0)
        os.waitpid(child, 0)
        assert [entry for entry in path.parent.iterdir() if path.name in entry.name and entry != path]

    def test_of_other_machines_nothing_is_known(self, tmp_path: Path) -> None:
        foreign = tmp_path / ".curves.png.999999999-00000000.abc.partial"
        foreign.mkdir()
        remove_partials(tmp_path, {"metrics.csv"})
        assert foreign.exists()
        remove_partials(tmp_path, {"curves.png"})
        assert not foreign.exists()


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], *, old: bool = False) -> None:
    """Change the tensors and notes of a checkpoint; `old`: as versions wrote it that did not list the tensors."""
    with safe_open(path, framework="pt") as file:
        tensors, entries = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    notes = json.loads(entries["notes"])
    change(tensors, notes)
    entries["notes"] = json.dumps(notes)
    if old:
        del entries["names"]
    save_file(tensors, path, metadata=entries)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each algorithm that was stopped in the middle."""
    folder = tmp_path_factory.mktemp("stopped")
    for algo, config in CONFIGS.items():
        train(config, run_dir=folder / algo, callback=stop_at([12 * ROLLOUT]), progress=False)
    return {algo: folder / algo for algo in CONFIGS}


class TestDamage:
    """A checkpoint that lacks something is refused in a sentence, before anything is changed."""

    def refused(self, run: Path) -> str:
        before = contents(run)
        with pytest.raises(ValueError, match=r"latest\.safetensors") as caught:
            resume(run, progress=False)
        assert contents(run) == before
        return f"{type(caught.value).__name__}: {caught.value}"

    @EVERY
    def test_every_tensor_is_missed(self, algo: str, stopped: dict[str, Path], tmp_path: Path) -> None:
        run = Path(shutil.copytree(stopped[algo], tmp_path / "run"))
        good = (run / CHECKPOINT).read_bytes()
        with safe_open(run / CHECKPOINT, framework="pt") as file:
            names = list(file.keys())
        for number, name in enumerate(names):
            old = bool(number % 2)
            rewrite(run / CHECKPOINT, lambda tensors, _, name=name: tensors.pop(name), old=old)  # type: ignore[misc]
            message = self.refused(run)
            assert (name if not old else name.split("/")[-1]) in message
            (run / CHECKPOINT).write_bytes(good)
        assert resume(run, progress=False).finished

    @EVERY
    @pytest.mark.parametrize("old", [False, True])
    def test_optimisers_without_their_memory(
        self, algo: str, old: bool, stopped: dict[str, Path], tmp_path: Path
    ) -> None:
        run = Path(shutil.copytree(stopped[algo], tmp_path / "run"))

        def forget(tensors: dict[str, Any], _: Any) -> None:
            for name in [name for name in tensors if name.startswith("optimizer/")]:
                del tensors[name]

        rewrite(run / CHECKPOINT, forget, old=old)
        message = self.refused(run)
        assert message.startswith("DamagedRunError")
        assert "optimi" in message

    @pytest.mark.parametrize(
        "name", ["step", "seconds", "rollouts", "stream", "episodes", "recent", "tracker", "interval"]
    )
    def test_notes_that_no_run_writes(self, name: str, stopped: dict[str, Path], tmp_path: Path) -> None:
        run = Path(shutil.copytree(stopped["a2c"], tmp_path / "run"))
        good = (run / CHECKPOINT).read_bytes()
        for value in (-5, None, "1", True, [None], {}, {"returns": [0]}, float("nan"), 10**30):
            if name in ("seconds", "stream", "episodes") and value == 10**30:
                continue
            rewrite(run / CHECKPOINT, lambda _, notes, value=value: notes.update({name: value}))  # type: ignore[misc]
            message = self.refused(run)
            assert message.startswith("DamagedRunError")
            assert name in message
        (run / CHECKPOINT).write_bytes(good)
        rewrite(run / CHECKPOINT, lambda _, notes: notes.pop(name))
        assert f"it lacks {name!r}" in self.refused(run)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("journal", torch.zeros(3, 2, dtype=torch.int64), "the journal must hold 192 steps of"),
            ("journal", torch.zeros(192, 3, dtype=torch.int64), "the journal must hold"),
            ("random/cpu", torch.zeros(3, dtype=torch.uint8), "random/cpu is no state of torch's generator"),
            ("random/cpu", torch.zeros(3), "random/cpu is no state of torch's generator"),
            ("optimizer/actor/0/exp_avg", torch.zeros(1), "optimizer/actor/0/exp_avg has the shape"),
            ("optimizer/actor/99/exp_avg", torch.zeros(1), "has no parameter for the tensor"),
            ("optimizer/actor/x", torch.zeros(1), "has no parameter for the tensor"),
            ("module/actor/body.layers.0.weight", torch.zeros(1), "the checkpoint's actor does not fit the network"),
        ],
    )
    def test_tensors_that_do_not_fit(
        self, name: str, value: Any, message: str, stopped: dict[str, Path], tmp_path: Path
    ) -> None:
        run = Path(shutil.copytree(stopped["a2c"], tmp_path / "run"))
        rewrite(run / CHECKPOINT, lambda tensors, _: tensors.update({name: value}))
        assert message in self.refused(run)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("replay.counters", torch.tensor([0, 5])),
            ("replay.counters", torch.tensor([-1, 200, 2])),
            ("replay.counters", torch.tensor([0, 200, 10**9, 10**8])),
            ("replay.counters", torch.tensor([0.5])),
            ("replay.next", torch.full((200,), 10**6)),
            ("replay.latest", torch.tensor([500, 1])),
            ("replay.rewards", torch.zeros(1)),
            ("replay.generator", torch.zeros(3, dtype=torch.uint8)),
            ("noise", torch.zeros(7, 7)),
            ("collected", torch.zeros(2)),
        ],
    )
    def test_replay_buffers_that_do_not_fit(
        self, name: str, value: Any, stopped: dict[str, Path], tmp_path: Path
    ) -> None:
        run = Path(shutil.copytree(stopped["sac"], tmp_path / "run"))
        rewrite(run / CHECKPOINT, lambda tensors, _: tensors.update({f"extra/{name}": value}))
        assert "the algorithm's own tensors do not fit" in self.refused(run)

    def test_a_checkpoint_as_earlier_versions_wrote_it_is_resumed(
        self, stopped: dict[str, Path], tmp_path: Path
    ) -> None:
        for algo, path in stopped.items():
            run = Path(shutil.copytree(path, tmp_path / algo))
            rewrite(run / CHECKPOINT, lambda *_: None, old=True)
            assert resume(run, progress=False).finished
            whole = train(CONFIGS[algo], run_dir=tmp_path / f"{algo}-whole", progress=False)
            np.testing.assert_equal(outcome(run), outcome(whole.run_dir))

    @EVERY
    def test_settings_of_the_wrong_type(self, algo: str, tmp_path: Path) -> None:
        folder = RunFolder(tmp_path)
        folder.create(CONFIGS[algo], custom_networks=False)
        good = json.loads(folder.config.read_text())
        number = (type(None), int)
        fitting = {"env_id": (str,), "device": (str,), "target_entropy": number, "stop_at_return": number}
        fitting["demonstrations"] = (type(None), str)
        fitting["initial_log_std"] = (int,)
        for name, right in good["config"].items():
            for wrong in (None, "x", -1, [], {}, [[]], {"x": 1}, 10**400, True):
                if type(wrong) in (type(right), *fitting.get(name, ())):
                    continue
                self.refused_config(folder, {**good, "config": {**good["config"], name: wrong}}, name)
        for name in ("algo", "custom_networks", "config", "format"):
            for wrong in (None, "x", [], {}, 3):
                self.refused_config(folder, {**good, name: wrong}, "")

    def refused_config(self, folder: RunFolder, content: Any, name: str) -> None:
        folder.config.write_text(json.dumps(content))
        with pytest.raises(DamagedRunError, match=r"config\.json") as caught:
            folder.read_config()
        assert name in str(caught.value)


class ClashingEnv(gymnasium.Env[Any, Any]):
    """Keys that look alike once they are written with slashes."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict(
        {
            "a": spaces.Dict({"b": spaces.Box(-1, 1, (2,), np.float32), "~1b": spaces.Box(-1, 1, (1,), np.float32)}),
            "a/b": spaces.Box(-1, 1, (3,), np.float32),
            "a~1b": spaces.Box(-1, 1, (4,), np.float32),
        }
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._draw(self.observation_space), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._draw(self.observation_space), float(action), bool(self.np_random.random() < 0.1), False, {}

    def _draw(self, space: Any) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._draw(entry) for key, entry in space.items()}
        return self.np_random.uniform(-1, 1, space.shape).astype(np.float32)


gymnasium.register("tiny/Clashing-v0", ClashingEnv, max_episode_steps=10, disable_env_checker=True)


class TestKeys:
    def test_keys_with_slashes_do_not_collide(self, tmp_path: Path) -> None:
        config: TrainConfig = changed("a2c", env_id="tiny/Clashing-v0")
        run = tmp_path / "run"
        train(config, run_dir=run, callback=stop_at([5 * ROLLOUT]), progress=False)
        with safe_open(run / CHECKPOINT, framework="pt") as file:
            assert sum(name.startswith("position") for name in file.keys()) == 4  # noqa: SIM118
        resume(run, progress=False)  # a warning, that the environments do not repeat themselves, would be an error
        whole = train(config, run_dir=tmp_path / "whole", progress=False)
        np.testing.assert_equal(outcome(run), outcome(whole.run_dir))

    def test_old_names_are_still_read(self, tmp_path: Path) -> None:
        config = changed("a2c", env_kwargs={"observations": "dict"})
        assert "what.is/this" in OBSERVATION_SPACES["dict"].spaces  # type: ignore[attr-defined]
        train(config, run_dir=tmp_path, callback=stop_at([5 * ROLLOUT]), progress=False)

        def older(tensors: dict[str, Any], _: Any) -> None:
            tensors["position/what.is/this"] = tensors.pop("position/what.is~1this")

        rewrite(tmp_path / CHECKPOINT, older, old=True)
        assert resume(tmp_path, progress=False).finished

    def test_ordinary_names_are_as_they_were(self, tmp_path: Path) -> None:
        train(changed("a2c", env_kwargs={"observations": "dict"}), run_dir=tmp_path, progress=False)
        with safe_open(tmp_path / CHECKPOINT, framework="pt") as file:
            assert {"position/inner/a", "position/inner/b"} < {*file.keys()}

    def test_the_configuration_is_written_as_it_was(self, tmp_path: Path) -> None:
        train(CONFIGS["a2c"], run_dir=tmp_path, progress=False)
        assert json.loads((tmp_path / "config.json").read_text())["config"] == config_to_dict(CONFIGS["a2c"])
