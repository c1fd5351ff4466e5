"""Does training in ever new environments help in one never seen? A lander with and without randomisation.

Both agents learn for equally long; then each of them lands under every gravity and every wind.
"""

from dataclasses import replace

import tyro

from envfleet.train import Sweep, evaluate_sweep, parse_randomize, plot_scenarios, preset, table, train

SWEEPS = (Sweep("gravity", (-11.5, -9.0, -6.5, -4.0, -1.5)), Sweep("wind_power", (0.0, 5.0, 10.0, 15.0, 20.0)))


def main(total_steps: int = 2_500_000, episodes: int = 50, num_envs: int = 32) -> None:
    """Train twice, then compare.

    Args:
        total_steps: how long each of the two learns.
        episodes: how many to play in each scenario.
        num_envs: how many environments run at a time; with randomisation each of their episodes is another one.
    """
    # The preset draws gravity, wind, its power and its turbulence; a parameter written out replaces the preset's:
    # the preset keeps close to the Earth, this goes to the Moon.
    varied = parse_randomize(["lunar-lander", "gravity=uniform(-11.9, -1.6)"])
    known_to_suit = preset("LunarLander-v3", "a2c")
    for name, randomize in (("fixed", {}), ("randomised", varied)):
        result = train(replace(known_to_suit, total_steps=total_steps, num_envs=num_envs, randomize=randomize))

        # Wind has a power only if there is wind; under a gravity of its own the rest stays as it is by default.
        scenarios = []
        for sweep in SWEEPS:
            wind = {"enable_wind": True} if sweep.name == "wind_power" else {}
            scenarios += evaluate_sweep(result.agent, sweep, episodes=episodes, env_kwargs=wind)
        print(f"\n{name}\n{table(scenarios)}\n")

        rows = [scenario.to_json_dict() for scenario in scenarios]
        print(f"plot: {plot_scenarios(rows, result.run_dir / 'scenarios.png')}\n")


if __name__ == "__main__":
    tyro.cli(main)
