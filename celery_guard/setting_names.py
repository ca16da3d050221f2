"""The names of the settings, for whoever asks for a name before a value is needed.

What a setting means, and what it may be, is in :mod:`celery_guard.settings`. That imports pydantic, which takes longer than all else that a
process needs to declare its tasks, so it is imported when the settings are first read.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from .errors import SettingError

__all__ = ["ENVIRONMENT_PREFIX", "NAMES", "check_names", "refuse_unknown"]

ENVIRONMENT_PREFIX = "CELERY_GUARD_"

#: In the order of the reference.
NAMES = (
    "store", "lease", "drain", "relay", "relay_batch", "relay_hold",
    "poll", "notify", "publish_attempts", "suspect_after", "max_publications", "key_secret",
    "encryption_keys", "encrypt",
    "log_format", "telemetry_flush", "leaving", "metrics", "payload_limit", "hold_version",
    "crash_base", "crash_cap", "max_interruptions", "sweep_every", "tell_within", "keep",
    "keep_dead", "keep_audit", "authorize", "confirm_above",
)  # fmt: skip


def check_names(arguments: Iterable[str]) -> None:
    """Refuse an argument of ``Guard(...)`` that is no setting. Raises ``SettingError``."""
    for name in arguments:
        refuse_unknown(name, f"Guard({name}=…)")


def refuse_unknown(name: str, origin: str) -> None:
    """Refuse a name that is no setting's. Raises ``SettingError``, which says where it came from."""
    if name in NAMES:
        return
    close = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.6)
    advice = f"did you mean {close[0]!r}?" if close else "the names are " + ", ".join(NAMES) + "."
    raise SettingError(f"There is no setting {name!r} (from {origin}); {advice}")
