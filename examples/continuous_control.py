"""Continuous control: a MuJoCo task with PPO and normalised observations.

Actions are drawn from a Gaussian, in units where -1 to 1 spans the motors' range, and clipped to that range on their
way to the environment. Larger tasks take longer: --env-id Hopper-v5 --total-steps 1e6.
"""

import tyro

from envfleet.train import PPOConfig, evaluate, load_agent, plot_runs, train


def main(env_id: str = "InvertedPendulum-v5", total_steps: float = 1e5, episodes: int = 50) -> None:
    """Train on a MuJoCo task and evaluate what was saved.

    Args:
        env_id: the task.
        total_steps: how long to train.
        episodes: how many to evaluate.
    """
    config = PPOConfig(
        env_id,
        total_steps=int(total_steps),
        # Positions and velocities come in units of their own. The statistics are saved with the weights.
        normalize_observations=True,
        # Rewards are around 1 a step here: returns within the horizon of 100 steps become about 10.
        normalize_rewards=False,
        reward_scale=0.1,
        # A Gaussian explores by its deviation, which the policy gradient narrows at its own pace.
        entropy_coef=0.0,
    )
    result = train(config)
    print(f"curves: {plot_runs(result.run_dir)}")

    # Another program would begin here: the folder is all it needs.
    agent = load_agent(result.run_dir)
    for title, deterministic in (("means", True), ("samples", False)):
        score = evaluate(agent, episodes=episodes, deterministic=deterministic)
        print(f"{title:>8}: {score.mean_return:.0f} ± {score.half_interval:.0f} in {score.mean_length:.0f} steps")


if __name__ == "__main__":
    tyro.cli(main)
