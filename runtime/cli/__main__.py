"""`python -m bread.runtime.cli`: the same as `bread`."""

from __future__ import annotations

from . import main

main()
