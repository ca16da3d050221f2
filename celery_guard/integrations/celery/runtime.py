"""One app's guard at work: its settings, store, leases and runner, each made when first needed.

Made by :class:`~celery_guard.Guard`, or by the first :class:`~celery_guard.GuardedTask` that is bound to an app which has
none. Making it opens nothing and reads no configuration, so it is safe at import and before a fork.
"""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from celery import Celery

from celery_guard.contract.contract import Effective
from celery_guard.contract.resolve import UNBOUNDED_WITHIN, resolve
from celery_guard.errors import NotGuardedError
from celery_guard.flow.lease import LeaseKeeper
from celery_guard.flow.run import Runner
from celery_guard.flow.skew import Skew
from celery_guard.settings import ENVIRONMENT_PREFIX, Settings, read_settings
from celery_guard.store import open_store
from celery_guard.store.protocol import Store

from .declared import apply, read_options, with_limits_of_app
from .send import signature_of

__all__ = ["ATTRIBUTE", "Runtime", "runtime_of"]

#: Where an app keeps its runtime.
ATTRIBUTE = "_celery_guard"


class Runtime:
    """What the integration needs in one process, for one app."""

    def __init__(self, app: Celery, arguments: Mapping[str, Any]) -> None:
        self.app = app
        self._arguments = dict(arguments)
        self._contracts: dict[str, Effective] = {}
        self._signatures: dict[str, inspect.Signature | None] = {}
        self._me: tuple[int, str] = (0, "")
        #: How many connections to the store this process may have: its bodies at work, and what the guard needs beside them.
        self.connections = 5
        #: A ``Guard`` was made for the app; otherwise a guarded task has brought the runtime along.
        self.made_by_guard = False
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
        said = (
            "store" in self._arguments or self.app.conf.get("guard_store") or f"{ENVIRONMENT_PREFIX}STORE" in os.environ
        )
        return self.made_by_guard or bool(said)

    @cached_property
    def settings(self) -> Settings:
        """Arguments, then ``app.conf.guard_*``, then ``CELERY_GUARD_*``. Raises ``SettingError``."""
        conf = self.app.conf
        mine = {name[len("guard_") :]: conf[name] for name in _names(conf) if name.startswith("guard_")}
        return read_settings(self._arguments, mine, os.environ)

    @cached_property
    def store(self) -> Store:
        """The store named by the settings. Opens no connection before the first use."""
        return open_store(self.settings.store, notify=self.settings.notify, pool_size=self.connections)

    @cached_property
    def keeper(self) -> LeaseKeeper:
        """The leases of this process."""
        return LeaseKeeper(self.store)

    @cached_property
    def skew(self) -> Skew:
        """What this process has seen of publishers' clocks."""
        return Skew()

    @cached_property
    def runner(self) -> Runner:
        """Runs deliveries."""
        return Runner(self.store, self.keeper, self.settings, self.owner)

    def owner(self) -> str:
        """This process, readable for people; the store adds what tells one claim from the next."""
        pid = os.getpid()
        if self._me[0] != pid:
            self._me = pid, f"{socket.gethostname()[:60]}:{pid}"
        return self._me[1]

    def contract_of(self, task: Any) -> Effective | None:
        """What holds for a task; None where it has no guard. Raises ``ContractError``."""
        if task is None or not getattr(task, "guarded", False):
            return None
        contract = self._contracts.get(task.name)
        if contract is None:
            contract = resolve(task.contract, read_options(task), self.signature_of(task), task.name)
            if task.name.startswith("celery.") and contract.explicit_retries is None:
                # chord_unlock asks for ever whether a chord is complete: as long as the parts are kept, that is
                contract = replace(contract, retry=replace(contract.retry, within=self._result_expires()))
            contract = with_limits_of_app(contract, self.app.conf)
            self._contracts[task.name] = contract
            apply(contract, task)
        return contract

    def _result_expires(self) -> timedelta:
        kept = self.app.conf.result_expires
        if isinstance(kept, timedelta):
            return kept
        return timedelta(seconds=kept) if kept else UNBOUNDED_WITHIN

    def contract_named(self, name: str) -> Effective:
        """What holds for a task by name; the defaults where this process does not know it."""
        return self.contract_of(self.app.tasks.get(name)) or Effective(task=name)

    def signature_of(self, task: Any) -> inspect.Signature | None:
        """The signature of a task's body, read once."""
        if task.name not in self._signatures:
            self._signatures[task.name] = signature_of(task)
        return self._signatures[task.name]

    def listen_for(self, task_id: str, result: Any) -> None:
        """Only ``rpc://`` needs to know at enqueue that somebody may ask for this result: it has no other place for it."""
        backend = self.app.backend
        if not getattr(result, "ignored", False) and type(backend).__module__ == "celery.backends.rpc":
            backend.on_task_call(None, task_id)


def runtime_of(app: Celery) -> Runtime:
    """The runtime of an app. Raises ``NotGuardedError`` where there is none."""
    found: Runtime | None = app.__dict__.get(ATTRIBUTE)
    if found is None:
        raise NotGuardedError(f"The app {app.main!r} has no guard. Make one beside the app: Guard(app, store=...).")
    return found


def _names(conf: Any) -> list[str]:
    return [str(name) for name in conf]
