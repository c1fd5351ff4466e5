"""Types that appear in public signatures, for annotations in your own programs.

They are loaded when first asked for: those of training would bring torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envfleet._lazy import lazy_names

if TYPE_CHECKING:
    from envfleet._single import EnvMaker, Wrapper
    from envfleet.make import EnvReference, VectorizationMode
    from envfleet.native.env import EnvState, XlaFunctions
    from envfleet.native.own.environment import AnySpace, Description, Number
    from envfleet.native.own.layout import Fields
    from envfleet.randomize import Choice, Distribution, LogUniform, Normal, ParameterTable, Uniform
    from envfleet.redraw import ParameterStream
    from envfleet.testing.base import Fleet
    from envfleet.train.collecting import BoolArray, FloatArray, Policy, Rows
    from envfleet.train.folders.folder import AnyPath
    from envfleet.train.folders.trust import AllowImport
    from envfleet.train.judging.plots import ScenarioRow
    from envfleet.train.observations import Array, Observations, Tensors
    from envfleet.train.running.loggers.log_writer import Row
    from envfleet.train.running.loggers.registry import OpenLogger
    from envfleet.train.running.reporting import Callback
    from envfleet.train.sharing.export import ExportFormat
    from envfleet.train.sweeping.folder import PrunerName
    from envfleet.train.sweeping.space import SearchSpace
    from envfleet.train.wrapping import Wrap, Wrapping
    from envfleet.vector.engine import StepResult
    from envfleet.vector.failures import OnFailure
    from envfleet.vector.fused_env import AnyEnv, EnvFn
    from envfleet.vector.infos import Info
    from envfleet.vector.spaces import ObservationMode
    from envfleet.vector.vector_env import Indices, Options, Seed
    from envfleet.wrappers._common import AnyVectorEnv, Infos
    from envfleet.wrappers._moments import RunningMoments, State

__all__ = [
    "AllowImport",
    "AnyEnv",
    "AnyPath",
    "AnySpace",
    "AnyVectorEnv",
    "Array",
    "BoolArray",
    "Callback",
    "Choice",
    "Description",
    "Distribution",
    "EnvFn",
    "EnvMaker",
    "EnvReference",
    "EnvState",
    "ExportFormat",
    "Fields",
    "Fleet",
    "FloatArray",
    "Indices",
    "Info",
    "Infos",
    "LogUniform",
    "Normal",
    "Number",
    "ObservationMode",
    "Observations",
    "OnFailure",
    "OpenLogger",
    "Options",
    "ParameterStream",
    "ParameterTable",
    "Policy",
    "PrunerName",
    "Row",
    "Rows",
    "RunningMoments",
    "ScenarioRow",
    "SearchSpace",
    "Seed",
    "State",
    "StepResult",
    "Tensors",
    "Uniform",
    "VectorizationMode",
    "Wrap",
    "Wrapper",
    "Wrapping",
    "XlaFunctions",
]

_MODULES = {
    "AllowImport": "envfleet.train.folders.trust",
    "AnyEnv": "envfleet.vector.fused_env",
    "AnyPath": "envfleet.train.folders.folder",
    "AnySpace": "envfleet.native.own.environment",
    "AnyVectorEnv": "envfleet.wrappers._common",
    "Array": "envfleet.train.observations",
    "BoolArray": "envfleet.train.collecting",
    "Callback": "envfleet.train.running.reporting",
    "Choice": "envfleet.randomize",
    "Description": "envfleet.native.own.environment",
    "Distribution": "envfleet.randomize",
    "EnvFn": "envfleet.vector.fused_env",
    "EnvMaker": "envfleet._single",
    "EnvReference": "envfleet.make",
    "EnvState": "envfleet.native.env",
    "ExportFormat": "envfleet.train.sharing.export",
    "Fields": "envfleet.native.own.layout",
    "Fleet": "envfleet.testing.base",
    "FloatArray": "envfleet.train.collecting",
    "Indices": "envfleet.vector.vector_env",
    "Info": "envfleet.vector.infos",
    "Infos": "envfleet.wrappers._common",
    "LogUniform": "envfleet.randomize",
    "Normal": "envfleet.randomize",
    "Number": "envfleet.native.own.environment",
    "ObservationMode": "envfleet.vector.spaces",
    "Observations": "envfleet.train.observations",
    "OnFailure": "envfleet.vector.failures",
    "OpenLogger": "envfleet.train.running.loggers.registry",
    "Options": "envfleet.vector.vector_env",
    "ParameterStream": "envfleet.redraw",
    "ParameterTable": "envfleet.randomize",
    "Policy": "envfleet.train.collecting",
    "PrunerName": "envfleet.train.sweeping.folder",
    "Row": "envfleet.train.running.loggers.log_writer",
    "Rows": "envfleet.train.collecting",
    "RunningMoments": "envfleet.wrappers._moments",
    "ScenarioRow": "envfleet.train.judging.plots",
    "SearchSpace": "envfleet.train.sweeping.space",
    "Seed": "envfleet.vector.vector_env",
    "State": "envfleet.wrappers._moments",
    "StepResult": "envfleet.vector.engine",
    "Tensors": "envfleet.train.observations",
    "Uniform": "envfleet.randomize",
    "VectorizationMode": "envfleet.make",
    "Wrap": "envfleet.train.wrapping",
    "Wrapper": "envfleet._single",
    "Wrapping": "envfleet.train.wrapping",
    "XlaFunctions": "envfleet.native.env",
}


__getattr__, __dir__ = lazy_names(__name__, _MODULES)
