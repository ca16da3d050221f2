"""What is expected of Celery's own suite, a test at a time, and what a run has to say about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FILE", "Expected"]

FILE = Path(__file__).with_name("expected.json")


@dataclass(frozen=True)
class Expected:
    """Node ids under ``t/integration``, each in one of the three groups."""

    celery: str
    #: These pass, plain and guarded.
    passes: frozenset[str]
    #: These pass plain and fail guarded, since they test the very behaviour that the guard changes: id to reason.
    changed: Mapping[str, str]
    #: Nobody is measured by these: skipped, expected to fail by Celery, or failing without the guard as well: id to reason.
    unjudged: Mapping[str, str]
    #: These take longest: id to seconds, plain. Left out by ``--fast``.
    slow: Mapping[str, float]

    @classmethod
    def read(cls) -> Expected:
        """From the file beside this one."""
        found: dict[str, Any] = json.loads(FILE.read_text())
        return cls(found["celery"], frozenset(found["passes"]), found["changed"], found["unjudged"], found["slow"])

    def write(self) -> None:
        """To the file beside this one."""
        content = {
            "celery": self.celery,
            "changed": dict(sorted(self.changed.items())),
            "unjudged": dict(sorted(self.unjudged.items())),
            "slow": dict(sorted(self.slow.items())),
            "passes": sorted(self.passes),
        }
        FILE.write_text(json.dumps(content, indent=1) + "\n")

    def against(self, ended: Mapping[str, str], selected: frozenset[str], *, guarded: bool) -> dict[str, str]:
        """What is not as expected: id to what is wrong with it."""
        wrong = {}
        for name in sorted(selected | ended.keys()):
            said = self._against(name, ended.get(name), guarded)
            if said is not None:
                wrong[name] = said
        return wrong

    def _against(self, name: str, how: str | None, guarded: bool) -> str | None:
        if name in self.unjudged:
            return None
        if name in self.changed and guarded:
            return None if how == "failed" else f"{how}, though listed as changed by the guard: take it off the list"
        if name in self.passes or name in self.changed:
            return None if how == "passed" else f"{how or 'not run'}, and is expected to pass"
        return f"{how}, and is not listed"
