from __future__ import annotations

import dataclasses
import json
import math
import pickle
import statistics
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from players import Player, trained_run, zeros

from envfleet import NativeVectorEnv, choice, make_vec, normal, uniform
from envfleet.errors import NonFiniteError
from envfleet.scenarios import Sweep, parse_sweep
from envfleet.train import A2CConfig, Agent, load_agent, preset, train
from envfleet.train.algorithms.a2c import A2C
from envfleet.train.environments import make_task, spaces_of
from envfleet.train.judging.evaluation import Evaluation, Scenario, evaluate, evaluate_sweep, table
from envfleet.train.judging.play_setup import evaluation_seed
from envfleet.train.judging.scores import t_quantile
from envfleet.train.networks.networks import observe


def test_returns_and_lengths_are_those_of_single_environments() -> None:
    result = evaluate(Player(short=2.0, long=5.0), episodes=7, num_envs=3, seed=4)
    expected: list[tuple[float, int]] = []
    for index, quota in enumerate([3, 2, 2]):
        env = gymnasium.make("players/Coin-v0", short=2.0, long=5.0)
        env.reset(seed=evaluation_seed(4) + index)
        for _ in range(quota):
            score, length, over = 0.0, 0, False
            while not over:
                _, reward, terminated, truncated, _ = env.step(0)
                score, length, over = score + float(reward), length + 1, terminated or truncated
            expected.append((score, length))
            env.reset()
    assert list(zip(result.returns, result.lengths, strict=True)) == expected
    assert {1, 40} == set(result.lengths)


def test_short_episodes_are_not_counted_too_often() -> None:
    """Half of all episodes are long and score 1, half are short and score 0: the mean is 0.5."""
    result = evaluate(Player(), episodes=200, num_envs=200)
    assert result.episodes == 200
    assert abs(result.mean_return - 0.5) < 3 * 0.5 / math.sqrt(200)
    assert naive_mean(episodes=200, num_envs=200) < 0.35  # what the first ones to finish would tell


def naive_mean(episodes: int, num_envs: int) -> float:
    scores: list[float] = []
    with make_vec("players/Coin-v0", num_envs, "sync", {"autoreset_mode": "SameStep"}) as envs:
        envs.reset(seed=0)
        while len(scores) < episodes:
            _, rewards, terminated, _, _ = envs.step(zeros(range(num_envs)))
            scores += rewards[terminated].tolist()
    return statistics.mean(scores[:episodes])


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("randomize", [None, {"gravity": uniform(-11, -9), "long": normal(1, 0.1)}])
def test_the_same_seed_gives_the_same_result_on_every_backend(deterministic: bool, randomize: Any) -> None:
    results = [
        evaluate(
            Player(), episodes=9, num_envs=4, seed=3, backend=name, deterministic=deterministic, randomize=randomize
        )
        for name in ("sync", "process", "auto")
    ]
    assert results[0] == results[1] == results[2]
    other = evaluate(Player(), episodes=9, num_envs=4, seed=5, deterministic=deterministic, randomize=randomize)
    assert (other.returns, other.lengths) != (results[0].returns, results[0].lengths)


def test_drawing_actions_leaves_torchs_generator_alone() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    evaluate(Player(), episodes=3, deterministic=False)
    assert torch.equal(torch.get_rng_state(), state)


def test_every_environment_has_a_seed_of_its_own_that_training_does_not_use() -> None:
    firsts = {evaluation_seed(seed) for seed in range(200)}
    assert len(firsts) == 200
    assert all(2**30 <= first < 2**31 - 2**24 for first in firsts)


def test_there_are_no_more_environments_than_episodes() -> None:
    batches: list[int] = []

    def policy(observations: Any) -> Any:
        batches.append(len(observations))
        return zeros(observations)

    assert evaluate(Player(policy=policy), episodes=3, num_envs=10).episodes == 3
    assert set(batches) == {3}


def test_constructor_arguments_go_over_those_of_training() -> None:
    seen: list[float] = []

    def policy(observations: Any) -> Any:
        seen.extend(observations[:, 2].tolist())
        return zeros(observations)

    result = evaluate(Player(policy=policy, gravity=-5.0, long=7.0), episodes=20, env_kwargs={"gravity": -3.0})
    assert set(seen) == {-3.0}
    assert set(result.returns) == {0.0, 7.0}
    assert result.parameters == {"gravity": -3.0}


def test_randomised_parameters_are_drawn_for_every_episode() -> None:
    player = Player(short=1.0, long=1.0)
    randomize = {"short": uniform(0, 100), "long": uniform(0, 100)}
    result = evaluate(player, episodes=25, num_envs=4, randomize=randomize)
    assert len(set(result.returns)) == 25
    assert result.parameters == {"short": "uniform(0, 100)", "long": "uniform(0, 100)"}


def test_a_parameter_given_and_randomised_is_refused() -> None:
    with pytest.raises(TypeError, match="gravity cannot be both"):
        evaluate(Player(), episodes=1, env_kwargs={"gravity": -1.0}, randomize={"gravity": uniform(-2, -1)})


def test_an_episode_that_never_ends_is_cut_off_and_reported() -> None:
    result = evaluate(Player("players/Endless-v0"), episodes=4, num_envs=2, max_steps=25)
    assert result.lengths == (25, 25, 25, 25)
    assert result.returns == (25.0, 25.0, 25.0, 25.0)
    assert result.cut == 4
    assert "Cut off before they ended: 4 episodes." in table([result])


def test_there_is_patience_where_nobody_set_a_limit() -> None:
    result = evaluate(Player("players/Endless-v0"), episodes=1, backend="sync")
    assert result.lengths == (30_000,)
    assert result.cut == 1


def test_the_environments_own_limit_is_no_cut() -> None:
    own = evaluate(Player("players/Endless-v0", max_episode_steps=20), episodes=2)
    assert (own.lengths, own.cut) == ((20, 20), 0)
    later = evaluate(Player("players/Endless-v0", max_episode_steps=20), episodes=2, max_steps=30)
    assert (later.lengths, later.cut) == ((20, 20), 0)
    sooner = evaluate(Player("players/Endless-v0", max_episode_steps=20), episodes=2, max_steps=10)
    assert (sooner.lengths, sooner.cut) == ((10, 10), 2)
    lifted = evaluate(Player("players/Coin-v0", max_episode_steps=-1), episodes=20, max_steps=30)
    assert set(lifted.lengths) == {1, 30}
    assert lifted.cut == lifted.lengths.count(30)


def test_an_agent_of_compiled_atari_games_plays_what_it_was_trained_on(tmp_path: Path) -> None:
    """Other backends show screens of 210 x 160 in colour, and count steps instead of frames."""
    pytest.importorskip("ale_py")
    one = {"num_envs": 1, "rollout_steps": 2, "total_steps": 2, "minibatch_size": 2, "epochs": 1, "hidden_sizes": (8,)}
    result = train(dataclasses.replace(preset("ALE/Pong-v5", "ppo"), **one), run_dir=tmp_path / "run", progress=False)
    assert result.agent.observation_space.shape == (4, 84, 84)
    found = evaluate(tmp_path / "run", episodes=2, num_envs=2, max_steps=3)
    assert (found.lengths, found.cut) == ((3, 3), 2)


def test_dict_observations_and_box_actions_are_played() -> None:
    player = Player("players/Noted-v0", lambda observations: np.full((len(observations["room"]), 1), 0.5, np.float32))
    result = evaluate(player, episodes=5, num_envs=2)
    assert result.returns == (1.5,) * 5
    assert result.lengths == (3,) * 5


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"episodes": 0}, ValueError, "episodes must be 1 or more, got 0"),
        ({"episodes": 2.5}, TypeError, "episodes must be an integer, got 2.5 of type float"),
        ({"num_envs": 0}, ValueError, "num_envs must be 1 or more"),
        ({"seed": -1}, ValueError, "seed must be 0 or more"),
        ({"max_steps": 0}, ValueError, "max_steps must be 1 or more"),
        ({"randomize": {"gravity": choice([object()])}}, ValueError, "cannot be written down"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate(Player(), **arguments)


def test_an_agent_for_other_spaces_is_refused() -> None:
    player = Player()
    player.observation_space = spaces.Box(-1, 1, (7,), np.float32)
    with pytest.raises(ValueError, match=r"trained with observations Box.*\(7,\).* but in this scenario they are Box"):
        evaluate(player, episodes=1)
    player = Player()
    player.action_space = spaces.Discrete(5)
    with pytest.raises(ValueError, match=r"trained with actions Discrete\(5\).* they are Discrete\(2\)"):
        evaluate(player, episodes=1)


def test_other_bounds_of_the_same_spaces_are_no_hindrance() -> None:
    player = Player()
    player.observation_space = spaces.Box(-1, 1, (3,), np.float32)
    assert evaluate(player, episodes=1).episodes == 1


def test_a_runs_folder_is_as_good_as_its_agent(tmp_path: Path) -> None:
    run = trained_run(tmp_path / "run")
    result = evaluate(run, episodes=6, num_envs=3)
    assert result == evaluate(str(run), episodes=6, num_envs=3) == evaluate(load_agent(run), episodes=6, num_envs=3)
    (scenario,) = evaluate_sweep(run, Sweep("gravity", (-10.0,)), episodes=6, num_envs=3)
    assert scenario.evaluation is not None
    assert scenario.evaluation.returns == result.returns


# -- sweeps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sync", "process"])
def test_a_refused_value_costs_only_its_own_scenario(backend: str) -> None:
    scenarios = evaluate_sweep(Player(), parse_sweep("gravity=-12:-2:3"), episodes=4, num_envs=2, backend=backend)
    refused, *others = scenarios
    assert (refused.value, refused.evaluation) == (-12, None)
    assert refused.error == "AssertionError: gravity (current value: -12) must be greater than -12"
    assert [scenario.value for scenario in others] == [-7, -2]
    for scenario in others:
        assert scenario.error is None
        assert scenario.evaluation == evaluate(Player(), episodes=4, num_envs=2, env_kwargs={"gravity": scenario.value})


def test_all_values_meet_the_same_episodes() -> None:
    scenarios = evaluate_sweep(Player(), parse_sweep("gravity=-9,-3"), episodes=12)
    first, second = (scenario.evaluation for scenario in scenarios)
    assert first is not None
    assert second is not None
    assert first.lengths == second.lengths


def test_the_other_arguments_hold_in_every_scenario() -> None:
    sweep = Sweep("long", (4.0, 6.0))
    scenarios = evaluate_sweep(
        Player(gravity=-1.0), sweep, episodes=20, env_kwargs={"short": 3.0}, randomize={"gravity": uniform(-2, -1)}
    )
    for scenario in scenarios:
        assert scenario.evaluation is not None
        assert set(scenario.evaluation.returns) == {3.0, scenario.value}
        assert scenario.evaluation.parameters == {"short": 3.0, "long": scenario.value, "gravity": "uniform(-2, -1)"}


def test_a_scenario_in_which_the_agent_cannot_play_is_reported() -> None:
    player = Player()
    player.action_space = spaces.Discrete(5)
    (scenario,) = evaluate_sweep(player, Sweep("gravity", (-3.0,)), episodes=2)
    assert scenario.error is not None
    assert scenario.error.startswith("The agent was trained with actions Discrete(5)")


def test_a_misspelt_parameter_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"has no parameter 'gravty' \(did you mean 'gravity'\?\)"):
        evaluate_sweep(Player(), Sweep("gravty", (-3.0,)), episodes=2)


def test_time_limits_can_be_swept() -> None:
    scenarios = evaluate_sweep(Player("players/Endless-v0"), Sweep("max_episode_steps", (5, 9)), episodes=2)
    assert [scenario.evaluation.lengths for scenario in scenarios if scenario.evaluation] == [(5, 5), (9, 9)]


def test_the_lunar_lander_refuses_a_gravity_of_minus_twelve_and_plays_the_others() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Box2D warns while it is imported and crashes where that is an error
        env = gymnasium.make("LunarLander-v3")
    player = Player()
    player.config.env_id = "LunarLander-v3"
    player.observation_space, player.action_space = env.observation_space, env.action_space
    env.close()
    scenarios = evaluate_sweep(player, parse_sweep("gravity=-12:-2:6"), episodes=2, num_envs=2)
    assert [scenario.value for scenario in scenarios if scenario.evaluation] == [-10, -8, -6, -4, -2]
    assert scenarios[0].error == "AssertionError: gravity (current value: -12) must be between -12 and 0"


# -- figures ----------------------------------------------------------------------------------------------


def made(*returns: float, lengths: tuple[int, ...] = (), **others: Any) -> Evaluation:
    return Evaluation("Env-v0", 0, returns, lengths or tuple(range(1, len(returns) + 1)), others)


def test_figures_of_a_known_sample() -> None:
    result = made(1.0, 2.0, 3.0, 4.0, 10.0)
    assert result.mean_return == 4.0
    assert result.std_return == pytest.approx(statistics.stdev([1, 2, 3, 4, 10]))
    half = 2.776445 * result.std_return / math.sqrt(5)
    assert (result.interval_low, result.interval_high) == pytest.approx((4 - half, 4 + half), abs=1e-5)
    assert (result.min_return, result.max_return, result.mean_length) == (1.0, 10.0, 3.0)


@pytest.mark.parametrize(
    ("probability", "degrees", "value"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 3, 3.1824),
        (0.975, 4, 2.7764),
        (0.975, 10, 2.2281),
        (0.975, 29, 2.0452),
        (0.975, 99, 1.9842),
        (0.975, 1000, 1.9623),
        (0.975, 100_000, 1.9600),
        (0.95, 5, 2.0150),
        (0.995, 8, 3.3554),
        (0.5, 7, 0.0),
    ],
)
def test_quantiles_of_students_t_are_those_of_the_tables(probability: float, degrees: int, value: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(value, abs=6e-5)


def test_quantiles_go_on_smoothly_where_the_expansion_takes_over() -> None:
    before, after = t_quantile(0.975, 1000), t_quantile(0.975, 1001)
    assert 0 < before - after < 1e-5


def test_the_interval_holds_the_truth_nineteen_times_out_of_twenty() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(3.0, 2.0, (2000, 5)).tolist()
    held = sum(made(*sample).interval_low <= 3.0 <= made(*sample).interval_high for sample in samples)
    assert 0.93 < held / 2000 < 0.97  # by the normal distribution's 1.96 it would be 0.88


def test_a_single_episode_has_no_interval() -> None:
    result = made(5.0)
    assert math.isnan(result.std_return)
    assert math.isnan(result.interval_low)
    figures = json.loads(json.dumps(result.to_json_dict(), allow_nan=False))
    assert (figures["mean_return"], figures["std_return"]) == (5.0, None)
    assert (figures["interval_low"], figures["interval_high"]) == (None, None)
    assert "±" not in table([result])


def test_figures_are_ready_for_json() -> None:
    parameters = {"gravity": np.float64(-3), "wind": True, "sizes": (1, 2), "odd": {1}, "none": None}
    figures = json.loads(json.dumps(made(1.0, 2.0, lengths=(7, 9), **parameters).to_json_dict(), allow_nan=False))
    assert figures["parameters"] == {"gravity": -3.0, "wind": True, "sizes": [1, 2], "odd": "{1}", "none": None}
    assert {name: figures[name] for name in ("env_id", "seed", "episodes", "mean_return", "mean_length")} == {
        "env_id": "Env-v0",
        "seed": 0,
        "episodes": 2,
        "mean_return": 1.5,
        "mean_length": 8.0,
    }
    assert {"std_return", "interval_low", "interval_high", "min_return", "max_return"} <= figures.keys()
    assert (figures["min_length"], figures["max_length"], figures["cut"]) == (7, 9, 0)


def test_scenarios_are_ready_for_json_and_for_the_plot() -> None:
    done = Scenario("gravity", np.float32(-2), made(1.0, 2.0)).to_json_dict()
    assert {"parameter": "gravity", "value": -2.0, "mean_return": 1.5}.items() <= done.items()
    refused = Scenario("gravity", -12, error="AssertionError: no").to_json_dict()
    assert refused == {"parameter": "gravity", "value": -12, "error": "AssertionError: no"}


def test_the_table_is_aligned_and_tells_everything() -> None:
    rows = [
        Scenario("gravity", -12, error="AssertionError: gravity must be\nbetween -12 and 0"),
        Scenario("gravity", -9.5, made(251.24, -3.0, lengths=(200, 1000))),
        Scenario("gravity", -2, made(1.0, 2.0, 3.0)),
    ]
    assert table(rows).splitlines() == [
        "              mean return           worst   best  length  shortest  longest  episodes",
        "gravity=-12   refused: AssertionError: gravity must be between -12 and 0",
        "gravity=-9.5        124.1 ± 1615.2   -3.0  251.2     600       200     1000         2",
        "gravity=-2            2.0    ± 2.5    1.0    3.0       2         1        3         3",
    ]


def test_the_table_of_evaluations_names_scenario_or_environment() -> None:
    lines = table([made(0.25, 0.5), made(0.25, 0.5, gravity=-3, wind="uniform(0, 20)")]).splitlines()
    assert lines[1].split() == ["Env-v0", "0.375", "±", "1.588", "0.250", "0.500", "2", "1", "2", "2"]
    assert lines[2].startswith("gravity=-3, wind=uniform(0, 20)  ")
    assert len({len(line) for line in lines}) == 1


# --- many steps at once ------------------------------------------------------------------------------------


def an_agent(env_id: str, learner: str = "auto", **kwargs: Any) -> Agent:
    """With random weights, and statistics of observations that are not none."""
    config = A2CConfig(env_id, learner=learner, normalize_observations=True, **kwargs)  # type: ignore[arg-type]
    spaces_there = spaces_of(config)
    torch.manual_seed(3)
    task = make_task(config, *spaces_there, None)
    actor = A2C.actor_for(config, task)
    observe(actor, torch.randn(30, *spaces_there[0].shape or ()))
    return Agent(config, actor, *spaces_there, task.device)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0"])
def test_native_environments_play_many_steps_at_once(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same result as step by step, to the bit, on whatever backend that is."""
    agent, limit = an_agent(env_id), {"max_episode_steps": 60}
    at_once = evaluate(agent, episodes=13, num_envs=5, backend="native", env_kwargs=limit)
    assert at_once == evaluate(agent, episodes=13, num_envs=5, backend="sync", env_kwargs=limit)
    steps: list[object] = []
    step = NativeVectorEnv.step
    monkeypatch.setattr(NativeVectorEnv, "step", lambda self, actions: (steps.append(actions), step(self, actions))[1])
    assert at_once == evaluate(agent, episodes=13, num_envs=5, backend="native", env_kwargs=limit)
    assert not steps
    torch_agent = an_agent(env_id, "torch")
    by_torch = evaluate(torch_agent, episodes=13, num_envs=5, backend="native", env_kwargs=limit)
    assert len(steps) >= 2 * 60 or env_id == "CartPole-v1"
    assert by_torch == evaluate(torch_agent, episodes=13, num_envs=5, backend="sync", env_kwargs=limit)
    np.testing.assert_allclose(at_once.returns, by_torch.returns, rtol=0.05)


def test_an_agent_acts_as_torch_does_up_to_rounding() -> None:
    seen = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    compiled, by_torch = (an_agent("Pendulum-v1", learner) for learner in ("auto", "torch"))
    assert compiled.compiled is not None
    assert by_torch.compiled is None
    np.testing.assert_allclose(compiled.act(seen), by_torch.act(seen), rtol=1e-5, atol=1e-6)
    assert pickle.loads(pickle.dumps(compiled)).act(seen).tolist() == compiled.act(seen).tolist()


def test_what_is_unusual_is_explained_by_single_steps() -> None:
    agent = an_agent("Pendulum-v1")
    with torch.no_grad():
        body: Any = agent.actor.body
        body.layers[-1].weight.fill_(3e38)
    # Which row overflows first depends on the order in which an instruction set adds up.
    with pytest.raises(NonFiniteError, match=r"outputs for row [01]") as single:
        evaluate(agent, episodes=2, num_envs=2, backend="sync")
    with pytest.raises(NonFiniteError) as at_once:
        evaluate(agent, episodes=2, num_envs=2, backend="native")
    assert str(at_once.value) == str(single.value)
