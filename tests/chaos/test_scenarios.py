"""Under every fault: nothing accepted is lost, nothing is doubled, and all comes to its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ledger import STACK

from .scenarios import SCENARIOS, new_seed, play

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

#: Jobs of a scenario.
SIZE = int(os.environ.get("GUARD_CHAOS_SIZE") or 1000)


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_lost_doubled_or_stuck_when(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    scenario = SCENARIOS[name]
    request.node.user_properties.append((STACK, f"{scenario.broker}-{scenario.store}"))
    report = play(name, scenario, tmp_path, new_seed(), SIZE)
    print(report)
    assert report.history.calls
    assert not report.problems, f"GUARD_CHAOS_SEED={report.seed}: {report}"
