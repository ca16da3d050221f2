"""Reading an app for the checks: its settings and tasks, as a worker with a given pool would have them.

The broker's and the backend's classes are asked, not the servers. Only the store's is asked how it is set, where that decides what it
keeps (Redis).
"""

from __future__ import annotations

import builtins
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from celery import Celery
from celery.app import backends
from celery.backends.base import BaseKeyValueStoreBackend
from celery.concurrency import ALIASES
from celery.exceptions import ImproperlyConfigured
from kombu.utils.imports import symbol_by_name

from celery_guard.contract.contract import Contract
from celery_guard.contract.facts import AppFacts, Finding, Severity, TaskFacts
from celery_guard.contract.retry import Retry
from celery_guard.contract.unsafe import findings
from celery_guard.errors import ConfigurationError, StoreError
from celery_guard.integrations.django import default_store, is_djangos
from celery_guard.store.protocol import Store

from .runtime import Runtime, runtime_of

__all__ = ["log_findings", "pool_named", "read_facts"]

logger = logging.getLogger("celery_guard.check")

_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.ERROR: logging.ERROR}

_POOLS = {"processes": "prefork", "thread": "threads"}

_SERIALIZERS = (
    "accept_content", "result_accept_content", "task_serializer", "result_serializer", "event_serializer",
)  # fmt: skip


def read_facts(app: Celery, pool: Any = None, *, ask_server: bool = True) -> AppFacts:
    """The facts about an app whose tasks are loaded; ``pool`` as for :func:`pool_named`, by default the configured one.

    ``ask_server``: connect to the store's server, where it can be set in a way that is unsafe.

    Raises:
        NotGuardedError: the app has no guard.
        ConfigurationError: Celery has no such pool.
        SettingError: its settings make no sense.
        ContractError: a contract makes no sense.
    """
    runtime = runtime_of(app)
    runtime.guard_named()
    conf = app.conf
    pool = pool or conf.worker_pool
    _refuse_unknown(pool)
    backend = app.backend_cls or conf.result_backend
    broker, visible = _broker(app)
    return AppFacts(
        tasks=tuple(
            _task(runtime, task)
            for name, task in sorted(app.tasks.items())
            if name == task.name and not name.startswith("celery_guard.")
        ),
        pool=pool_named(pool),
        broker=broker,
        visibility_timeout=visible,
        serializers={name: _names(conf.get(name)) for name in _SERIALIZERS},
        always_eager=bool(conf.task_always_eager),
        result_backend=_scheme(backend),
        counts_chords_by_increment=_increments(app, backend),
        store=runtime.shown_store,
        beside_django=default_store() is not None and not is_djangos(runtime.settings.store),
        limits={name: str(text) for name, text in runtime.store.limits.items()},
        server=_server(runtime.store) if ask_server else {},
        relay=runtime.settings.relay,
        has_keys=bool(runtime.encryption.keys),
        encrypts=runtime.encryption.on,
    )


def _server(store: Store) -> Mapping[str, str | None]:
    try:
        return store.server()
    except StoreError as error:
        logger.warning("the store's server cannot be asked how it is set: %s", error)
        return {"maxmemory-policy": None, "appendonly": None}


def log_findings(app: Celery, pool: Any = None, *, ask_server: bool = True) -> list[Finding]:
    """Log what is unsafe, from ``warning`` upwards, each with its code and its fix. For a worker at boot; returns what was logged."""
    facts = read_facts(app, pool, ask_server=ask_server)
    said = [finding for finding in findings(facts) if finding.severity.rank >= Severity.WARNING.rank]
    for finding in said:
        logger.log(
            _LEVELS[finding.severity], "%s: %s. %s To repair: %s", finding.code, finding.found, finding.why, finding.fix
        )
    return said


def pool_named(pool: Any) -> str:
    """The short name of a pool: of ``threads``, ``celery.concurrency.thread:TaskPool``, or the class itself."""
    name = pool if isinstance(pool, str) else pool.__module__
    parts = name.replace(":", ".").split(".")
    short = parts[-2] if len(parts) > 1 and parts[-1][:1].isupper() else parts[-1]
    return _POOLS.get(short, short)


def _refuse_unknown(pool: Any) -> None:
    """A pool that no worker could be started with has nothing that could be checked."""
    # the names are not loaded: gevent may be installed where the workers are, and only there
    if not isinstance(pool, str) or ALIASES.get(pool):
        return
    try:
        found = symbol_by_name(pool)
    except (ImportError, AttributeError, ValueError) as error:
        logger.debug("the pool cannot be looked at: %s", error)
        found = None
    if not isinstance(found, type):
        names = ", ".join(sorted(name for name, path in ALIASES.items() if path))
        raise ConfigurationError(
            f"The pool {pool!r} is none that Celery knows. Name the one that workers are started with: {names}; or a class, as "
            "'package.module:Class'."
        )


def _task(runtime: Runtime, task: Any) -> TaskFacts:
    # first, for it also gives the task its contract's limits
    contract = runtime.contract_of(task)
    conf = runtime.app.conf
    limit, soft = task.time_limit or conf.task_time_limit, task.soft_time_limit or conf.task_soft_time_limit
    on_timeout = getattr(task, "acks_on_timeout", None)
    if on_timeout is None:  # before Celery 5.7 one option says both
        on_timeout = task.acks_on_failure_or_timeout
    return TaskFacts(
        name=task.name,
        guarded=bool(getattr(task, "guarded", False)),
        contract=contract,
        acks_late=bool(task.acks_late),
        reject_on_worker_lost=bool(task.reject_on_worker_lost),
        acks_on_timeout=on_timeout is None or bool(on_timeout),
        limit=_duration(limit),
        soft=_duration(soft),
        serializer=str(task.serializer),
        unread=tuple(_unread(task)),
        unknown_failures=() if contract is None else tuple(_unknown_failures(contract.retry)),
    )


def _unread(task: Any) -> Iterator[str]:
    """Where a contract was written that no guard looks at: on a plain task, or under a misspelt name."""
    for kind in type(task).__mro__:
        for name, value in vars(kind).items():
            if isinstance(value, Contract) and not (name == "contract" and getattr(task, "guarded", False)):
                yield name


def _unknown_failures(retry: Retry) -> Iterator[str]:
    """Dotted names that no class answers to, as far as can be told without importing anything."""
    for name in (*retry.on, *retry.never, *retry.throttled):
        if isinstance(name, str) and not _may_exist(name):
            yield name


def _may_exist(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    if not module:
        return hasattr(builtins, name)
    if module in sys.modules:
        return hasattr(sys.modules[module], attribute)
    root = module.partition(".")[0]
    return root in sys.modules or find_spec(root) is not None


def _broker(app: Celery) -> tuple[str, timedelta | None]:
    """The transport's name and its visibility timeout: the configured one, or its class's default, or None where it has none."""
    try:
        connection = app.connection_for_read()
        channel = getattr(connection.get_transport_cls(), "Channel", None)
    except ImportError as error:
        logger.debug("the broker's transport cannot be looked at: %s", error)
        return "", None
    for name in ("default_visibility_timeout", "visibility_timeout"):
        default = getattr(channel, name, None)
        if isinstance(default, (int, float)):
            options: Mapping[str, Any] = connection.transport_options or {}
            return str(connection.transport_cls), _duration(options.get("visibility_timeout") or default)
    return str(connection.transport_cls), None


def _increments(app: Celery, backend: Any) -> bool:
    """Whether a chord's parts are counted by a counter that goes up by one for each report."""
    try:
        found, _ = backends.by_url(backend, app.loader)
    except (ImportError, ImproperlyConfigured) as error:
        logger.debug("the result backend cannot be looked at: %s", error)
        return False
    counts = getattr(found, "on_chord_part_return", None) is BaseKeyValueStoreBackend.on_chord_part_return
    return counts and bool(found.implements_incr)


def _scheme(backend: Any) -> str:
    return backend.partition("://")[0] if isinstance(backend, str) else type(backend).__name__


def _names(value: Any) -> Sequence[str]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(str(entry) for entry in value)


def _duration(value: Any) -> timedelta | None:
    if value is None or isinstance(value, timedelta):
        return value
    return timedelta(seconds=float(value))
