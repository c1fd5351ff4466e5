"""Contract: seeds and random streams."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet.testing.base import ContractBase, mask_of, pytest
from envfleet.testing.compare import assert_reset, assert_same
from envfleet.testing.envs import CounterConfig, LotteryEnv, counter_fns, endless_fns
from envfleet.testing.reference import ReferenceFleet


class GymnasiumSeeding(ContractBase):
    """Seeds as every vector env takes them: an int is seed + i, a sequence one each, None none."""

    def _assert_seeds_arrive(self, seed: Any, expected: list[int]) -> None:
        """Assert that a reset with this seed starts each environment's stream from its own."""
        reference = ReferenceFleet(endless_fns(self.num_envs), AutoresetMode.NEXT_STEP)
        with self.fleet(endless_fns(self.num_envs)) as envs:
            assert_reset(envs.reset(seed=seed), reference.reset(expected), reference.observation_space)
            if self.can_look_into(envs):
                received = [seeds[-1] for seeds in envs.get_attr("seeds")]
                assert received == expected
                assert all(type(seed) is int for seed in received)

    @pytest.mark.parametrize("seed", [0, 100, 2**32 - 1, 2**70], ids=str)
    def test_an_int_seeds_env_i_with_seed_plus_i(self, seed: int) -> None:
        """reset(seed=s) hands s + i to environment i, as a Python int."""
        self._assert_seeds_arrive(seed, list(range(seed, seed + self.num_envs)))

    @pytest.mark.parametrize("kind", [list, tuple], ids=["list", "tuple"])
    def test_a_sequence_seeds_one_each(self, kind: Any) -> None:
        """A list or tuple of num_envs seeds gives each environment its own."""
        wanted = [11 * (i + 1) for i in range(self.num_envs)]
        self._assert_seeds_arrive(kind(wanted), wanted)

    def test_none_in_a_sequence_leaves_that_generator_running(self) -> None:
        """A None entry resets its environment without touching its random stream."""
        reference = ReferenceFleet(endless_fns(self.num_envs), AutoresetMode.NEXT_STEP)
        seeds = [None if i % 2 else 50 + i for i in range(self.num_envs)]
        with self.fleet(endless_fns(self.num_envs)) as envs:
            reference.reset(range(self.num_envs))
            envs.reset(seed=0)
            assert_reset(envs.reset(seed=seeds), reference.reset(seeds), reference.observation_space)

    def test_none_leaves_generators_running(self) -> None:
        """reset() after reset(seed=s) continues the streams that s started."""
        reference = ReferenceFleet(endless_fns(self.num_envs), AutoresetMode.NEXT_STEP)
        with self.fleet(endless_fns(self.num_envs)) as envs:
            reference.reset(range(3, 3 + self.num_envs))
            envs.reset(seed=3)
            for _ in range(3):
                assert_reset(envs.reset(), reference.reset(), reference.observation_space)

    def test_the_same_seed_gives_the_same_trajectory_again(self) -> None:
        """Seeding the same fleet twice replays the random part of every observation."""
        with self.fleet(counter_fns(self.num_envs)) as envs:
            runs = []
            for _ in range(2):
                observations = [envs.reset(seed=21)[0]] + [envs.step(self.zeros())[0] for _ in range(12)]
                runs.append(np.stack(observations)[:, :, 2:])
            assert_same(runs[0], runs[1])

    def test_unseeded_fleets_differ(self) -> None:
        """Without a seed no two environments share a stream, in one fleet or in two."""
        draws: list[int] = []
        for _ in range(2):
            with self.fleet(endless_fns(self.num_envs)) as envs:
                draws += [int(row[4]) for row in envs.reset()[0]]
        assert len(set(draws)) > self.num_envs, draws

    def test_a_masked_reset_seeds_only_the_masked(self) -> None:
        """With a reset_mask, seeds reach the masked environments and no other stream moves."""
        reference = ReferenceFleet(endless_fns(self.num_envs), AutoresetMode.DISABLED)
        mask = mask_of(self.num_envs, 0, self.num_envs - 1)
        with self.fleet(endless_fns(self.num_envs), autoreset_mode=AutoresetMode.DISABLED) as envs:
            reference.reset(range(self.num_envs))
            envs.reset(seed=0)
            expected = reference.reset(range(90, 90 + self.num_envs), mask)
            actual = envs.reset(seed=90, options={"reset_mask": mask})
            assert_reset(actual, expected, reference.observation_space)
            assert_reset(envs.reset(), reference.reset(), reference.observation_space)


class SeedingContract(GymnasiumSeeding):
    """An int seeds environment i with seed + i, a sequence one each, None leaves the generators running."""

    def _seeds_received(self, seed: Any) -> tuple[Any, ...]:
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset(seed=seed)
            return tuple(seeds[-1] for seeds in envs.get_attr("seeds"))

    @pytest.mark.parametrize("seed", [np.int64(7), np.int32(7), np.uint8(254)], ids=repr)
    def test_numpy_integers_are_integers(self, seed: Any) -> None:
        """A NumPy integer seeds as the Python int of its value, without wrapping round."""
        assert self._seeds_received(seed) == tuple(range(int(seed), int(seed) + self.num_envs))

    def test_an_array_seeds_one_each(self) -> None:
        """An array of num_envs integers gives each environment its own seed, as a Python int."""
        wanted = [11 * (i + 1) for i in range(self.num_envs)]
        assert self._seeds_received(np.array(wanted)) == tuple(wanted)

    def test_numpy_integers_inside_a_sequence_are_integers(self) -> None:
        """A sequence may mix Python and NumPy integers."""
        wanted = [np.int16(4) if i % 2 else 9 for i in range(self.num_envs)]
        assert self._seeds_received(wanted) == tuple(int(seed) for seed in wanted)

    def test_constructors_draw_different_global_random_numbers(self) -> None:
        """Environments that draw parameters from NumPy's or Python's global generator draw different ones."""
        env_fns = [partial(LotteryEnv, CounterConfig(index=i)) for i in range(self.num_envs)]
        lots: list[tuple[float, float]] = []
        for _ in range(2):
            with self.fleet(env_fns) as envs:
                lots += envs.get_attr("lots")
        assert len({numpy_lot for numpy_lot, _ in lots}) == len(lots), lots
        assert len({python_lot for _, python_lot in lots}) == len(lots), lots

    def test_np_random_shows_each_generator_and_seed(self) -> None:
        """np_random_seed and np_random are tuples over the environments, with the environments' own state."""
        reference = ReferenceFleet(endless_fns(self.num_envs), AutoresetMode.NEXT_STEP)
        with self.fleet(endless_fns(self.num_envs)) as envs:
            reference.reset(range(5, 5 + self.num_envs))
            envs.reset(seed=5)
            assert envs.np_random_seed == tuple(range(5, 5 + self.num_envs))
            generators = envs.np_random
            assert isinstance(generators, tuple)
            for generator, env in zip(generators, reference.envs, strict=True):
                assert generator.bit_generator.state == env.np_random.bit_generator.state

    @pytest.mark.parametrize("seed", [True, np.True_, 1.5, "7", [True] * 5, [0.5] * 5], ids=repr)
    def test_a_seed_that_is_no_integer_is_refused(self, seed: Any) -> None:
        """Booleans, floats and strings are no seeds, alone or in a sequence."""
        self._assert_seed_refused(seed, (TypeError, ValueError))

    @pytest.mark.parametrize("kind", ["alone", "in a sequence"])
    def test_a_negative_seed_is_refused_by_value(self, kind: str) -> None:
        """A negative seed raises a ValueError that names it."""
        seed = -17 if kind == "alone" else [-17, *range(1, self.num_envs)]
        self._assert_seed_refused(seed, ValueError, match="-17")

    @pytest.mark.parametrize("surplus", [-1, 1])
    def test_a_wrong_number_of_seeds_is_refused(self, surplus: int) -> None:
        """A sequence whose length is not num_envs raises a ValueError."""
        self._assert_seed_refused(list(range(self.num_envs + surplus)), ValueError)

    def _assert_seed_refused(
        self, seed: Any, errors: type[Exception] | tuple[type[Exception], ...], match: str | None = None
    ) -> None:
        """Assert that the seed is refused and that no environment was reset by the attempt."""
        if isinstance(seed, list) and len(seed) == 5 != self.num_envs and match is None:
            seed = [seed[0]] * self.num_envs
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset(seed=1)
            with pytest.raises(errors, match=match):
                envs.reset(seed=seed)
            assert envs.get_attr("episode") == (1,) * self.num_envs
            envs.step(self.zeros())
