"""RLlib's env runners as PPO samples with them: two remote ones of three environments, with its fault tolerance on."""

from __future__ import annotations

import itertools
import logging
from typing import Any, final

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.execution.rollout_ops import synchronous_parallel_sample
from ray.tune.registry import register_env

from fault_matrix.failing_env import NUM_ENVS, FailingEnv
from fault_matrix.subject import SEED, Answer, CannotBeMeasured, Setup, Subject, row

RUNNERS = 2
EACH = NUM_ENVS // RUNNERS
FAILURES = "num_env_step_failures"
_made = itertools.count()  # of this process, which makes its environments in order


@final
class RLlibRunners(Subject):
    """The env runners of an algorithm; a step is a sample of one step per environment."""

    def __init__(self, algorithm: Any) -> None:
        self._algorithm = algorithm
        self._group = algorithm.env_runner_group
        self._seconds: float | None = None
        self._restarts, self._failures = 0, 0.0
        self._episodes: dict[str, int] = {}

    def reset(self) -> None:
        """Nothing to do: runners reset before their first sample, with the seed of the configuration."""

    def step(self) -> Answer:
        """Sample once; what the group and the metrics say of restarts is what its user can know."""
        if self._seconds is not None:
            self._algorithm.restore_env_runners(self._group)  # as Algorithm.step() does between samples
        samples, metrics = synchronous_parallel_sample(
            worker_set=self._group,
            concat=False,
            sample_timeout_s=self._seconds,
            _uses_new_env_runners=True,
            _return_metrics=True,
        )
        found, restarted = {}, []
        for episode in itertools.chain.from_iterable(samples):
            observation = episode.get_observations(-1)
            if episode.id_ not in self._episodes:
                self._episodes[episode.id_] = round(float(observation[0]))
                restarted.append(self._episodes[episode.id_])
            found[self._episodes[episode.id_]] = row(observation, episode.get_rewards(-1))
        began = len(self._episodes) == NUM_ENVS  # the first episodes are no restarts
        return Answer(found, () if began else tuple(restarted), self._told(metrics))

    def _told(self, metrics: Any) -> str:
        words = []
        healthy, restarts = self._group.num_healthy_remote_workers(), self._group.num_remote_worker_restarts()
        if healthy < RUNNERS:
            words.append(f"{RUNNERS - healthy} env runners are not healthy")
        if restarts > self._restarts:
            words.append(f"{restarts - self._restarts} env runners were restarted")
        failures = sum(float(each[FAILURES].peek()) for each in metrics if FAILURES in each)
        if failures > self._failures:
            words.append(f"{FAILURES} is {failures:g}")
        self._restarts, self._failures = restarts, max(failures, self._failures)
        return "; ".join(words)

    def limit_steps(self, seconds: float) -> None:
        """`sample_timeout_s` of the configuration, which would also be the limit for the first sample."""
        self._seconds = seconds

    def close(self) -> None:
        """Stop the algorithm and Ray."""
        self._algorithm.stop()
        ray.shutdown()


def make(setup: Setup) -> Subject:
    """Make one."""
    if setup.checks_nan:
        raise CannotBeMeasured("it has no check for NaN")
    ray.init(
        address="local",
        num_cpus=RUNNERS + 1,
        include_dashboard=False,
        logging_level=logging.ERROR,
        _temp_dir=setup.folder,
    )

    def make_env(context: Any) -> FailingEnv:
        first = (context.worker_index - 1) * EACH
        return FailingEnv(setup.plan(first + next(_made) % EACH))

    register_env("failing", make_env)
    config = (
        PPOConfig()
        .environment("failing")
        .env_runners(num_env_runners=RUNNERS, num_envs_per_env_runner=EACH, rollout_fragment_length=1)
        .fault_tolerance(restart_failed_env_runners=True, restart_failed_sub_environments=True)
        .debugging(seed=SEED)
    )
    return RLlibRunners(config.build_algo())
