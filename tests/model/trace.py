"""Traces of real runs: every store call of every process written down, and read against the rules of the model.

A call takes effect at one moment between its beginning and its end; one whose process was killed may have taken effect, or not. So a job's
trace is right if there is an order of moments in which every answer is the one that the rules give. Time may pass at any moment.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from celery_guard.job.settlement import Settlement
from celery_guard.job.verdict import Granted, Settled

from . import rules
from .rules import ENDED, End, Mine, Row, Seen

__all__ = ["Recorder", "lines_of", "read", "too_early", "why_not"]

Call = dict[str, Any]
#: The row, and what the open calls that have taken effect will answer.
Moment = tuple[Row, frozenset[tuple[str, Any]]]

#: The trace is written by the processes' clock, and a lease is as long as the store's says.
_CLOCKS_DIFFER = 0.01

RECORDED = {"claim", "renew", "settle", "told", "take", "sent", "recover", "commit"}


class Recorder:
    """A store, or a transaction of one, that writes down what it is asked and what it answers."""

    def __init__(self, inner: Any, file: Path) -> None:
        self._inner = inner
        self._file = file
        self._calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "begin":
            return lambda: Recorder(found(), self._file)
        return self._recorded(name, found) if name in RECORDED else found

    def _recorded(self, name: str, call: Any) -> Any:
        def recorded(*given: Any) -> Any:
            given = tuple(list(value) if isinstance(value, Iterator) else value for value in given)
            number = f"{os.getpid()}.{time.monotonic_ns()}"
            self._write({"call": number, "op": name, **_asked(name, given)})
            answer = call(*given)
            self._write({"call": number, "answer": _answered(name, answer)})
            return answer

        return recorded

    def _write(self, line: Call) -> None:
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, json.dumps({"at": time.monotonic_ns(), **line}).encode() + b"\n")
        finally:
            os.close(descriptor)


def _asked(name: str, given: tuple[Any, ...]) -> Call:
    if name == "claim":
        return {"ids": [given[0]], "lease": given[2].total_seconds()}
    if name in ("settle", "commit"):
        return {"ids": [given[0].id], "mine": [given[0].fence, given[0].owner], "how": _end(given[0])}
    if name == "told":
        return {"ids": [id for id, _ in given[0]], "fences": dict(given[0])}
    if name == "renew":
        leases = {id: (fence, owner) for id, fence, owner in given[0]}
        return {"ids": [*leases], "leases": leases, "lease": given[1].total_seconds()}
    if name == "take":
        return {"ids": None, "token": given[0]}
    if name == "sent":
        return {"ids": list(given[1]), "token": given[0]}
    attempt, settlement = given
    seen = [attempt.state.value, attempt.reason and attempt.reason.value, attempt.fence, attempt.owner or None]
    return {"ids": [attempt.id], "seen": seen, "how": _end(settlement)}


def _end(it: Settlement) -> list[Any]:
    return [it.state.value, it.reason.value if it.reason else None, it.charged, it.crashed, it.told]


def _answered(name: str, answer: Any) -> Any:
    if name == "claim":
        if isinstance(answer, Granted):
            return ["granted", answer.fence, answer.owner]
        if isinstance(answer, Settled):
            return ["settled", answer.state.value, answer.tell]
        return [type(answer).__name__.lower()]
    if name == "take":
        return [row.id for row in answer]
    if name == "renew":
        return [kept.id for kept in answer]
    return answer


# -- reading ----------------------------------------------------------------------------------------------------------


def read(file: Path) -> list[Call]:
    """All that was written, in order of time."""
    return sorted(lines_of(file), key=lambda line: line["at"])


def lines_of(file: Path) -> Iterator[Call]:
    """All that was written, a line at a time: in the order of each process."""
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def why_not(lines: list[Call], id: str) -> str | None:
    """The first answer about a job that no order of moments explains; None where all are explained."""
    answers = {line["call"]: line["answer"] for line in lines if "answer" in line}
    strangers = _strangers(lines, answers, id)
    open_calls: dict[str, Call] = {}
    moments: set[Moment] = {(Row(), frozenset())}
    for line in lines:
        call = line["call"]
        if "op" in line:
            known = answers.get(call)
            ids = line["ids"] if line["ids"] is not None else (known if known is not None else [id])
            if id in ids:
                open_calls[call] = {**line, "known": known, "strangers": strangers}
        elif call in open_calls:
            expected = _about(open_calls[call], line["answer"], id)
            reached = _closure(moments, open_calls, id)
            moments = {(row, done - {(call, expected)}) for row, done in reached if (call, expected) in done}
            if not moments:
                return (
                    f"{open_calls[call]['op']} of {id} answered {line['answer']}, among {sorted(reached, key=str)[:3]}"
                )
            del open_calls[call]
    return None


def too_early(lines: list[Call], id: str) -> str | None:
    """The first time that a job was taken from an owner whose lease was not over; None where none was.

    A lease that a claim or a renewal has given lasts until its length after that call began, at the least. Who takes the job from
    its owner, and asked after that call had answered, may not be answered yes before.
    """
    begun = {line["call"]: line for line in lines if "op" in line}
    ended = {line["call"]: line for line in lines if "answer" in line}
    until: dict[tuple[int, str], tuple[int, int]] = {}
    for line in lines:
        call = begun[line["call"]]
        if "answer" in line:
            for lease in _leases(call, line["answer"], id):
                until[lease] = line["at"], call["at"] + int(call["lease"] * 1e9 * (1 - _CLOCKS_DIFFER))
        elif line["op"] == "recover" and line["ids"] == [id] and line["seen"][0] == "running" and line["call"] in ended:
            fence, owner = line["seen"][2:]
            given, over = until.get((fence, owner), (0, 0))
            done = ended[line["call"]]
            if done["answer"] and given < line["at"] and done["at"] < over:
                return f"{owner} (fence {fence}) lost {id} {(over - done['at']) / 1e9:.3f} s before its lease was over"
    return None


def _leases(call: Call, answer: Any, id: str) -> list[tuple[int, str]]:
    """What a call has given a lease to."""
    if call["op"] == "claim" and call["ids"] == [id] and answer[0] == "granted":
        return [(answer[1], answer[2])]
    if call["op"] == "renew" and id in answer:
        fence, owner = call["leases"][id]
        return [(fence, owner)]
    return []


def _about(call: Call, answer: Any, id: str) -> Any:
    if call["op"] in ("claim",):
        return tuple(answer)
    if call["op"] == "renew":
        return id in answer
    if call["op"] in ("told", "sent", "take"):
        return None
    return answer


def _closure(moments: set[Moment], open_calls: dict[str, Call], id: str) -> set[Moment]:
    waiting, reached = list(moments), set(moments)
    while waiting:
        row, done = waiting.pop()
        nexts: list[Moment] = []
        later = rules.come(row)
        if later is not None:
            nexts.append((later, done))
        have = {call for call, _ in done}
        for number, call in open_calls.items():
            if number not in have:
                for owner in _owners(call, number):
                    after, answer = _effect(row, call, owner, id)
                    nexts.append((after, done | {(number, answer)}))
        for moment in nexts:
            if moment not in reached:
                reached.add(moment)
                waiting.append(moment)
    return reached


def _strangers(lines: list[Call], answers: dict[str, Any], id: str) -> list[str]:
    """Owners that a sweep has seen, of claims whose process did not live to write down their answer."""
    granted = {answer[2] for answer in answers.values() if isinstance(answer, list) and answer[:1] == ["granted"]}
    seen = {line["seen"][3] for line in lines if line.get("op") == "recover" and line["ids"] == [id]}
    return sorted(owner for owner in seen - granted if owner)


def _owners(call: Call, number: str) -> list[str]:
    """Who may own what this call claims."""
    known = call["known"]
    if call["op"] == "claim" and known is None:
        return [*call["strangers"], number]
    return [known[2] if known and call["op"] == "claim" and known[0] == "granted" else number]


def _effect(row: Row, call: Call, owner: str, id: str) -> tuple[Row, Any]:
    """The row after the call, and what the call answers."""
    op = call["op"]
    if op == "claim":
        return _claimed(row, owner)
    if op in ("settle", "commit"):
        moved = rules.settle(row, Mine(call["mine"][0], call["mine"][1], 0), End(*call["how"]))
    elif op == "recover":
        moved = rules.recover(row, Seen(*call["seen"]), End(*call["how"]))
    elif op == "renew":
        moved = rules.renew(row, Mine(call["leases"][id][0], call["leases"][id][1], 0))
    else:
        steps = {
            "told": lambda: rules.told(row, call["fences"][id]),
            "take": lambda: rules.take(row, call["token"]),
            "sent": lambda: rules.published(row, call["token"]),
        }
        return steps[op]() or row, None
    return moved or row, moved is not None


def _claimed(row: Row, owner: str) -> tuple[Row, Any]:
    taken = rules.claim(row, owner)
    if taken is not None:
        return taken, ("granted", taken.fence, owner)
    if row.state in ENDED:
        spoken = rules.speak(row, row.state, row.fence)
        return spoken or row, ("settled", row.state, spoken is not None)
    return row, ("leased",) if row.state == "running" else ("notdue",)
