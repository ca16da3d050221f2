"""celery-guard makes Celery jobs safe: accepted is not lost, effects are not repeated, no failure is silent.

The public face. Names are imported when first used, so that ``import celery_guard`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .contract.contract import Contract
    from .contract.payload import Payload, Snapshot, upcast
    from .contract.retry import Retry
    from .contract.timing import Timing
    from .errors import (
        ConfigurationError,
        ConfirmationNeeded,
        ContractError,
        DeadlinePassed,
        EditRefused,
        EncryptionKeyError,
        EnqueueError,
        GuardError,
        Interruption,
        JobCancelled,
        JobFailed,
        KeyBusy,
        KeyConflict,
        LeaseLost,
        MoveRefused,
        NotAllowed,
        NotFound,
        NotGuardedError,
        PayloadError,
        PayloadTooLargeError,
        PayloadVersionError,
        PortError,
        ReasonMissing,
        Refused,
        SettingError,
        SnapshotExpired,
        StoreError,
        StoreSchemaError,
        StoreUnavailableError,
        TransactionError,
        WrongDatabaseError,
    )
    from .flow.admin.actor import Action, Actor, Role, Target
    from .flow.admin.status import JobStatus
    from .flow.admin.which import Which
    from .flow.context import RunningJob, current_job
    from .guard import Guard
    from .integrations.celery.signals import job_dead
    from .integrations.celery.task import GuardedTask
    from .job.progress import Progress
    from .job.row import Job
    from .job.state import State
    from .job.verdict import Accepted, Buffered, Busy, Conflict, Duplicate
    from .settings import Settings

__all__ = [
    "Accepted",
    "Action",
    "Actor",
    "Buffered",
    "Busy",
    "ConfigurationError",
    "ConfirmationNeeded",
    "Conflict",
    "Contract",
    "ContractError",
    "DeadlinePassed",
    "Duplicate",
    "EditRefused",
    "EncryptionKeyError",
    "EnqueueError",
    "Guard",
    "GuardError",
    "GuardedTask",
    "Interruption",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobStatus",
    "KeyBusy",
    "KeyConflict",
    "LeaseLost",
    "MoveRefused",
    "NotAllowed",
    "NotFound",
    "NotGuardedError",
    "Payload",
    "PayloadError",
    "PayloadTooLargeError",
    "PayloadVersionError",
    "PortError",
    "Progress",
    "ReasonMissing",
    "Refused",
    "Retry",
    "Role",
    "RunningJob",
    "SettingError",
    "Settings",
    "Snapshot",
    "SnapshotExpired",
    "State",
    "StoreError",
    "StoreSchemaError",
    "StoreUnavailableError",
    "Target",
    "Timing",
    "TransactionError",
    "Which",
    "WrongDatabaseError",
    "current_job",
    "job_dead",
    "upcast",
]

#: Where each name lives; what is not here is an error.
_HOMES = {
    "Accepted": "job.verdict",
    "Action": "flow.admin.actor",
    "Actor": "flow.admin.actor",
    "Buffered": "job.verdict",
    "Busy": "job.verdict",
    "Conflict": "job.verdict",
    "Contract": "contract.contract",
    "Duplicate": "job.verdict",
    "Guard": "guard",
    "GuardedTask": "integrations.celery.task",
    "Job": "job.row",
    "JobStatus": "flow.admin.status",
    "Payload": "contract.payload",
    "Progress": "job.progress",
    "Retry": "contract.retry",
    "Role": "flow.admin.actor",
    "RunningJob": "flow.context",
    "Settings": "settings",
    "Snapshot": "contract.payload",
    "State": "job.state",
    "Target": "flow.admin.actor",
    "Timing": "contract.timing",
    "Which": "flow.admin.which",
    "current_job": "flow.context",
    "job_dead": "integrations.celery.signals",
    "upcast": "contract.payload",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("celery-guard")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES.get(name, 'errors')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
