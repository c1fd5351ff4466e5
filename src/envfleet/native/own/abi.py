"""The structs of ``envfleet_env.h`` as ctypes has them. A test compares their sizes with the compiler's."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_uint8, c_uint32, c_uint64, c_void_p

from envfleet import _native

VERSION = 1
SYMBOL = "envfleet_get_environment"
BOX, DISCRETE, MULTI_DISCRETE = 1, 2, 3
TYPES = {1: "float32", 2: "float64", 3: "int8", 4: "int16", 5: "int32", 6: "int64", 7: "uint8", 8: "bool"}
"""NumPy's name of each type's number."""
TYPE_NUMBERS = {name: number for number, name in TYPES.items()}

Uniform = ctypes.CFUNCTYPE(c_double, c_void_p, c_double, c_double)
Normal = ctypes.CFUNCTYPE(c_double, c_void_p, c_double, c_double)
Integers = ctypes.CFUNCTYPE(c_int64, c_void_p, c_int64, c_int64)

Reset = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)
Step = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
Observe = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)
ErrorMessage = ctypes.CFUNCTYPE(c_char_p, c_int32)


class BitGenerator(Structure):
    """NumPy's ``bitgen_t``, with which an ``envfleet_random`` begins."""

    _fields_ = (
        ("generator", c_void_p),
        ("next_uint64", c_void_p),
        ("next_uint32", c_void_p),
        ("next_double", c_void_p),
        ("next_raw", c_void_p),
    )


class Random(Structure):
    """``envfleet_random``."""

    _fields_ = (("bits", BitGenerator), ("uniform", c_void_p), ("normal", c_void_p), ("integers", c_void_p))

    @staticmethod
    def of(bit_generator: int) -> Random:
        """The random numbers of the NumPy generator at this address."""
        functions = _native.random_functions()
        bits = BitGenerator.from_address(bit_generator)
        return Random(bits, functions["uniform"], functions["normal"], functions["integers"])


class Space(Structure):
    """``envfleet_space``."""

    _fields_ = (
        ("kind", c_uint32),
        ("type", c_uint32),
        ("ndim", c_uint32),
        ("shape", POINTER(c_int64)),
        ("low", c_double),
        ("high", c_double),
        ("lows", POINTER(c_double)),
        ("highs", POINTER(c_double)),
        ("counts", POINTER(c_int64)),
    )


class Parameter(Structure):
    """``envfleet_parameter``."""

    _fields_ = (("name", c_char_p), ("type", c_uint32), ("initial", c_double))


class Outcome(Structure):
    """``envfleet_outcome``."""

    _fields_ = (("reward", c_double), ("terminated", c_uint8), ("truncated", c_uint8))


class Environment(Structure):
    """``envfleet_environment``."""

    _fields_ = (
        ("abi_version", c_uint32),
        ("struct_size", c_uint32),
        ("name", c_char_p),
        ("observation", Space),
        ("action", Space),
        ("state_size", c_uint64),
        ("max_episode_steps", c_int64),
        ("num_parameters", c_uint32),
        ("parameters", POINTER(Parameter)),
        ("reset", Reset),
        ("step", Step),
        ("observe", Observe),
        ("error_message", ErrorMessage),
    )
