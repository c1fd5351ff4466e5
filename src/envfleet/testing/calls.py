"""Contract: call, get_attr, set_attr and render reach the environments, and an error in one costs nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import TimeLimit

from envfleet.errors import EnvRaisedError
from envfleet.testing.base import ContractBase, EnvFn, pytest
from envfleet.testing.compare import assert_same, assert_step
from envfleet.testing.envs import Command, CounterConfig, CounterEnv, counter_fns, endless_fns, trouble_fns
from envfleet.testing.reference import ReferenceFleet


class GymnasiumCalls(ContractBase):
    """Methods and attributes of the environments, for vector envs that have `call`, `get_attr` and `set_attr`."""

    def _limited(self) -> list[EnvFn]:
        def limited(index: int) -> Any:
            return TimeLimit(CounterEnv(CounterConfig(index=index, ending="never")), max_episode_steps=50)

        return [partial(limited, index) for index in range(self.num_envs)]

    def test_call_hands_over_arguments_and_returns_a_tuple(self) -> None:
        """call(name, *args, **kwargs) returns one result per environment, in order."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            self.needs(envs, "call", "get_attr", "set_attr")
            results = envs.call("describe", "hello", mark="?")
            assert results == tuple(f"hello {i}?" for i in range(self.num_envs))

    def test_call_of_an_attribute_returns_its_value(self) -> None:
        """Call of something that is not callable returns it, as Gymnasium does."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            self.needs(envs, "call", "get_attr", "set_attr")
            assert envs.call("index") == tuple(range(self.num_envs))

    def test_get_attr_returns_a_tuple_of_values(self) -> None:
        """get_attr(name) returns one value per environment, before the first reset too."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            self.needs(envs, "call", "get_attr", "set_attr")
            assert self.attributes(envs, "index") == tuple(range(self.num_envs))
            assert self.attributes(envs, "tag") == ("untouched",) * self.num_envs

    @pytest.mark.parametrize("kind", [list, tuple], ids=["list", "tuple"])
    def test_set_attr_takes_one_value_each(self, kind: Any) -> None:
        """A list or tuple of num_envs values sets one each."""
        values = [{"value": i} for i in range(self.num_envs)]
        with self.fleet(endless_fns(self.num_envs)) as envs:
            self.needs(envs, "call", "get_attr", "set_attr")
            envs.set_attr("tag", kind(values))
            assert self.attributes(envs, "tag") == tuple(values)

    def test_set_attr_takes_one_value_for_all(self) -> None:
        """Anything that is no list or tuple is set in every environment."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            self.needs(envs, "call", "get_attr", "set_attr")
            envs.set_attr("tag", np.arange(3))
            for tag in self.attributes(envs, "tag"):
                assert_same(tag, np.arange(3))

    def test_attributes_of_wrappers_are_seen_and_set(self) -> None:
        """get_attr and set_attr reach the wrappers of an environment, and what they set takes effect."""
        with self.fleet(self._limited()) as envs:
            self.needs(envs, "call", "get_attr", "set_attr")
            envs.reset()
            assert self.attributes(envs, "_max_episode_steps") == (50,) * self.num_envs
            envs.step(self.zeros())
            assert self.attributes(envs, "_elapsed_steps") == (1,) * self.num_envs
            envs.set_attr("_max_episode_steps", 3)
            assert not envs.step(self.zeros())[3].any()
            assert envs.step(self.zeros())[3].all()
            assert self.attributes(envs, "index") == tuple(range(self.num_envs))

    def test_render_returns_one_frame_an_environment(self) -> None:
        """render() returns a tuple of frames and render_mode is the environments'."""
        fns = [partial(CounterEnv, CounterConfig(index=i), "rgb_array") for i in range(self.num_envs)]
        with self.fleet(fns) as envs:
            if type(envs).render is VectorEnv.render:
                pytest.skip(f"{type(envs).__name__} has no render")
            assert envs.render_mode == "rgb_array"
            envs.reset()
            frames = envs.render()
            assert isinstance(frames, tuple)
            for index, frame in enumerate(frames):
                assert_same(frame, np.full((2, 2, 3), index, np.uint8))


class CallsContract(GymnasiumCalls):
    """Methods and attributes of the environments, of all or of some."""

    @pytest.mark.parametrize("surplus", [-1, 1])
    def test_set_attr_refuses_a_wrong_number_of_values(self, surplus: int) -> None:
        """A list of another length raises a ValueError and sets nothing."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            with pytest.raises(ValueError, match=str(self.num_envs)):
                envs.set_attr("tag", [0] * (self.num_envs + surplus))
            assert envs.get_attr("tag") == ("untouched",) * self.num_envs

    @pytest.mark.parametrize("kind", [list, tuple, np.array], ids=["list", "tuple", "array"])
    def test_indices_pick_environments(self, kind: Any) -> None:
        """indices= picks environments for call, get_attr and set_attr; results come in the order asked for."""
        indices = kind([3, 0])
        with self.fleet(endless_fns(self.num_envs)) as envs:
            assert envs.call("describe", "you", indices=indices) == ("you 3!", "you 0!")
            assert envs.get_attr("index", indices=indices) == (3, 0)
            envs.set_attr("tag", ["three", "zero"], indices=indices)
            assert envs.get_attr("tag")[:4] == ("zero", "untouched", "untouched", "three")
            envs.set_attr("tag", "both", indices=indices)
            assert envs.get_attr("tag")[:4] == ("both", "untouched", "untouched", "both")

    def test_indices_that_do_not_exist_are_refused(self) -> None:
        """An index beyond the fleet, or values for another number of indices, raise and change nothing."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            with pytest.raises((IndexError, ValueError), match=str(self.num_envs)):
                envs.get_attr("index", indices=[0, self.num_envs])
            with pytest.raises((IndexError, ValueError), match=str(self.num_envs)):
                envs.set_attr("tag", "x", indices=[self.num_envs])
            with pytest.raises(ValueError, match="2"):
                envs.set_attr("tag", ["x", "y", "z"], indices=[0, 1])
            assert envs.get_attr("tag") == ("untouched",) * self.num_envs

    @pytest.mark.parametrize("name", ["reset", "step", "close"])
    def test_calls_that_would_bypass_the_fleet_are_refused(self, name: str) -> None:
        """Call and get_attr of reset, step and close raise a ValueError: they would bypass the bookkeeping."""
        with self.fleet(endless_fns(self.num_envs)) as envs:
            envs.reset()
            for method in (envs.call, envs.call_async, envs.get_attr):
                with pytest.raises(ValueError, match=name):
                    method(name)
            assert envs.get_attr("episode") == (1,) * self.num_envs

    def test_a_failing_call_leaves_the_fleet_usable(self) -> None:
        """After an error in call, get_attr or set_attr the trajectory goes on as if nobody had asked."""
        reference = ReferenceFleet(counter_fns(self.num_envs), AutoresetMode.NEXT_STEP)
        with self.fleet(counter_fns(self.num_envs)) as envs:
            reference.reset(range(self.num_envs))
            envs.reset(seed=0)
            for _ in range(4):
                with pytest.raises(AttributeError, match="no_such_name"):
                    envs.call("no_such_name")
                with pytest.raises(AttributeError, match="no_such_name"):
                    envs.get_attr("no_such_name")
                with pytest.raises(TypeError):
                    envs.call("describe", "too", "many")
                assert envs.call("describe", "still")[1] == "still 1!"
                actual = envs.step(self.zeros())
                assert_step(actual, reference.step(self.zeros()), reference.observation_space)

    def test_a_failing_call_names_the_environment(self) -> None:
        """The error is the original type and an EnvRaisedError with index, method and traceback."""
        with self.fleet(trouble_fns(self.num_envs)) as envs:
            with pytest.raises(EnvRaisedError, match="told to raise") as caught:
                envs.call("obey", int(Command.RAISE), indices=[3])
            error = caught.value
            assert isinstance(error, ZeroDivisionError)
            assert error.env_indices == (3,)
            assert error.method == "call"
            assert "in obey" in error.traceback_text
            envs.reset()
            envs.step(self.zeros())

    def test_a_failing_set_attr_leaves_the_fleet_usable(self) -> None:
        """A property that refuses its value raises, and the fleet goes on."""
        fns = [partial(_StubbornEnv, CounterConfig(index=i)) for i in range(self.num_envs)]
        with self.fleet(fns) as envs:
            envs.reset()
            with pytest.raises(PermissionError):
                envs.set_attr("locked", 1)
            assert envs.get_attr("index") == tuple(range(self.num_envs))
            envs.step(self.zeros())
            assert envs.get_attr("steps") == (1,) * self.num_envs


class _StubbornEnv(CounterEnv):
    """Has a property that cannot be set."""

    @property
    def locked(self) -> int:
        return 0

    @locked.setter
    def locked(self, value: int) -> None:
        raise PermissionError(f"{value} is not wanted")
