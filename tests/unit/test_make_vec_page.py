"""docs/make_vec.md names every argument of make_vec and of its backends, and no other."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from envfleet import NativeVectorEnv, backends, make_vec

PAGE = (Path(__file__).parents[2] / "docs" / "make_vec.md").read_text()
OF_MAKE_VEC, OF_VECTOR_ENVS = PAGE.split("## Arguments of the vector environments")


def rows(text: str) -> dict[str, list[str]]:
    found = re.findall(r"^\| `(\w+)` \|(.*)\|$", text, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split(" |")] for name, cells in found}


def test_every_argument_of_make_vec_is_there_in_order_with_its_default() -> None:
    parameters = inspect.signature(make_vec).parameters
    page = rows(OF_MAKE_VEC)
    assert list(page) == list(parameters)
    for name, parameter in parameters.items():
        default = "" if parameter.default is parameter.empty else f"`{parameter.default!r}`".replace("'", '"')
        assert page[name][0] == default, name


@pytest.mark.parametrize(("column", "backend"), list(enumerate(["native", "sync", "process", "ray", "jax"])))
def test_every_argument_of_a_backend_is_marked(column: int, backend: str) -> None:
    found = backends.find(backend)
    assert found is not None
    marked = {name for name, cells in rows(OF_VECTOR_ENVS).items() if cells[column] == "x"}
    assert marked == set(found.takes)


def test_what_compiled_environments_take_is_what_their_constructor_takes() -> None:
    found = backends.find("native")
    assert found is not None
    internal = {"spec", "num_envs", "env_kwargs", "varied", "origins"}
    assert set(found.takes) - {"observation_mode"} == set(inspect.signature(NativeVectorEnv).parameters) - internal
