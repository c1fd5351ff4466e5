"""Networks and their updates in compiled code, on torch's own memory."""

from typing import Any

import numpy as np
import numpy.typing as npt

def kernel_names() -> list[str]: ...

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
