"""What the ledger says about the last long run under chaos is what came of it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.chaos.soak import LAST, row

LEDGER = Path(__file__).parents[2] / "docs" / "guarantees.md"


def test_the_ledger_shows_the_last_soak_and_nothing_was_found_by_it() -> None:
    kept = json.loads(LAST.read_text(encoding="utf-8"))
    assert row(kept) in LEDGER.read_text(encoding="utf-8").splitlines()
    assert kept["problems"] == {}
