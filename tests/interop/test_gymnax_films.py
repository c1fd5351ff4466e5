"""Films of environments written in JAX, by their own library's renderer, and the episodes that evaluation plays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from envfleet import make_vec
from envfleet._single import spec_of
from envfleet.device.single import SingleFunctionalEnv
from envfleet.train import PPOConfig, evaluate, load_agent, showcase, train


def test_a_single_environment_plays_what_the_fleet_plays() -> None:
    spec = spec_of("gymnax:CartPole-v1")
    assert isinstance(spec, EnvSpec)
    single = SingleFunctionalEnv(spec, {})
    with make_vec("gymnax:CartPole-v1", 3, autoreset_mode="SameStep") as envs:
        observations, _ = envs.reset(seed=4)
        first, _ = single.reset(seed=6)
        np.testing.assert_array_equal(first, observations[2])
        assert single.observation_space.contains(first)
        over = False
        while not over:
            observations, rewards, terminated, truncated, infos = envs.step(np.ones(3, np.int64))
            mine = single.step(1)
            over = bool(terminated[2] or truncated[2])
            np.testing.assert_array_equal(mine[0], infos["final_obs"][2] if over else observations[2])
            assert mine[1:4] == (rewards[2], terminated[2], truncated[2])
    assert single.render().dtype == np.uint8
    single.close()


@pytest.mark.filterwarnings("ignore:os.fork")  # by the library that starts ffmpeg
def test_a_trained_agent_is_evaluated_and_filmed(tmp_path: Path) -> None:
    config = PPOConfig(
        "gymnax:CartPole-v1", num_envs=64, rollout_steps=16, total_steps=4096, hidden_sizes=(16,), eval_every=0
    )
    run = train(config, run_dir=tmp_path / "run", progress=False, loggers=()).run_dir
    judged = evaluate(load_agent(run), episodes=2, num_envs=2, seed=3)
    shown = showcase(run, episodes=2, seed=3, progress=False)
    assert shown.path.stat().st_size > 1000
    assert list(shown.returns) == list(judged.returns)
    assert list(shown.lengths) == list(judged.lengths)
