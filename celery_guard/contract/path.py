"""The place of a value inside a payload, as a message names it: ``args[0]['a'][2]``.

Places are collected as steps and written only when something is wrong, since nearly always nothing is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["spell"]

_LONGEST_KEY = 60
_MOST_STEPS = 20


def spell(root: str, steps: Sequence[Any]) -> str:
    """The place below ``root``; the middle of a long one is left out."""
    written = [_step(step) for step in steps]
    if len(written) > _MOST_STEPS:
        half = _MOST_STEPS // 2
        written[half:-half] = [f"[… {len(written) - _MOST_STEPS} more …]"]
    return root + "".join(written)


def _step(step: Any) -> str:
    if type(step) is str:
        text = repr(step if len(step) <= _LONGEST_KEY else step[:_LONGEST_KEY] + "…")
    elif step is None or type(step) in (bool, float) or (type(step) is int and step.bit_length() <= 128):
        text = repr(step)
    else:
        text = f"a {type(step).__qualname__}"
    return f"[{text}]"
