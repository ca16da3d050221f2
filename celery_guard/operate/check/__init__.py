"""What ``guard check`` says: the findings about an app, as lines for people. Shared by all who show them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from celery_guard.contract.facts import Finding, Severity

__all__ = ["lines", "summary", "worst"]

_INDENT = "    "


def lines(finding: Finding, width: int = 100) -> list[str]:
    """One finding: code, severity and what was found; why it matters; what to do."""
    return [
        *textwrap.wrap(f"{finding.code} {finding.severity.value}: {finding.found}", width, subsequent_indent=_INDENT),
        *_block("why: ", finding.why, width),
        *_block("fix: ", finding.fix, width),
    ]


def summary(findings: Sequence[Finding]) -> str:
    """How many of each severity, the worst first."""
    counts = [(severity, sum(finding.severity is severity for finding in findings)) for severity in reversed(Severity)]
    said = [f"{count} {severity.value}" for severity, count in counts if count]
    return ", ".join(said) if said else "nothing found"


def worst(findings: Sequence[Finding]) -> int:
    """The rank of the worst finding; -1 where there is none."""
    return max((finding.severity.rank for finding in findings), default=-1)


def _block(label: str, text: str, width: int) -> list[str]:
    later = _INDENT + " " * len(label)
    return textwrap.wrap(text, width, initial_indent=_INDENT + label, subsequent_indent=later)
