"""The version of the keys. It changes with what stands in them, not with the scripts."""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = 1
