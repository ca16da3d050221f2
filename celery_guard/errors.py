"""Every error that celery-guard raises.

The tree::

    GuardError                          code
    |-- ConfigurationError              GUARD-100  the guard cannot start like this
    |   |-- SettingError                GUARD-101  a setting is unknown or makes no sense
    |   |-- ContractError               GUARD-102  a contract makes no sense
    |   |-- NotGuardedError             GUARD-103  no guard is tied to this app
    |   `-- PortError                   GUARD-104  metrics cannot be served at this address
    |-- EnqueueError                    GUARD-200  nothing was accepted
    |   |-- PayloadError                GUARD-201  a value would not come back as it went
    |   |-- PayloadTooLargeError        GUARD-202  the message is over the limit
    |   |-- KeyConflict                 GUARD-203  this key is taken by another payload
    |   |-- KeyBusy                     GUARD-204  this key is being taken by an open transaction
    |   |-- WrongDatabaseError          GUARD-205  the transaction is not on the store's database
    |   `-- TransactionError            GUARD-206  the transaction cannot carry a job, or not now
    |-- StoreError                      GUARD-300  the store did not do what was asked
    |   |-- StoreUnavailableError       GUARD-301  the store cannot be reached, or is too busy
    |   `-- StoreSchemaError            GUARD-302  the tables are missing, too old or too new
    |-- Interruption                    GUARD-400  raised inside a body, to stop it
    |   |-- LeaseLost                   GUARD-401  somebody else may own this job by now
    |   |-- JobCancelled                GUARD-402  a person asked for the job to stop
    |   `-- DeadlinePassed              GUARD-403  the job's deadline, or its attempt's limit, is over
    |-- JobFailed                       GUARD-500  a stored failure, handed back
    |-- PayloadVersionError             GUARD-501  a message is newer than this worker
    |-- SnapshotExpired                 GUARD-502  the data in a message is too old to be used
    |-- EncryptionKeyError              GUARD-503  something is encrypted with a key that is not known here
    `-- Refused                         GUARD-600  an operator's action was refused; nothing was changed
        |-- NotAllowed                  GUARD-601  this actor may not do that, or not there
        |-- ConfirmationNeeded          GUARD-602  it touches more jobs than may be touched unasked
        |-- NotFound                    GUARD-603  there is nothing of that name, or not for this actor
        |-- ReasonMissing               GUARD-604  an action that changes something says why
        |-- MoveRefused                 GUARD-605  what is there is not in a state for that
        `-- EditRefused                 GUARD-606  edited arguments that cannot take the place of those there are

Only faults end in ``Error``; the rest are answers that a program acts on. A code never changes its meaning: it is
the name of a page of the runbook. All survive pickling, since Celery carries exceptions between processes.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ConfigurationError",
    "ConfirmationNeeded",
    "ContractError",
    "DeadlinePassed",
    "EditRefused",
    "EncryptionKeyError",
    "EnqueueError",
    "GuardError",
    "Interruption",
    "JobCancelled",
    "JobFailed",
    "KeyBusy",
    "KeyConflict",
    "LeaseLost",
    "MoveRefused",
    "NotAllowed",
    "NotFound",
    "NotGuardedError",
    "PayloadError",
    "PayloadTooLargeError",
    "PayloadVersionError",
    "PortError",
    "ReasonMissing",
    "Refused",
    "SettingError",
    "SnapshotExpired",
    "StoreError",
    "StoreSchemaError",
    "StoreUnavailableError",
    "TransactionError",
    "WrongDatabaseError",
]

#: How an error names the command, for nobody in particular. Where it is known which app was named, that is said in its place.
COMMAND = "celery -A app guard"


class GuardError(Exception):
    """The root. ``str(error)`` says what was found, what was expected and what to do."""

    code: ClassVar[str] = "GUARD-000"
    #: Exit status of the command line when this error ends it.
    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        # the rest of the arguments are the facts, for programs
        return str(self.args[0]) if self.args else type(self).__name__


class ConfigurationError(GuardError):
    """The guard cannot start like this."""

    code = "GUARD-100"
    exit_code = 2


class SettingError(ConfigurationError):
    """A setting is unknown or makes no sense."""

    code = "GUARD-101"


class ContractError(ConfigurationError):
    """A contract makes no sense; raised where the task is declared."""

    code = "GUARD-102"


class NotGuardedError(ConfigurationError):
    """No :class:`~celery_guard.Guard` is tied to this app."""

    code = "GUARD-103"


class PortError(ConfigurationError):
    """Metrics cannot be served at this address: the port is taken, or not this machine's."""

    code = "GUARD-104"


class EnqueueError(GuardError):
    """Nothing was accepted; the caller's transaction is still usable."""

    code = "GUARD-200"


class PayloadError(EnqueueError):
    """A value would not come back equal and of the same type.

    ``path`` names the element, e.g. ``kwargs['order']['total']``.
    """

    code = "GUARD-201"

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message, path)
        self.path = path


class PayloadTooLargeError(EnqueueError):
    """The encoded message is over the limit; ``size`` and ``limit`` are in bytes."""

    code = "GUARD-202"

    def __init__(self, message: str, size: int = 0, limit: int = 0) -> None:
        super().__init__(message, size, limit)
        self.size = size
        self.limit = limit


class KeyConflict(EnqueueError):
    """The same key was accepted with another payload; ``holder`` is the id of the job that has it."""

    code = "GUARD-203"

    def __init__(self, message: str, holder: str = "") -> None:
        super().__init__(message, holder)
        self.holder = holder


class KeyBusy(EnqueueError):
    """Another transaction, still open, is taking the same key. Try again when it has ended."""

    code = "GUARD-204"


class WrongDatabaseError(EnqueueError):
    """The transaction given to ``using`` is not on the store's database, so it cannot carry the job."""

    code = "GUARD-205"


class TransactionError(EnqueueError):
    """The transaction given to ``using`` cannot carry a job, or not now: its message says why."""

    code = "GUARD-206"


class StoreError(GuardError):
    """The store did not do what was asked."""

    code = "GUARD-300"
    exit_code = 3


class StoreUnavailableError(StoreError):
    """The store cannot be reached, or stayed too busy for longer than its retries."""

    code = "GUARD-301"


class StoreSchemaError(StoreError):
    """The tables are missing, too old or too new for this version."""

    code = "GUARD-302"


class Interruption(GuardError):
    """Raised inside a body to stop it at a safe point. Let it pass."""

    code = "GUARD-400"


class LeaseLost(Interruption):
    """This attempt is not the owner of the job any more; what it writes through the guard is refused."""

    code = "GUARD-401"


class JobCancelled(Interruption):
    """A person asked for the job to stop."""

    code = "GUARD-402"


class DeadlinePassed(Interruption):
    """The job's deadline, or the limit of this attempt, is over."""

    code = "GUARD-403"


class JobFailed(GuardError):
    """The stored failure of a job, handed back to Celery without running the body again.

    ``type_name`` is the qualified name of the exception that the body raised.
    """

    code = "GUARD-500"

    def __init__(self, message: str, type_name: str = "", reason: str = "") -> None:
        super().__init__(message, type_name, reason)
        self.type_name = type_name
        self.reason = reason


class PayloadVersionError(GuardError):
    """A message is newer than this worker: its payload, or the guard's own envelope. The job is parked.

    ``version`` is the one that the message has.
    """

    code = "GUARD-501"

    def __init__(self, message: str, version: int = 0) -> None:
        super().__init__(message, version)
        self.version = version


class SnapshotExpired(GuardError):
    """The data that a message carries is older than it may be, and its model has no ``refresh``."""

    code = "GUARD-502"


class EncryptionKeyError(GuardError):
    """A message, a result or a failure is encrypted with a key that this process does not have. A job is parked for it.

    ``key`` is the id of that key.
    """

    code = "GUARD-503"

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message, key)
        self.key = key


class Refused(GuardError):
    """An operator's action was refused; nothing was changed."""

    code = "GUARD-600"


class NotAllowed(Refused):
    """This actor may not do that, or not to that."""

    code = "GUARD-601"


class ConfirmationNeeded(Refused):
    """It touches ``count`` jobs, more than ``limit`` (setting ``confirm_above``): say that many are meant."""

    code = "GUARD-602"

    def __init__(self, message: str, count: int = 0, limit: int = 0) -> None:
        super().__init__(message, count, limit)
        self.count = count
        self.limit = limit


class NotFound(Refused):
    """There is nothing of that name, or nothing that this actor may see."""

    code = "GUARD-603"


class ReasonMissing(Refused):
    """An action that changes something needs a reason."""

    code = "GUARD-604"
    exit_code = 2


class MoveRefused(Refused):
    """What is there is not in a state for that."""

    code = "GUARD-605"


class EditRefused(Refused):
    """Edited arguments cannot take the place of those there are."""

    code = "GUARD-606"
