"""From the arguments of a message to those that a body takes: payloads are opened, expired snapshots are refreshed or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from celery_guard.contract.payload import Payload, Snapshot, encoded
from celery_guard.contract.shape import Shape
from celery_guard.errors import JobFailed, PayloadError, PayloadVersionError, SnapshotExpired
from celery_guard.job.instant import instant_to_datetime
from celery_guard.job.outcome import Failed, Held
from celery_guard.job.state import Reason
from celery_guard.job.verdict import Granted

__all__ = ["Arguments", "open_arguments"]


class Arguments(NamedTuple):
    """One call."""

    args: Sequence[Any]
    #: As the body takes them.
    kwargs: Mapping[str, Any]
    #: The same as plain data of this process's versions: for hooks, and for a retry that changes the call.
    wire: Mapping[str, Any]


def open_arguments(
    shape: Shape, args: Sequence[Any], kwargs: Mapping[str, Any], versions: Mapping[str, int], granted: Granted
) -> Arguments | Held | Failed:
    """The call that a message makes; or that it is held, or has failed, without its body."""
    if not (shape.models or versions):
        return Arguments(args, kwargs, kwargs)
    try:
        args, opened, payloads = shape.open(args, kwargs, versions)
        now = None if granted.created is None else instant_to_datetime(granted.created) + granted.age
        fresh = {name: _fresh(payload, now, f"{shape.task}: {name}") for name, payload in payloads.items()}
        wire = {**opened, **{name: encoded(payload, name) for name, payload in fresh.items()}}
    except PayloadVersionError as error:
        return Held(error)
    except SnapshotExpired as error:
        return Failed(error, final=Reason.SNAPSHOT_EXPIRED)
    except PayloadError as error:
        return Failed(error, final=Reason.FAILED)
    except Exception as error:  # noqa: BLE001 - a model's refresh is the user's code, and a part of the attempt
        return Failed(error)
    return Arguments(args, {**opened, **fresh}, wire)


def _fresh(payload: Payload, now: datetime | None, name: str) -> Payload:
    """The payload itself, or what an expired snapshot gives in its place. ``now`` is the store's."""
    if not isinstance(payload, Snapshot) or now is None or not payload.expired(now):
        return payload
    model = type(payload)
    if model.refresh is Snapshot.refresh:
        raise SnapshotExpired(
            f"{name} was taken at {payload.snapshot_taken_at}, is good for {model.payload_good_for}, and it was {now} when the attempt "
            f"started. Enqueue the job anew with fresh data, or give {model.__qualname__} a refresh()."
        )
    fresh = payload.refresh()
    if not isinstance(fresh, model) or fresh.expired(now):
        raise JobFailed(f"{name}: {model.__qualname__}.refresh() returned no {model.__qualname__} that is good now.")
    return fresh
