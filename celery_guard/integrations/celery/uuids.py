"""Random UUIDs as texts, made many at a time: a system call for each is what most of one costs."""

from __future__ import annotations

import os

__all__ = ["random_uuid"]

_AT_ONCE = 128

_waiting: list[str] = []
# a child makes its own
os.register_at_fork(after_in_child=_waiting.clear)


def random_uuid() -> str:
    """As ``str(uuid.uuid4())``."""
    while True:
        try:
            return _waiting.pop()
        except IndexError:
            _waiting.extend(_made(_AT_ONCE))


def _made(count: int) -> list[str]:
    digits = os.urandom(16 * count).hex()
    return [_spelled(digits[begin : begin + 32]) for begin in range(0, 32 * count, 32)]


def _spelled(digits: str) -> str:
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
