"""The kits say what they compare, like tests."""

from __future__ import annotations

import pytest

KITS = ("journal_kit", "kit_commits", "kit_deletion", "kit_reading", "opening")
pytest.register_assert_rewrite(*(f"{__package__}.{kit}" for kit in KITS))
