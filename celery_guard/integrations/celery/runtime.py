"""One app's guard at work: its settings, store, leases and runner, each made when first needed.

Made by :class:`~celery_guard.Guard`, or by the first :class:`~celery_guard.GuardedTask` that is bound to an app which has
none. Making it opens nothing and reads no configuration, so it is safe at import and before a fork.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from celery import Celery
from kombu.exceptions import OperationalError

from celery_guard.contract.central import Central
from celery_guard.contract.contract import Contract, Effective
from celery_guard.contract.measure import refuse
from celery_guard.contract.resolve import UNBOUNDED_WITHIN, resolve
from celery_guard.contract.sensitive import secret_for
from celery_guard.contract.shape import Shape, shape_of
from celery_guard.errors import ContractError, NotGuardedError
from celery_guard.integrations.django import default_store, is_djangos, is_of_django
from celery_guard.lazy import lazy
from celery_guard.setting_names import ENVIRONMENT_PREFIX
from celery_guard.store import open_store

from .declared import apply, body_of, read_options, signature_of, with_limits_of_app

if TYPE_CHECKING:
    from celery_guard.flow.lease import LeaseKeeper
    from celery_guard.flow.run import Runner
    from celery_guard.flow.skew import Skew
    from celery_guard.job.encryption import Encryption
    from celery_guard.job.row import NewJob
    from celery_guard.job.verdict import Enqueued
    from celery_guard.settings import Settings
    from celery_guard.store.protocol import Cancelled, Door, Store
    from celery_guard.watch.observers import Observers
    from celery_guard.watch.tracing import Tracing

    from .admin import Admin

__all__ = ["ATTRIBUTE", "Runtime", "runtime_of"]

logger = logging.getLogger("celery_guard.enqueue")

#: The one name of ``guard_*`` in the app's configuration that is no setting.
_CONTRACTS = "contracts"

#: Where an app keeps its runtime.
ATTRIBUTE = "_celery_guard"


class Runtime:
    """What the integration needs in one process, for one app."""

    def __init__(self, app: Celery, arguments: Mapping[str, Any]) -> None:
        self.app = app
        self._arguments = dict(arguments)
        self._contracts: dict[str, Effective] = {}
        self._shapes: dict[str, Shape] = {}
        #: Names that tasks had before, and the one that each has now.
        self.aliases: dict[str, str] = {}
        self._me: tuple[int, str] = (0, "")
        #: How many connections to the store this process may have: its bodies at work, and what the guard needs beside them.
        self.connections = 5
        #: A ``Guard`` was made for the app; otherwise a guarded task has brought the runtime along.
        self.made_by_guard = False
        #: Tasks that were put under the guard by a contract beside them.
        self.guarded_from_outside: set[str] = set()
        #: Contracts beside the tasks, where ``Guard`` was given any.
        self.contracts: Mapping[str, Any] | None = None
        #: The door: what ``app.send_task`` is now.
        self.sender: Any = None

    def made_with(self, arguments: Mapping[str, Any]) -> bool:
        """Whether these are the arguments it was made with."""
        return self._arguments == dict(arguments)

    @property
    def meant(self) -> bool:
        """Whether anybody has said that this app is guarded.

        A shared task of another, guarded app is bound to every app of the process, also to those that have nothing to do with it.
        """
        return self.made_by_guard or self.has_store

    @property
    def has_store(self) -> bool:
        """Whether anybody has said where the store is."""
        return self._names_store or default_store() is not None

    @property
    def _names_store(self) -> bool:
        return bool(
            self._arguments.get("store")
            or self.app.conf.get("guard_store")
            or f"{ENVIRONMENT_PREFIX}STORE" in os.environ
        )

    def shares_store(self, other: Runtime) -> bool:
        """Whether a job of the one app may lie in a transaction that was opened for the other."""
        return other is self or (self.has_store and other.has_store and other.settings.store == self.settings.store)

    @lazy
    def settings(self) -> Settings:
        """Arguments, then ``app.conf.guard_*``, then ``CELERY_GUARD_*``. Raises ``SettingError``."""
        mine = _said(self.app)
        mine.pop(_CONTRACTS, None)
        if not self._names_store and (default := default_store()) is not None:
            mine["store"] = default
        from celery_guard.settings import read_settings

        return read_settings(self._arguments, mine, os.environ)

    @lazy
    def encryption(self) -> Encryption:
        """What this process encrypts and decrypts with. Raises ``ConfigurationError``."""
        from .encrypted import encryption_of

        return encryption_of(self.settings)

    @lazy
    def central(self) -> Central:
        """The contracts beside the tasks: of ``Guard(contracts=...)``, then of ``app.conf.guard_contracts``. Raises ``ContractError``."""
        given = self.contracts
        if given is None:
            given = _said(self.app).get(_CONTRACTS)
        return Central({} if given is None else given)

    @lazy
    def store(self) -> Store:
        """The store named by the settings. Opens no connection before the first use."""
        settings = self.settings
        if is_djangos(settings.store):
            from celery_guard.integrations.django.store import open_store as open_django

            return open_django(settings.store, notify=settings.notify, pool_size=self.connections)
        return open_store(settings.store, notify=settings.notify, pool_size=self.connections)

    @property
    def shown_store(self) -> str:
        """Where the store is, without a password; also where it is one of Django's databases."""
        settings = self.settings
        if is_djangos(settings.store):
            from celery_guard.integrations.django.address import alias_of, shown_url

            return shown_url(alias_of(settings.store))
        return settings.shown_store

    def door(self, transaction: object) -> Door:
        """The door for a transaction of the caller's.

        Raises:
            TypeError: there is no door for such an object.
            WrongDatabaseError: it is not on the store's database.
        """
        if isinstance(transaction, str) or is_of_django(transaction):
            from celery_guard.integrations.django.door import door_of

            return door_of(self.store, transaction)
        return self.store.door(transaction)

    def around(self) -> Store | Door:
        """Where a guarded job goes that was given no transaction: into Django's, if the store is there and one is open."""
        return self.store.around() or self.store

    @lazy
    def observers(self) -> Observers:
        """Those who are told what has happened; the log is one of them."""
        from celery_guard.watch.lines import Lines
        from celery_guard.watch.observers import Observers

        observers, lines = Observers(), Lines()
        observers.add(lines, lines.hears)
        return observers

    @lazy
    def keeper(self) -> LeaseKeeper:
        """The leases of this process."""
        from celery_guard.flow.lease import LeaseKeeper

        return LeaseKeeper(self.store, self.observers.tell)

    @lazy
    def skew(self) -> Skew:
        """What this process has seen of publishers' clocks."""
        from celery_guard.flow.skew import Skew

        return Skew()

    @lazy
    def runner(self) -> Runner:
        """Runs deliveries."""
        from celery_guard.flow.run import Runner

        return Runner(self.store, self.keeper, self.settings, self.owner, self.observers.tell, self.encryption)

    def tell_enqueued(self, job: NewJob, answer: Enqueued) -> None:
        """Tell what the store has answered to a new job."""
        from celery_guard.job import event

        happened = event.enqueued(job, answer)
        if happened is not None:
            self.observers.tell(happened)

    def cancel(self, id: str) -> Cancelled:
        """Ask for a job to stop, and tell of it."""
        answer = self.store.cancel(id)
        if answer.state is not None:
            from celery_guard.job import event

            self.observers.tell(event.Cancelled(id, "", answer.answer))
        return answer

    @lazy
    def tracing(self) -> Tracing:
        """Spans, where OpenTelemetry is installed."""
        from .traced import open_for_celery

        return open_for_celery()

    def flush_telemetry(self) -> None:
        """Before this process ends: wait for its last spans, as long as the setting ``telemetry_flush`` says."""
        if "tracing" in self.__dict__:
            self.tracing.flush(self.settings.telemetry_flush.total_seconds())

    @property
    def admin(self) -> Admin:
        """What operators do."""
        from .admin import Admin

        return Admin(self)

    def owner(self) -> str:
        """This process, readable for people; the store adds what tells one claim from the next."""
        pid = os.getpid()
        if self._me[0] != pid:
            self._me = pid, f"{socket.gethostname()[:60]}:{pid}"
        return self._me[1]

    def contract_of(self, task: Any) -> Effective | None:
        """What holds for a task; None where it has no guard. Raises ``ContractError``."""
        if task is None:
            return None
        contract = self._contracts.get(task.name)
        if contract is None:
            self._give_contract(task)
            if not getattr(task, "guarded", False):
                return None
            if not isinstance(task.contract, (Contract, type(None))):
                refuse(f"{task.name}: contract", task.contract, "a Contract", "write contract=Contract(...)")
            signature = signature_of(task)
            contract = resolve(task.contract, read_options(task), signature, task.name)
            self._shapes[task.name] = shape_of(task.name, body_of(task), signature, named=contract.named)
            self._note_aliases(task, contract)
            if task.name.startswith("celery.") and contract.explicit_retries is None:
                # chord_unlock asks for ever whether a chord is complete: as long as the parts are kept, that is
                contract = replace(contract, retry=replace(contract.retry, within=self._result_expires()))
            contract = with_limits_of_app(contract, self.app.conf)
            self._contracts[task.name] = contract
            apply(contract, task)
            if contract.sensitive:
                # saferepr of nothing: the tracer prints the value that a body returns, and sends it along with events
                task.resultrepr_maxsize = 0
        return contract

    def _result_expires(self) -> timedelta:
        kept = self.app.conf.result_expires
        if isinstance(kept, timedelta):
            return kept
        return timedelta(seconds=kept) if kept else UNBOUNDED_WITHIN

    def contract_named(self, name: str) -> Effective:
        """What holds for a task by name; the defaults where this process does not know it."""
        return self.contract_of(self.task_named(name)) or Effective(task=name)

    def task_named(self, name: str) -> Any:
        """The task of this name, or the one that had it before; None where this process knows neither.

        A task that is declared but not yet bound must not slip past its guard: the app is finalized first, if it may be.
        """
        app = self.app
        registry = app.tasks if app.autofinalize and not app.finalized else app._tasks
        return registry.get(name) or registry.get(self.aliases.get(name))

    def guard_named(self) -> None:
        """Put every task that is named beside the tasks under the guard.

        Raises:
            ContractError: a name that no task has.
            ConfigurationError: a task has sensitive arguments, and there is no secret to make their keys with.
        """
        tasks = self.app.tasks
        self.central.check(tasks)
        for task in list(tasks.values()):
            contract = self.contract_of(task)
            if contract is not None:
                secret_for(contract, self.settings)

    def finalized(self, **_: Any) -> None:
        """The app has all its tasks: in a child that is spawned, too, whose worker never boots."""
        for task in list(self.app.tasks.values()):
            self.contract_of(task)
        self.register_aliases()

    def knows(self, name: str) -> bool:
        """Whether this process has a task of this name, or one that had it before."""
        return self.task_named(name) is not None

    def shape_of(self, task: Any) -> Shape:
        """How the arguments of a guarded task travel. Raises ``ContractError``."""
        if task.name not in self._shapes:
            self.contract_of(task)
        return self._shapes[task.name]

    def _give_contract(self, task: Any) -> None:
        contract = self.central.contract_for(task.name)
        if contract is not None:
            # the base class of tasks needs the runtime
            from .central import put_under_guard

            if not getattr(task, "guarded", False):
                self.guarded_from_outside.add(task.name)
            put_under_guard(task, contract)

    def leaves(self, task: Any) -> bool:
        """Whether the task is Celery's own again, but for the jobs that have a row. One that takes payload models cannot be."""
        return self.settings.leaving and not self.shape_of(task).models

    def runs_eagerly(self, task: Any) -> bool:
        """Whether an eager call of the task is a job; Celery's own where nobody has said where jobs are kept."""
        return self.has_store and not self.leaves(task)

    def register_aliases(self) -> None:
        """Have the worker take messages that were sent under a task's former names. Raises ``ContractError``."""
        registry = self.app.tasks
        for alias, name in self.aliases.items():
            task = registry[name]
            if registry.setdefault(alias, task) is not task:
                raise _two_tasks(name, alias)
            # the last name is the one that a process traces the task under
            registry[name] = registry.pop(name)

    def _note_aliases(self, task: Any, contract: Effective) -> None:
        name = task.name
        if name in self.aliases:
            raise _two_tasks(self.aliases[name], name)
        for alias in contract.aliases:
            if self.aliases.setdefault(alias, name) != name or self.app._tasks.get(alias, task) is not task:
                raise _two_tasks(name, alias)

    def listen_for(self, task_id: str, result: Any) -> None:
        """Only ``rpc://`` needs to know at enqueue that somebody may ask for this result: its queue is made on the broker.

        One try: the job is accepted, so a broker that is down is no error here.
        """
        backend = self.app.backend
        if getattr(result, "ignored", False) or type(backend).__module__ != "celery.backends.rpc":
            return
        with self.app.pool.acquire(block=True) as connection:
            try:
                connection.ensure_connection(max_retries=1)
                backend.on_task_call(self.app.amqp.Producer(connection), task_id)
            except (OperationalError, *connection.connection_errors) as error:
                logger.warning("job %s is accepted; its result cannot reach this process (rpc://): %s", task_id, error)


def runtime_of(app: Celery) -> Runtime:
    """The runtime of an app. Raises ``NotGuardedError`` where there is none."""
    found: Runtime | None = app.__dict__.get(ATTRIBUTE)
    if found is None:
        raise NotGuardedError(f"The app {app.main!r} has no guard. Make one beside the app: Guard(app, store=...).")
    return found


def _two_tasks(name: str, alias: str) -> ContractError:
    return ContractError(
        f"{name}: Contract.aliases has {alias!r}, which is the name of another task, or an alias of one. To repair: remove it from "
        "the aliases, or remove the other task."
    )


def _said(app: Celery) -> dict[str, Any]:
    """What Celery's configuration says about the guard: ``guard_lease``, or ``CELERY_GUARD_LEASE`` under the namespace CELERY."""
    names = sorted(map(str, app.conf))  # loads it, where it was not
    conf = app.conf
    said: dict[str, Any] = {}
    # what was set on app.conf is in lower case, comes later, and wins
    for name in names:
        plain = name.removeprefix(conf.prefix or "") if conf.prefix else name
        if plain.startswith("guard_") or (plain != name and plain.startswith("GUARD_")):
            # by this very name: Celery before 5.7 looks under the namespace first
            said[plain[len("guard_") :].lower()] = next(held[name] for held in conf.maps if name in held)
    return said
