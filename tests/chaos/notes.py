"""What the publisher knows, written down before and after each of its steps, so that whoever kills it can say what it had been told.

A line of the file is ``[place of the step in the plan, word, ...]``, and is on the disk before anything else happens: ``asked`` before the step,
and after it ``accepted`` or ``answered`` (where there is a key, with the job that holds it), ``rolled back``, or ``cancel`` (with the answer, and the
job's fence).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .plan import Plan, Unit

__all__ = ["ACCEPTED", "IN_DOUBT", "NEVER_ASKED", "ROLLED_BACK", "Noted", "Notes", "Sight"]

ACCEPTED, ROLLED_BACK, IN_DOUBT, NEVER_ASKED = "accepted", "rolled back", "in doubt", "never asked"


@dataclass
class Noted:
    """What the publisher was told."""

    asked: set[str] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)
    rolled_back: set[str] = field(default_factory=set)
    #: By name of the unit: the job that each of its sends was answered with.
    answers: dict[str, list[str]] = field(default_factory=dict)
    #: By id: what a cancel was answered with, and the fence that the job had then.
    cancels: dict[str, tuple[str, int]] = field(default_factory=dict)

    def told(self, unit: Unit) -> str:
        """Accepted, rolled back, in doubt (asked without an answer), or never asked."""
        if unit.name in self.accepted:
            return ACCEPTED
        if unit.name in self.rolled_back:
            return ROLLED_BACK
        return IN_DOUBT if unit.name in self.asked else NEVER_ASKED

    def take(self, plan: Plan, lines: Iterable[Sequence[Any]]) -> Noted:
        """Learn what these lines say."""
        for place, word, *more in lines:
            step = plan.steps[place]
            name = step.unit.name
            match word:
                case "asked" if step.what == "send":
                    self.asked.add(name)
                case "accepted":
                    self.accepted.add(name)
                    self._answered(name, more)
                case "rolled back":
                    self.rolled_back.add(name)
                case "answered":
                    self._answered(name, more)
                case "cancel":
                    self.cancels[step.unit.id()] = (more[0], more[1])
        return self

    def _answered(self, name: str, holder: Sequence[str]) -> None:
        if holder:
            self.answers.setdefault(name, []).extend(holder)


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen at one moment in which nobody published: of each unit what the publisher had been told, and which of its parts were there."""

    when: str
    units: Sequence[tuple[Unit, str, frozenset[str]]]


class Notes:
    """The file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, *line: Any) -> None:
        """Append a line; it is on the disk when this returns."""
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lines(self) -> list[Any]:
        """What was written; of a line that was cut off in the middle, nothing is kept."""
        if not self._file.exists():
            return []
        whole, _, torn = self._file.read_bytes().rpartition(b"\n")
        if torn:
            os.truncate(self._file, len(whole) + 1 if whole else 0)
        return [json.loads(line) for line in whole.splitlines()]

    def size(self) -> int:
        """How long the file is."""
        return self._file.stat().st_size if self._file.exists() else 0

    def is_asking(self, since: int) -> bool:
        """Whether the last line is a question that has no answer yet, and was written since the file was that long."""
        if self.size() <= since:
            return False
        with self._file.open("rb") as file:
            file.seek(max(since, self.size() - 200))
            return file.read().endswith(b'"asked"]\n')
