"""The whole workflow: train a lander, look at its curves, measure it, watch it land.

python examples/lunar_lander.py --algo ppo
"""

from typing import Literal

import tyro

from envfleet.train import A2CConfig, PPOConfig, Progress, evaluate, plot_runs, showcase, train

CONFIGS = {"a2c": A2CConfig, "ppo": PPOConfig}


def stop_when_solved(progress: Progress) -> bool:
    """Go on while this is True: a callback sees every log interval, and may end the run."""
    return progress.mean_return is None or progress.mean_return < 270


def main(algo: Literal["a2c", "ppo"] = "a2c", total_steps: int | None = None, episodes: int = 100) -> None:
    """Train on LunarLander-v3.

    Args:
        algo: the algorithm.
        total_steps: how long to train; by default as long as the algorithm's settings say.
        episodes: how many to evaluate.
    """
    limits = {} if total_steps is None else {"total_steps": total_steps}
    config = CONFIGS[algo]("LunarLander-v3", num_envs=10, seed=0, **limits)
    result = train(config, callback=stop_when_solved)
    print(f"{result.step:,} steps in {result.seconds:.0f} s; everything about the run is in {result.run_dir}")

    # An agent at work draws nothing at random and learns nothing more.
    score = evaluate(result.agent, episodes=episodes)
    print(f"return {score.mean_return:.1f} ± {score.half_interval:.1f} over {score.episodes} episodes")
    print(f"curves: {plot_runs(result.run_dir)}")

    film = showcase(result.run_dir, episodes=3)
    print(f"video: {film.path}, with returns {[round(value) for value in film.returns]}")


if __name__ == "__main__":
    tyro.cli(main)
