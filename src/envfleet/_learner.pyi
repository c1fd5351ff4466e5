"""Networks and their updates in compiled code, on torch's own memory."""

from typing import Any

import numpy as np
import numpy.typing as npt

from envfleet._native import RowPolicy

def kernel_names() -> list[str]: ...
def carry(
    added: npt.NDArray[np.float64],
    decay: npt.NDArray[np.float64],
    start: npt.NDArray[np.float64],
    result: npt.NDArray[np.float64],
    backwards: bool,
) -> None: ...

class Perceptron:
    def __init__(
        self,
        layers: list[tuple[Any, Any]],
        activation: str,
        statistics: tuple[Any, Any, Any, float] | None = None,
        kernels: str | None = None,
    ) -> None: ...
    @property
    def inputs(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def kernels(self) -> str: ...
    def forward(self, observations: npt.NDArray[np.float32 | np.float64]) -> npt.NDArray[np.float32]: ...

class Policy(RowPolicy):
    def __init__(
        self,
        network: Perceptron,
        head: str,
        sizes: list[int],
        starts: list[int],
        sees_doubles: bool,
        takes_doubles: bool,
        steps: int,
        rows: int,
        noise: npt.NDArray[np.float32] | None,
        log_deviations: npt.NDArray[np.float32] | None,
        bounds: tuple[list[float], ...] | None,
        judges: bool,
    ) -> None: ...
    def act(self, step: int, observations: npt.NDArray[Any], actions: npt.NDArray[Any]) -> bool: ...

class Trainable:
    def __init__(
        self,
        parameters: list[tuple[Any, Any, Any, Any]],
        activation: str,
        statistics: tuple[Any, Any, Any, float] | None = None,
        kernels: str | None = None,
    ) -> None: ...

_Step = tuple[float, float, float, float, float]
_Outcome = tuple[tuple[str, float] | None, list[float]]

class OnPolicy:
    def __init__(self, actor: Trainable, critic: Trainable, head: str, sizes: list[int]) -> None: ...
    def load(
        self,
        observations: npt.NDArray[np.float32 | np.float64],
        choices: npt.NDArray[np.int32] | None,
        numbers: npt.NDArray[np.float32] | None,
        advantages: npt.NDArray[np.float32],
        returns: npt.NDArray[np.float32],
    ) -> None: ...
    def remember_policy(self, two_threads: bool) -> None: ...
    def ppo_epoch(
        self,
        order: npt.NDArray[np.int64],
        *,
        minibatch: int,
        entropy_coef: float,
        normalize_advantages: bool,
        clip_range: float,
        actor: _Step,
        critic: _Step,
        two_threads: bool,
    ) -> _Outcome: ...
    def a2c(
        self,
        *,
        critic_updates: int,
        entropy_coef: float,
        normalize_advantages: bool,
        actor: _Step,
        critic: _Step,
        two_threads: bool,
    ) -> _Outcome: ...

class SoftActorCritic:
    def __init__(
        self,
        actor: Trainable,
        critics: list[tuple[Any, Any, Any, Any]],
        targets: list[Any],
        activation: str,
        statistics: tuple[Any, Any, Any, float] | None,
        target_statistics: tuple[Any, Any, Any, float] | None,
        temperature: tuple[Any, Any, Any, Any],
    ) -> None: ...
    def update(
        self,
        observations: npt.NDArray[np.float32 | np.float64],
        actions: npt.NDArray[np.float32],
        rewards: npt.NDArray[np.float32],
        next_observations: npt.NDArray[np.float32 | np.float64],
        discounts: npt.NDArray[np.float32],
        terminated: npt.NDArray[np.float32],
        noise: npt.NDArray[np.float32],
        *,
        actor: _Step,
        critic: _Step,
        temperature: _Step,
        tau: float,
        target_entropy: float,
        reward_scale: float,
        two_threads: bool,
    ) -> _Outcome: ...

class TwinDelayed:
    def __init__(
        self,
        actor: Trainable,
        critics: list[tuple[Any, Any, Any, Any]],
        target_actor: list[Any],
        targets: list[Any],
        activation: str,
        target_actor_statistics: tuple[Any, Any, Any, float] | None,
        statistics: tuple[Any, Any, Any, float] | None,
        target_statistics: tuple[Any, Any, Any, float] | None,
    ) -> None: ...
    def update(
        self,
        observations: npt.NDArray[np.float32 | np.float64],
        actions: npt.NDArray[np.float32],
        rewards: npt.NDArray[np.float32],
        next_observations: npt.NDArray[np.float32 | np.float64],
        discounts: npt.NDArray[np.float32],
        terminated: npt.NDArray[np.float32],
        noise: npt.NDArray[np.float32],
        *,
        actor: _Step,
        critic: _Step,
        tau: float,
        reward_scale: float,
        done: int,
        delay: int,
        two_threads: bool,
    ) -> _Outcome: ...

class QNetwork:
    def __init__(
        self,
        network: Trainable,
        target: list[Any],
        target_statistics: tuple[Any, Any, Any, float] | None,
    ) -> None: ...
    def update(
        self,
        observations: npt.NDArray[np.float32 | np.float64],
        choices: npt.NDArray[np.int32],
        rewards: npt.NDArray[np.float32],
        next_observations: npt.NDArray[np.float32 | np.float64],
        discounts: npt.NDArray[np.float32],
        terminated: npt.NDArray[np.float32],
        weights: npt.NDArray[np.float32] | None,
        errors: npt.NDArray[np.float32],
        *,
        updates: int,
        step: _Step,
        tau: float,
        reward_scale: float,
        is_double: bool,
        two_threads: bool,
    ) -> _Outcome: ...
