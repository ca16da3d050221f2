"""``Guard``: ties an app, a store and the observers together. The only file that knows everyone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from celery import Celery

from celery_guard.contract.contract import Contract
from celery_guard.errors import ConfigurationError
from celery_guard.integrations.celery.install import install
from celery_guard.integrations.celery.passage import Passing
from celery_guard.integrations.celery.runtime import Runtime
from celery_guard.setting_names import check_names

if TYPE_CHECKING:
    from celery_guard.flow.admin.audit import Audit
    from celery_guard.flow.admin.dlq import Dlq
    from celery_guard.flow.admin.jobs import Jobs
    from celery_guard.flow.admin.keys import Keys
    from celery_guard.flow.admin.quarantine import Quarantine
    from celery_guard.flow.relay import Relay
    from celery_guard.settings import Settings
    from celery_guard.store.protocol import Store
    from celery_guard.watch.observers import Observer

__all__ = ["Guard"]


class Guard:
    """The guard of one Celery app.

    Settings given here win over ``app.conf.guard_*``, which win over ``CELERY_GUARD_*`` in the environment; see
    :class:`~celery_guard.settings.Settings` for their names, units and defaults. Nothing is opened or read before the first use.

    >>> from celery import Celery
    >>> app = Celery("shop", broker="memory://")
    >>> guard = Guard(app, store="sqlite:///:memory:")

    ``contracts`` are for tasks that you cannot edit, by name or pattern: ``{"vendor.sync": Contract(...), "vendor.*": Contract()}``. What they name is
    put under the guard, whatever its base class is; a name that no task has is refused when a worker starts.

    Raises:
        SettingError: there is no setting of that name.
        ConfigurationError: the app has a guard with other settings already.
    """

    def __init__(self, app: Celery, *, contracts: Mapping[str, Contract] | None = None, **settings: Any) -> None:
        if not isinstance(app, Celery):
            raise ConfigurationError(
                f"Guard: found {type(app).__name__}, expected the Celery app: Guard(app, store=...)."
            )
        check_names(settings)
        self._runtime: Runtime = install(app, settings)
        self._runtime.made_by_guard = True
        if self._runtime.contracts is None:
            self._runtime.contracts = contracts
        if not self._runtime.made_with(settings) or self._runtime.contracts != contracts:
            raise ConfigurationError(
                f"The app {app.main!r} has a guard already, made with other settings or by its first GuardedTask. Make one Guard "
                "for an app, right after the app and before its tasks."
            )

    @property
    def app(self) -> Celery:
        """The app."""
        return self._runtime.app

    @property
    def settings(self) -> Settings:
        """What holds, from all three places. Raises ``SettingError``."""
        return self._runtime.settings

    @property
    def store(self) -> Store:
        """The queue of record."""
        return self._runtime.store

    def observe(self, observer: Observer) -> None:
        """Have an observer told what happens to jobs in this process: see :mod:`celery_guard.job.event`.

        It is told after the fact, in the thread that did it, and cannot change it; what it raises is logged. It must not wait.
        """
        self._runtime.observers.add(observer)

    @property
    def dlq(self) -> Dlq:
        """Dead letters: by what failed alike, closed with a reason, sent again (``guard.dlq.replays``)."""
        return self._runtime.admin.dlq

    @property
    def jobs(self) -> Jobs:
        """Every job: how it stands, what happened to it, why it does not run; cancel, and settle what is unknown."""
        return self._runtime.admin.jobs

    @property
    def quarantine(self) -> Quarantine:
        """Messages that nobody could open: look, put back on their queue, give up; and a broker's dead-letter queue."""
        return self._runtime.admin.quarantine

    @property
    def keys(self) -> Keys:
        """Keys of what is encrypted: which of them what is stored takes; rotation."""
        return self._runtime.admin.keys

    @property
    def audit(self) -> Audit:
        """What operators did, on what, why, from where, and what came of it."""
        return self._runtime.admin.audit

    def using(self, transaction: Any) -> Passing:
        """Send everything inside the block in a transaction of yours: it goes out if, and only if, that commits.

        Works for any canvas; tasks without a guard that are sent inside travel along and go out with the rest.
        ``transaction`` is an SQLAlchemy ``Session`` or ``Connection``, or a connection of Django's or its alias, on the store's
        database; savepoints are honoured.
        It may be an ``AsyncSession`` or an ``AsyncConnection``, with ``async with`` or ``with``: what is sent inside is then written
        before that commits, and the commit fails if it cannot be (see docs/howto/async.md).

        Raises:
            TypeError: there is no door for such an object.
            TransactionError: its driver is not supported.
            WrongDatabaseError: it is not on the store's database.
        """
        return Passing(self._runtime.door(transaction), self._runtime)

    def relay(self) -> Relay:
        """A relay for this thread: ``relay().drain()`` publishes what is due, which is handy in tests."""
        from celery_guard.integrations.celery.relay import make_relay

        return make_relay(self._runtime)
