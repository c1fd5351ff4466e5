"""Contract: reset options and the reset mask."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet.testing.base import ContractBase, mask_of, pytest
from envfleet.testing.compare import assert_same
from envfleet.testing.envs import CounterConfig, CounterEnv, endless_fns


class GymnasiumOptions(ContractBase):
    """Options reach the environments; autoresets have none."""

    def _received(self, envs: Any) -> list[Any]:
        return [options[-1] for options in self.attributes(envs, "options")]

    def test_options_are_given_to_every_environment(self) -> None:
        """Each environment's reset receives what was given as options to the vector env's."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset(options={"level": 3})
            assert [options["level"] for options in self._received(envs)] == [3] * self.num_envs

    def test_the_mask_is_not_handed_to_the_environments(self) -> None:
        """Masked environments receive the options without "reset_mask"; the others receive nothing."""
        with self.fleet(endless_fns(self.num_envs), autoreset_mode=AutoresetMode.DISABLED) as envs:
            envs.reset(options={"level": 1})
            envs.reset(options={"reset_mask": mask_of(self.num_envs, 1), "level": 2})
            received = self._received(envs)
            assert [received[0]["level"], received[1]["level"]] == [1, 2]
            assert "reset_mask" not in received[1]
            assert self.attributes(envs, "episode")[:2] == (1, 2)

    def test_an_autoreset_hands_over_neither_seed_nor_options(self) -> None:
        """The reset of an autoreset is a plain reset(), whatever the last explicit reset was given."""
        fns = [partial(CounterEnv, CounterConfig(index=i, length=1)) for i in range(self.num_envs)]
        with self.fleet(fns) as envs:
            envs.reset(seed=4, options={"level": 1})
            envs.step(self.zeros())
            envs.step(self.zeros())
            assert self.attributes(envs, "episode") == (2,) * self.num_envs
            assert self._received(envs) == [None] * self.num_envs
            assert [seeds[-1] for seeds in self.attributes(envs, "seeds")] == [None] * self.num_envs


class OptionsContract(GymnasiumOptions):
    """Options reach the environments unchanged, are never mutated, and may be one dict per environment."""

    @pytest.mark.parametrize("options", [None, {}, {"level": 3, "nested": {"a": [1]}}], ids=repr)
    def test_options_reach_every_environment(self, options: dict[str, Any] | None) -> None:
        """Each environment receives the options as they were given; None stays None."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset(options=options)
            assert self._received(envs) == [options] * self.num_envs

    def test_the_callers_options_are_never_mutated(self) -> None:
        """Neither the vector env nor an environment that writes into its options changes the caller's dict."""
        options = {"reset_mask": mask_of(self.num_envs, 0, 2), "level": 3}
        before = deepcopy(options)
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            envs.reset(options=options)
            assert_same(options, before)
            plain = {"level": 4}
            envs.reset(options=plain)
            assert plain == {"level": 4}

    @pytest.mark.parametrize("kind", [list, tuple], ids=["list", "tuple"])
    def test_a_sequence_gives_each_environment_its_own_options(self, kind: Any) -> None:
        """A list or tuple of num_envs dicts (or None) is handed out one each, and not mutated."""
        options = [None if i == 1 else {"level": i} for i in range(self.num_envs)]
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset(options=kind(options))
            assert self._received(envs) == options
        assert options == [None if i == 1 else {"level": i} for i in range(self.num_envs)]

    def test_a_wrong_number_of_options_is_refused(self) -> None:
        """A sequence of options whose length is not num_envs raises a ValueError and resets nothing."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            with pytest.raises(ValueError, match=str(self.num_envs)):
                envs.reset(options=[{}] * (self.num_envs + 1))
            assert envs.get_attr("episode") == (1,) * self.num_envs

    @pytest.mark.parametrize(
        ("mask", "error"),
        [
            ([True, False, False, False, False], TypeError),
            (np.ones(5, np.int64), TypeError),
            (np.ones(4, np.bool_), ValueError),
            (np.ones((5, 1), np.bool_), ValueError),
            (np.zeros(5, np.bool_), ValueError),
        ],
        ids=["list", "integers", "too short", "two axes", "all False"],
    )
    def test_a_wrong_mask_is_refused(self, mask: Any, error: type[Exception]) -> None:
        """A mask must be a boolean array of shape (num_envs,) with a True; anything else resets nothing."""
        with self.fleet(endless_fns(5), autoreset_mode=AutoresetMode.DISABLED) as envs:
            envs.reset()
            options = {"reset_mask": mask}
            with pytest.raises(error):
                envs.reset(options=options)
            assert options["reset_mask"] is mask
            assert envs.get_attr("episode") == (1,) * 5
