"""The pool's random numbers in code that numba compiles, with the names of ``numpy.random.Generator``'s methods."""
# ruff: noqa: ARG005  lambdas with arguments that numba wants to see

from __future__ import annotations

from functools import partial
from typing import Any, final

from numba import types
from numba.core.imputils import lower_cast
from numba.core.typeconv import Conversion
from numba.extending import models, overload_method, register_model

from envfleet import _native
from envfleet.native.own import abi

_ADDRESSES = _native.random_functions()
_uniform = abi.Uniform(_ADDRESSES["uniform"])
_normal = abi.Normal(_ADDRESSES["normal"])
_integers = abi.Integers(_ADDRESSES["integers"])


@final
class RandomType(types.Opaque):  # type: ignore[misc]
    """A pointer to an ``envfleet_random``."""

    def can_convert_to(self, typingctx: Any, other: Any) -> Conversion | None:  # noqa: ARG002  numba's signature
        """C functions take it as a plain pointer."""
        return Conversion.safe if other == types.voidptr else None


RANDOM = RandomType("envfleet_random")
register_model(RandomType)(models.OpaqueModel)


lower_cast(RandomType, types.voidptr)(lambda context, builder, from_type, to_type, value: value)

# numba asks the outer functions, which see types, for the inner ones, which it compiles; their arguments must be alike.
_add = partial(overload_method, RandomType)
_add("random")(lambda random: lambda random: _uniform(random, 0.0, 1.0))
_add("uniform")(lambda random, low=0.0, high=1.0: lambda random, low=0.0, high=1.0: _uniform(random, low, high))
_add("normal")(lambda random, loc=0.0, scale=1.0: lambda random, loc=0.0, scale=1.0: _normal(random, loc, scale))
_add("standard_normal")(lambda random: lambda random: _normal(random, 0.0, 1.0))
_add("integers")(
    lambda random, low, high=None: (
        (lambda random, low, high=None: _integers(random, 0, low))
        if high in (None, types.none) or isinstance(high, types.Omitted)
        else (lambda random, low, high=None: _integers(random, low, high))
    )
)
