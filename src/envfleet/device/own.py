"""Environments written against envfleet's own interface, ``FunctionalEnv``: made ones, and classes of such."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from envfleet._names import accepted_keywords
from envfleet.device.functional import FunctionalEnv, refuse_unknown


def adapted(what: Any, env_kwargs: Mapping[str, Any]) -> FunctionalEnv:
    """The environment itself, with values for its parameters; a class is given what its constructor takes."""
    values = dict(env_kwargs)
    if isinstance(what, type):
        accepted = accepted_keywords(what) or ()
        env: FunctionalEnv = what(**{name: values.pop(name) for name in accepted if name in values})
    else:
        env = copy(what)
    refuse_unknown(values, env.parameters, env.name)
    env.values = {**env.values, **values}
    return env
