"""Sample Factory trains on fleets as on environments of its own: the same data, the same weights."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from coming_from import run_block, scripts_of

from envfleet.adapters.sample_factory import creator

with warnings.catch_warnings():  # it compiles functions in a way that torch has given up
    warnings.simplefilter("ignore", DeprecationWarning)
    from sample_factory.algo.utils.make_env import BatchedVecEnv, SequentialVectorizeWrapper
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import run_rl

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]
BACKENDS = ["sync", "process", "native"]
NUM_ENVS = 4


def single(name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None) -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=30)


def test_the_data_of_their_vector_environment() -> None:
    """Fleet k of four environments is what Sample Factory's own environments 4k to 4k + 3 are."""
    for backend in BACKENDS:
        theirs = SequentialVectorizeWrapper([BatchedVecEnv(single("")) for _ in range(NUM_ENVS)])
        ours = BatchedVecEnv(creator("CartPole-v1", NUM_ENVS, backend, max_episode_steps=30)("fleet"))
        ours.seed(2)
        for number, env in enumerate(theirs.envs):
            env.seed(2 * NUM_ENVS + number)
        assert ours.num_agents == theirs.num_agents == NUM_ENVS
        assert torch.equal(ours.reset()[0]["obs"], theirs.reset()[0]["obs"])
        actions, ends = torch.randint(0, 2, (80, NUM_ENVS), generator=torch.Generator().manual_seed(0)), 0
        for each in actions:
            ours_now, theirs_now = ours.step(each.numpy()), theirs.step(each.numpy())
            assert torch.equal(ours_now[0]["obs"], theirs_now[0]["obs"])
            for our, their in zip(ours_now[1:4], theirs_now[1:4], strict=True):
                np.testing.assert_array_equal(our, their)
            assert [sorted(info) for info in ours_now[4]] == [
                sorted([*info, "final_obs"] if "reset_info" in info else info) for info in theirs_now[4]
            ]
            ends += int((ours_now[2] | ours_now[3]).sum())
        assert ends > 5
        ours.close()
        theirs.close()


def trained(env: str, per_worker: int, folder: Path) -> dict[str, Any]:
    """The weights after some updates."""
    arguments = {
        "env": env, "experiment": "run", "train_dir": str(folder / env), "device": "cpu", "seed": 1,
        "serial_mode": True, "async_rl": False, "batched_sampling": True, "num_workers": 1,
        "num_envs_per_worker": per_worker, "worker_num_splits": 1, "rollout": 16, "recurrence": 1, "use_rnn": False,
        "batch_size": 64, "num_batches_per_epoch": 1, "train_for_env_steps": 256, "with_wandb": False,
        "encoder_mlp_layers": ["16"], "decorrelate_envs_on_one_worker": False, "decorrelate_experience_max_seconds": 0,
    }  # fmt: skip
    words = [f"--{name}={value}" for name, value in arguments.items() if not isinstance(value, list)]
    words += [word for name, value in arguments.items() if isinstance(value, list) for word in (f"--{name}", *value)]
    parser, _ = parse_sf_args(words)
    assert run_rl(parse_full_cfg(parser, words)) == 0
    (checkpoint,) = (folder / env / "run" / "checkpoint_p0").glob("checkpoint_*.pth")
    weights: dict[str, Any] = torch.load(checkpoint, map_location="cpu", weights_only=False)["model"]
    return weights


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_ends_with_the_same_weights(backend: str, tmp_path: Path) -> None:
    register_env("theirs", single)
    register_env("ours", creator("CartPole-v1", NUM_ENVS, backend, max_episode_steps=30))
    theirs, ours = trained("theirs", NUM_ENVS, tmp_path), trained("ours", 1, tmp_path)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(ours[name], value), name


def test_sampling_row_by_row_is_refused() -> None:
    """Which is Sample Factory's default."""
    words = ["--env=fleet"]
    parser, _ = parse_sf_args(words)
    with pytest.raises(ValueError, match="--batched_sampling=True"):
        creator("CartPole-v1", NUM_ENVS)("fleet", parse_full_cfg(parser, words))


@pytest.mark.parametrize(
    "given", [{"autoreset_mode": "NEXT_STEP"}, {"vector_kwargs": {"autoreset_mode": "Disabled"}}, {"copy": False}]
)
def test_what_would_train_otherwise_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Sample Factory takes the first observation"):
        creator("CartPole-v1", NUM_ENVS, **given)


@pytest.mark.parametrize("block", scripts_of("sample_factory"))
def test_python_blocks_run(block: str, tmp_path: Path) -> None:
    run_block(block, tmp_path, seconds=280, may_warn=True)
