"""A short run of the fuzz; ``python tests/fuzz/native_states.py`` is the long one."""

from __future__ import annotations

from collections import Counter

import pytest
from native_states import fuzz, ids


@pytest.mark.usefixtures("box2d")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("env_id", ids())
def test_damaged_snapshots_and_impossible_attributes_change_nothing(env_id: str) -> None:
    told: Counter[str] = Counter()
    fuzz(env_id, 0, 25, told)
    assert told["states refused"] > 0
    assert told["attributes refused"] > 0
