"""Reading a trace for leases that were cut short, on traces that are written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from .trace import too_early

SECOND = 10**9
LEASE = 10


def trace(*steps: tuple[float, str, Any]) -> list[dict[str, Any]]:
    """(seconds, "claim 1", answer): a call that began then and was answered a tenth of a second later."""
    lines = []
    for number, (at, step, answer) in enumerate(steps):
        op, _, fence = step.partition(" ")
        owner = f"worker {fence}"
        asked: dict[str, Any] = {"ids": ["j"]}
        if op == "claim":
            asked["lease"] = LEASE
        elif op == "renew":
            asked |= {"lease": LEASE, "leases": {"j": (int(fence), owner)}}
        else:
            asked["seen"] = ["running", None, int(fence), owner]
        begin = int(at * SECOND)
        lines.append({"at": begin, "call": str(number), "op": op, **asked})
        lines.append({"at": begin + SECOND // 10, "call": str(number), "answer": answer})
    return sorted(lines, key=lambda line: line["at"])


CLAIMED = (0.0, "claim 1", ["granted", 1, "worker 1"])


@pytest.mark.parametrize(
    "steps",
    [
        [CLAIMED, (10.0, "recover 1", True)],
        [CLAIMED, (5.0, "recover 1", False)],
        [CLAIMED, (6.0, "renew 1", ["j"]), (16.0, "recover 1", True)],
        [CLAIMED, (6.0, "renew 1", []), (10.0, "recover 1", True)],
        [CLAIMED, (10.0, "recover 1", True), (10.5, "claim 2", ["granted", 2, "worker 2"]), (21.0, "recover 2", True)],
    ],
    ids=["over", "refused", "over after a renewal", "a renewal that was refused", "each its own"],
)
def test_a_job_that_was_taken_when_its_lease_was_over_was_not_taken_early(steps: Any) -> None:
    assert too_early(trace(*steps), "j") is None


@pytest.mark.parametrize(
    "steps",
    [
        [CLAIMED, (5.0, "recover 1", True)],
        [CLAIMED, (6.0, "renew 1", ["j"]), (11.0, "recover 1", True)],
        [CLAIMED, (10.0, "recover 1", True), (10.5, "claim 2", ["granted", 2, "worker 2"]), (12.0, "recover 2", True)],
    ],
    ids=["the claim's", "the renewal's", "the next claim's"],
)
def test_a_job_that_was_taken_before_its_lease_was_over_is_seen(steps: Any) -> None:
    found = too_early(trace(*steps), "j")
    assert found is not None
    assert "before its lease was over" in found
