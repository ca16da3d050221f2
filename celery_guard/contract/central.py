"""Contracts given beside the tasks, in one place: for tasks that one cannot edit.

By exact name, or by a pattern with ``*`` and ``?``. An exact name wins over patterns, a longer pattern over a shorter one. Celery's own tasks
(``celery.*``) and the guard's are only meant where they are named exactly.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from celery_guard.errors import ContractError

from .contract import Contract
from .measure import refuse

__all__ = ["Central"]

_NOT_BY_PATTERN = ("celery.", "celery_guard.")


class Central:
    """The contracts of one app that stand beside its tasks.

    Raises:
        ContractError: what is given is no mapping from names to contracts.
    """

    def __init__(self, contracts: Any) -> None:
        if not isinstance(contracts, Mapping):
            refuse("contracts", contracts, "a mapping such as {'vendor.task': Contract(...)}", "correct it")
        for name, contract in contracts.items():
            if not isinstance(name, str) or not name:
                refuse("contracts", name, "the name of a task, or a pattern such as 'vendor.*'", "correct the name")
            if not isinstance(contract, Contract):
                refuse(f"contracts[{name!r}]", contract, "Contract(...)", "write Contract() for the safe defaults")
        self._contracts: dict[str, Contract] = dict(contracts)
        patterns = (name for name in self._contracts if "*" in name or "?" in name)
        self._patterns = sorted(patterns, key=len, reverse=True)
        self._found: dict[str, Contract | None] = {}

    def contract_for(self, name: str) -> Contract | None:
        """What is said about the task of this name; None where nothing is."""
        if not self._contracts:
            return None
        if name not in self._found:
            self._found[name] = self._contracts.get(name) or self._by_pattern(name)
        return self._found[name]

    def check(self, names: Iterable[str]) -> None:
        """Refuse a contract that is for none of the tasks. Raises ``ContractError``."""
        known = sorted(names)
        for entry in self._contracts:
            if entry in self._patterns:
                if not any(_matches(name, entry) for name in known):
                    raise ContractError(
                        f"contracts: found the pattern {entry!r}, which fits no task of the app. To repair: correct it, or have the "
                        "module with the tasks loaded (include, imports)."
                    )
            elif entry not in known:
                close = difflib.get_close_matches(entry, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else "is its module loaded (include, imports)?"
                raise ContractError(f"contracts: found {entry!r}, expected the name of a task of the app; {hint}")

    def _by_pattern(self, name: str) -> Contract | None:
        return next((self._contracts[pattern] for pattern in self._patterns if _matches(name, pattern)), None)


def _matches(name: str, pattern: str) -> bool:
    return not name.startswith(_NOT_BY_PATTERN) and fnmatchcase(name, pattern)
