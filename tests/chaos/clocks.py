"""Clocks that are wrong: a process under libfaketime, whose wall clock is shifted and whose monotonic clock is not."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

__all__ = ["shifted"]


def shifted(by: str) -> dict[str, str]:
    """The environment of a process whose clock is wrong ``by`` this, such as ``+3600s``; empty: right. Skips without libfaketime."""
    if not by:
        return {}
    spec = find_spec("libfaketime")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package libfaketime, for clocks that are wrong")
    [library] = Path(spec.origin).parent.glob("vendor/libfaketime/src/libfaketime.so*")
    return {"LD_PRELOAD": str(library), "FAKETIME": by, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1"}
