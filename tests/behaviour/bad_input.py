"""What the tests of bad input share."""

from __future__ import annotations

from typing import Any

import pytest

# What is refused before the store sees it, or is an outcome like any other, needs one store to be shown.
IN_MEMORY = pytest.mark.parametrize("mode", ["memory"])


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value
