"""What real workers, relays and sweeps asked of the store while they were killed is something that the model allows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from celery_guard.testing.faults import Faults
from tests.model.trace import read, too_early, why_not

from .fleet import Fleet, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]

AIMS = (
    "record", "claim.before", "claim.1.after", "claim.after", "body.before", "body.after", "settle.before", "settle.1.before",
    "settle.1.after", "settle.after", "tell.before", "tell.after", "told.before", "told.after", "tell.before+tell.before",
)  # fmt: skip


@pytest.mark.parametrize("stack", ["redis-postgresql", "embedded"])
def test_what_was_asked_of_the_store_while_processes_died_is_what_the_model_allows(
    make_fleet: Callable[..., Fleet], stack: str
) -> None:
    fleet = make_fleet(stack, "tests.integration.app_kill")
    deaths, trace = fleet.folder / "deaths", fleet.folder / "trace"
    deaths.mkdir()
    ids = [fleet.app.work.apply_async((1,), task_id=f"{aim}@{number}").id for number, aim in enumerate(AIMS)]
    fleet.worker("prefork", 4, GUARD_TEST_FAULTS=str(deaths), APP_TRACE=str(trace))
    for id in ids:
        assert fleet.settled(id, seconds=90).state.value == "succeeded"
    eventually(lambda: all(fleet.job(id).told for id in ids), 60, "Celery was told of all")
    lines = read(trace)
    assert Faults(Path(deaths)).struck(ids[-1]) == 2
    assert {line["op"] for line in lines if "op" in line} >= {"claim", "settle", "told", "take", "sent", "recover"}
    wrong = {id: found for id in ids if (found := why_not(lines, id)) is not None}
    assert not wrong, wrong
    early = {id: found for id in ids if (found := too_early(lines, id)) is not None}
    assert not early, early
    # and a lease that had been longer than it was taken for is seen
    longer = [{**line, "lease": line["lease"] + 600} if "lease" in line else line for line in lines]
    assert any(too_early(longer, id) for id in ids)
    # and a trace that no order explains is seen
    grants = [line["answer"] for line in lines if isinstance(line.get("answer"), list) and "granted" in line["answer"]]
    grants[0][1] += 1
    assert any(why_not(lines, id) for id in ids)
