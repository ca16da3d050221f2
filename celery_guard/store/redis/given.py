"""From the values of :mod:`celery_guard.job` to what scripts are told: plain words and numbers, and bytes beside them.

What is not there is left out. Durations are microseconds.
"""

from __future__ import annotations

import secrets
from typing import Any

from celery_guard.job.instant import microseconds
from celery_guard.job.row import NewJob, StoredFailure, StoredPayload
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Reason
from celery_guard.job.text import clean

__all__ = ["failure", "letter", "move", "new_job"]

_LONGEST = 255


def new_job(new: NewJob, call: str) -> dict[str, Any]:
    """A row as far as its sender knows it; ``call`` names this very acceptance."""
    return _said(
        id=new.id,
        task=new.task,
        queue=new.queue,
        kind=new.kind.value,
        reason=Reason.NEW.value,
        priority=new.priority,
        tenant=new.tenant,
        key_hash=new.key,
        fingerprint=new.fingerprint,
        delay=microseconds(new.delay),
        deadline=new.deadline,
        deadline_in=None if new.deadline_in is None else microseconds(new.deadline_in),
        in_canvas=new.in_canvas or None,
        parent_id=new.parent_id,
        root_id=new.root_id,
        group_id=new.group_id,
        correlation_id=new.correlation_id,
        schedule=new.schedule,
        in_broker=None if new.in_broker is None else microseconds(new.in_broker),
        call=call,
    )


def letter(payload: StoredPayload) -> tuple[bytes, bytes, bytes]:
    """A message: body, headers, delivery."""
    return payload.body, payload.headers.encode(), payload.delivery.encode()


def move(settlement: Settlement, compare: str, mark: str, **compared: Any) -> tuple[dict[str, Any], list[bytes]]:
    """A move, and the bytes that go with it: see ``move.lua``. ``mark`` names this very call."""
    parts: list[bytes] = []
    if settlement.result is not None:
        parts.append(settlement.result.body)
    if settlement.payload is not None:
        parts += letter(settlement.payload)
    for new in settlement.follow:
        parts += letter(new.payload)
    said = _said(
        compare=compare,
        fence=settlement.fence,
        owner=settlement.owner,
        state=settlement.state.value,
        reason=None if settlement.reason is None else settlement.reason.value,
        delay=microseconds(settlement.delay) or None,
        told=settlement.told or None,
        tell_within=None if settlement.told else microseconds(settlement.tell_within),
        keep=microseconds(settlement.keep),
        uncharged=not settlement.charged or None,
        crashed=settlement.crashed or None,
        retried=settlement.retried or None,
        interrupted=settlement.interrupted is True or None,
        uninterrupted=settlement.interrupted is False or None,
        regenerated=settlement.payload is not None or None,
        progress=settlement.progress,
        task=settlement.task,
        queue=settlement.queue,
        kind=None if settlement.kind is None else settlement.kind.value,
        failure=None if settlement.failure is None else failure(settlement.failure, settlement.fence),
        follow=[new_job(new, f"{mark}:{place}") for place, new in enumerate(settlement.follow)] or None,
        **compared,
    )
    if settlement.result is not None:
        said["result"] = {
            "content_type": settlement.result.content_type,
            "content_encoding": settlement.result.content_encoding,
        }
    return said, parts


def failure(found: StoredFailure, fence: int) -> dict[str, Any]:
    """A failure, under a number of its own: one that is written twice is there once."""
    return _said(
        number=str(secrets.randbits(62)),
        fence=str(found.fence or fence),
        attempt=found.attempt or None,
        failure_class=found.failure_class,
        type_name=clean(found.type_name)[:_LONGEST],
        message=clean(found.message),
        traceback=clean(found.traceback),
        cause=clean(found.cause)[:_LONGEST],
        worker=clean(found.worker)[:_LONGEST],
        truncated=int(found.truncated),
    )


def _said(**words: Any) -> dict[str, Any]:
    return {name: word for name, word in words.items() if word is not None}
