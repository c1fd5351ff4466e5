"""`Unflatten`: what `envfleet.wrappers.FlattenSpaces` has flattened, nested again inside a network."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn

from envfleet.train.observations import Tensors
from envfleet.wrappers._leaves import unflatten
from envfleet.wrappers.flat_spaces import FlatObservations


@final
class Unflatten(nn.Module):
    """From rows of `FlattenSpaces` to the observations they were: the first layer of a network that reads these.

    Args:
        space: of a single environment's observations, nested.
        as_bytes: whether the rows are bytes, as for `FlattenSpaces`.
    """

    def __init__(self, space: Space[Any], *, as_bytes: bool = False) -> None:
        super().__init__()
        flat = FlatObservations(space, as_bytes=as_bytes)
        self._space, self._as_bytes = space, as_bytes
        self._widths = [width for width, _, _ in flat.leaves]
        self._layouts = [(shape, torch.from_numpy(np.empty(0, dtype)).dtype) for _, shape, dtype in flat.leaves]

    def forward(self, rows: Tensor) -> Tensors:
        """Tensors [batch, *shape] in the leaves' dtypes, nested like the space, for rows [batch, n].

        Rows of bytes may come as floats: many libraries turn all that enters a network into these.
        """
        columns = torch.split(rows, self._widths, -1)
        pairs = zip(columns, self._layouts, strict=True)
        nested: Tensors = unflatten(self._space, [self._leaf(*pair) for pair in pairs])
        return nested

    def _leaf(self, columns: Tensor, layout: tuple[tuple[int, ...], torch.dtype]) -> Tensor:
        shape, dtype = layout
        if not self._as_bytes or not columns.shape[-1]:
            return columns.to(dtype).reshape(len(columns), *shape)
        # Copied: the bytes of a number must lie at a multiple of its size.
        own = columns.to(torch.uint8).clone(memory_format=torch.contiguous_format)
        return own.view(dtype).reshape(len(columns), *shape)
