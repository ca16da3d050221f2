"""Replays of a Redis store, to and from what its scripts are told and answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from celery_guard.job.instant import Instant, instant_to_datetime, microseconds
from celery_guard.job.replay import WIDEST, ItemState, NewReplay, Progress, Replay, ReplayState
from celery_guard.job.text import clean

from .rows import row_of

__all__ = ["counts", "given", "of", "progress"]

_TEXTS = ("actor", "role", "origin", "reason", "target")
_NUMBERS = ("stop_share", "same_cause")


def given(new: NewReplay) -> dict[str, Any]:
    """A replay, as its script writes it."""
    said: dict[str, Any] = {name: clean(getattr(new, name)) for name in _TEXTS}
    said |= {name: getattr(new, name) for name in _NUMBERS}
    said["every"] = microseconds(new.every)
    return said | {name: value for name in ("tenant", "cap") if (value := getattr(new, name)) is not None}


def of(id: str, flat: Sequence[bytes], counts: Mapping[ItemState, int] | None = None) -> Replay:
    """A replay as people read it."""
    row = row_of(flat)
    ended = row.get("ended")
    texts: dict[str, Any] = {name: row[name] for name in _TEXTS}
    numbers: dict[str, Any] = {name: int(row[name]) for name in (*_NUMBERS, "total", "wave", "run")}
    return Replay(
        id=id,
        state=ReplayState(row["state"]),
        created=instant_to_datetime(Instant(int(row["created"]))),
        ended=None if ended is None else instant_to_datetime(Instant(int(ended))),
        tenant=row.get("tenant"),
        cap=int(row["cap"]) if "cap" in row else None,
        every=timedelta(microseconds=int(row["every"])),
        turn=int(row["next_at"]),
        why=row.get("why", ""),
        counts=counts or {},
        **texts,
        **numbers,
    )


def counts(answer: Sequence[int]) -> dict[ItemState, int]:
    """How many jobs are in each state, in the order of the states."""
    return {state: count for state, count in zip(ItemState, answer, strict=True) if count}


def progress(answer: Sequence[Any]) -> Progress:
    """What a look at a replay found."""
    wave, same, waiting, on_way = answer
    return Progress(counts(wave), int(same), min(int(waiting), WIDEST), bool(on_way))
