"""Sensitive fields on Celery's side: what is hidden in a call, and the places where Celery would show it.

======================  ===============================================================================================
``argsrepr``            masked in every guarded message (:mod:`.logged`)
the tracer's line       the value that a body returns is not printed, in no event either (``resultrepr_maxsize``)
the pool's line         at the level DEBUG it prints the whole message
``inspect active``      shows the masked call
a failure               what Celery is told has no value in it (:mod:`celery_guard.job.conceal`)
``result_extended``     the result backend is given the masked call
an error at a send      its text is masked
======================  ===============================================================================================
"""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

from celery.app.task import Context

from celery_guard.contract.contract import Effective
from celery_guard.contract.sensitive import MASK, NOTHING_HIDDEN, Hidden, hidden_in, masked_call
from celery_guard.errors import GuardError, PayloadError

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["concealing", "hidden_of", "quiet_pool", "said_safely"]


def hidden_of(runtime: Runtime, task: Any, contract: Effective | None, args: Any, kwargs: Any) -> Hidden:
    """The values of the call's sensitive fields, an object of its own where there are such fields."""
    if contract is None or not contract.sensitive:
        return NOTHING_HIDDEN
    return hidden_in(contract.sensitive, runtime.shape_of(task).signature, args or (), kwargs or {})


def said_safely(error: Exception, hidden: Hidden) -> Exception:
    """The error of a send, without a sensitive value; itself where it has none."""
    if not hidden:
        return error
    from celery_guard.job.conceal import conceal_error

    said = conceal_error(hidden, error)
    if said is error:
        return error
    if isinstance(error, GuardError):
        return type(error)(*(hidden.text(arg) if isinstance(arg, str) else arg for arg in error.args))
    return PayloadError(f"{type(error).__qualname__}: {hidden.text(str(error))}", "")


def concealing(backend: Any, runtime: Runtime, task: Any) -> Any:
    """A task's result backend; one that keeps masked calls, where it keeps calls and they have sensitive fields."""
    contract = runtime.contract_of(task)
    if contract is None or not contract.sensitive or not task.app.conf.result_extended:
        return backend
    return _Concealing(backend, runtime, task)


class _Concealing:
    """A result backend that is given masked calls to keep (``result_extended``)."""

    def __init__(self, backend: Any, runtime: Runtime, task: Any) -> None:
        self._backend = backend
        self._runtime = runtime
        self._task = task

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            return found(
                *(self._masked(value) for value in args),
                **{name: self._masked(value) for name, value in kwargs.items()},
            )

        return call

    def _masked(self, value: Any) -> Any:
        contract = self._runtime.contract_of(self._task)
        if not isinstance(value, Context) or contract is None:
            return value
        masked = copy.copy(value)
        masked.args, masked.kwargs = masked_call(
            contract.sensitive, self._runtime.shape_of(self._task).signature, value.args or (), value.kwargs or {}
        )
        return masked


class _NoCalls(logging.Filter):
    """The pool's line about what it runs, without the message."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and len(record.args) == 3 and str(record.msg).startswith("TaskPool: Apply"):
            record.args = (record.args[0], MASK, MASK)
        return True


_NO_CALLS = _NoCalls()


def quiet_pool() -> None:
    """Have the pool's lines at the level DEBUG show no message."""
    logging.getLogger("celery.pool").addFilter(_NO_CALLS)
