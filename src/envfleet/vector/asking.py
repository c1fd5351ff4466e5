"""Calls and attributes of environments: what is asked of them beside steps and resets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from envfleet import _core
from envfleet.vector.failures import Failure
from envfleet.vector.engine import CallOrder, Report, SetAttrOrder

AnyEnv = gymnasium.Env[Any, Any]

_HARMLESS = frozenset(("render",))


def ask(
    order: CallOrder | SetAttrOrder,
    envs: Sequence[AnyEnv],
    first_index: int,
    touched: npt.NDArray[np.bool_],
    progress: _core.Progress,
) -> Report:
    """Asks all for which ``order.mask`` holds, and notes in ``touched`` those that it may have changed.

    An exception is noted as a failure of one environment; the others are asked all the same.
    """
    report = Report()
    for row in np.flatnonzero(order.mask).tolist():
        progress.enter(row)
        method = "call" if isinstance(order, CallOrder) else "set_attr"
        try:
            if isinstance(order, SetAttrOrder):
                touched[row] = True
                envs[row].set_wrapper_attr(order.name, order.values[row])
                continue
            value = envs[row].get_wrapper_attr(order.name)
            if callable(value):
                touched[row] |= order.name not in _HARMLESS
                value = value(*order.args, **order.kwargs)
            report.results.append((first_index + row, value))
        except (Exception, SystemExit) as error:
            report.failures.append(Failure.of(error, first_index + row, method, order.name))
    return report
