"""From what was declared to what holds: a contract and Celery's options, joined once, where the task is made.

The rules:

* The contract wins. Where an option says something else about the same thing, that is an error and not a choice made in
  silence.
* An option that Celery sets by default declares nothing (every task has ``max_retries=3``).
* ``autoretry_for`` declares a policy: only what it names is repeated, ``max_retries`` (Celery's 3) times, with Celery's
  own delays. ``dont_autoretry_for`` wins over it, as in Celery.
* Without a policy a failure is final. ``self.retry()`` is the body's own wish: it may be called ``max_retries`` times,
  and waits ``default_retry_delay``.
* Retries that nothing else bounds end a week after acceptance.
* A job whose process dies runs again, within ``Retry.max_crashes``; ``reject_on_worker_lost=False`` is Celery's default and
  cannot be told from a wish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from inspect import Signature
from typing import Any

from celery_guard.errors import ContractError

from .contract import UNSET, Contract, Effective, ReadOptions
from .key import check_key
from .measure import duration, refuse, seconds, shown, whole
from .retry import Failures, Retry
from .timing import Timing

__all__ = ["UNBOUNDED_WITHIN", "resolve"]

#: What bounds retries that are bounded by nothing else (``max_retries=None``).
UNBOUNDED_WITHIN = timedelta(days=7)

_CELERY_MAX_RETRIES = 3
_CELERY_RETRY_DELAY = 180.0
_CELERY_BACKOFF_MAX = 600.0
#: Seconds: Celery's "without delay", as a delay over nothing.
_AT_ONCE = 0.001


def resolve(contract: Contract | None, options: ReadOptions, signature: Signature | None, task_name: str) -> Effective:
    """What holds for the task, everything filled in.

    Raises:
        ContractError: a value makes no sense, a name is no argument of the task, or contract and options disagree.
    """
    declared = contract or Contract()
    try:
        if signature is not None:
            check_key(declared, signature, task_name)
        if task_name in declared.aliases:
            refuse("Contract.aliases", task_name, "names that the task had before", "leave out the one it has")
        retry, explicit = _retries(declared.retry, options)
        timing = _timing(declared.timing, options)
    except ContractError as error:
        message = str(error)
        raise ContractError(message if message.startswith(task_name) else f"{task_name}: {message}") from None
    return Effective(
        task=task_name,
        owner=declared.owner,
        key=declared.key,
        match=declared.match,
        tenant=declared.tenant,
        retry=retry,
        timing=timing,
        best_effort=declared.best_effort,
        replayable=declared.replayable,
        aliases=declared.aliases,
        sensitive=declared.sensitive,
        named=declared.named,
        explicit_retries=explicit,
        retry_declared=declared.retry is not None or bool(options.autoretry_for),
    )


def _retries(retry: Retry | None, options: ReadOptions) -> tuple[Retry, int | None]:
    """The policy, and how often ``self.retry()`` may be called."""
    asked = _read_retries("max_retries", options.max_retries)
    if retry is not None:
        _agree(retry, options)
        return retry, None if retry.max_attempts is None else retry.max_attempts - 1
    explicit = _CELERY_MAX_RETRIES if asked is UNSET else asked
    if options.autoretry_for:
        return _autoretry(options, explicit), explicit
    delay = _fixed_delay(options)
    within = UNBOUNDED_WITHIN if explicit is None else None
    return Retry(max_attempts=1, base=delay, cap=delay, jitter=False, within=within), explicit


def _autoretry(options: ReadOptions, explicit: int | None) -> Retry:
    """Celery's ``autoretry_for`` and what belongs to it, as a policy."""
    named = _read_retries("retry_kwargs['max_retries']", _retry_kwarg(options, "max_retries"))
    bound = explicit if named is UNSET else named
    base, cap, jitter = _delays(options)
    never = options.dont_autoretry_for
    return Retry(
        max_attempts=None if bound is None else bound + 1,
        within=UNBOUNDED_WITHIN if bound is None or explicit is None else None,
        base=base,
        cap=cap,
        jitter=jitter,
        # What is named twice is not repeated: Celery asks dont_autoretry_for first.
        on=tuple(dict.fromkeys(name for name in options.autoretry_for if not _is_one_of(name, never))),
        never=tuple(dict.fromkeys(never)),
        only=True,
    )


def _is_one_of(name: Any, never: tuple[type[BaseException], ...]) -> bool:
    return isinstance(name, type) and issubclass(name, never)


def _delays(options: ReadOptions) -> tuple[float, float, bool]:
    """Base, cap and jitter."""
    backoff = 0.0 if options.retry_backoff is UNSET else _number("retry_backoff", options.retry_backoff)
    if not backoff:
        delay = _fixed_delay(options)
        return delay, delay, False
    cap = _CELERY_BACKOFF_MAX
    if options.retry_backoff_max is not UNSET:
        cap = _number("retry_backoff_max", options.retry_backoff_max) or _AT_ONCE
    # Celery's factor is a whole number of seconds, one or more.
    return min(float(int(max(1.0, backoff))), cap), cap, options.retry_jitter is UNSET or bool(options.retry_jitter)


def _fixed_delay(options: ReadOptions) -> float:
    countdown = _retry_kwarg(options, "countdown") if options.autoretry_for else UNSET
    if countdown is not UNSET:
        return _number("retry_kwargs['countdown']", countdown) or _AT_ONCE
    if options.default_retry_delay is UNSET:
        return _CELERY_RETRY_DELAY
    return _number("default_retry_delay", options.default_retry_delay) or _AT_ONCE


def _agree(retry: Retry, options: ReadOptions) -> None:
    """Refuse options that say something else than the contract's ``Retry``."""
    limit = "without a number" if retry.max_attempts is None else f"max_attempts={retry.max_attempts}"
    for name, value in (
        ("max_retries", options.max_retries),
        ("retry_kwargs['max_retries']", _retry_kwarg(options, "max_retries")),
    ):
        asked = _read_retries(name, value)
        if asked is not UNSET and (None if asked is None else asked + 1) != retry.max_attempts:
            said = "without end" if asked is None else f"{asked + 1} attempts in all"
            _conflict(f"{name}={value} ({said})", f"Retry({limit})")
    for name, classes, entries in (
        ("autoretry_for", options.autoretry_for, retry.on),
        ("dont_autoretry_for", options.dont_autoretry_for, retry.never),
    ):
        for missing in (found for found in classes if not _covered(found, entries)):
            listed = "on" if name == "autoretry_for" else "never"
            _conflict(f"{name} names {shown(missing)}", f"Retry, whose `{listed}` does not")
    if options.reject_on_worker_lost is True and retry.max_crashes == 1:
        _conflict("reject_on_worker_lost=True (a lost worker's job runs again)", "Retry(max_crashes=1)")
    _agree_on_delays(retry, options)


def _covered(found: type[BaseException], entries: Failures) -> bool:
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in found.__mro__}
    return any(entry in names if isinstance(entry, str) else issubclass(found, entry) for entry in entries)


def _agree_on_delays(retry: Retry, options: ReadOptions) -> None:
    fixed = retry.base if retry.base == retry.cap and not retry.jitter else None
    for name, value, holds in (
        ("retry_backoff", options.retry_backoff or UNSET, retry.base),
        ("retry_backoff_max", options.retry_backoff_max, retry.cap),
        ("retry_jitter", options.retry_jitter, retry.jitter),
        ("default_retry_delay", options.default_retry_delay, fixed),
        ("retry_kwargs['countdown']", _retry_kwarg(options, "countdown"), fixed),
    ):
        if value is not UNSET and value != holds:
            kept = f"base={retry.base:g}, cap={retry.cap:g}, jitter={retry.jitter}"
            _conflict(f"{name}={shown(value)}", f"Retry({kept})")


def _timing(timing: Timing | None, options: ReadOptions) -> Timing:
    holds = timing or Timing()
    attempt = _read_time("time_limit", options.time_limit, "attempt", holds.attempt)
    soft = _read_time("soft_time_limit", options.soft_time_limit, "soft", holds.soft)
    deadline = _read_time("expires", options.expires, "deadline", holds.deadline)
    if soft is not None and attempt is not None and soft >= attempt:
        if holds.attempt is None and holds.soft is None:
            # Celery's own affair: it refuses each call if soft is the longer one, and an app that it loads is to load
            return replace(holds, attempt=attempt, deadline=deadline)
        refuse("soft_time_limit", soft, f"less than time_limit ({attempt})", "a body needs time to clean up")
    return replace(holds, attempt=attempt, soft=soft, deadline=deadline)


def _read_time(option: str, value: Any, field: str, holds: timedelta | None) -> timedelta | None:
    if value is UNSET or value is None:
        return holds
    said = duration(option, value)
    if holds is not None and said != holds:
        _conflict(f"{option}={shown(value)}", f"Timing({field}={holds})")
    return said


def _read_retries(name: str, value: Any) -> Any:
    if value is UNSET or value is None:
        return value
    return whole(name, value, 0, "0 means no retry, None means no bound but time")


def _retry_kwarg(options: ReadOptions, name: str) -> Any:
    given: Any = options.retry_kwargs
    if given is UNSET:
        return UNSET
    if not isinstance(given, Mapping):
        refuse("retry_kwargs", given, "a mapping such as {'max_retries': 5}", "correct it")
    value = given.get(name)
    # None leaves it to the task, as if it was not there.
    return UNSET if value is None else value


def _number(name: str, value: Any) -> float:
    """Seconds, or 0 for none; True is 1 where Celery reads it so."""
    if value is True and name == "retry_backoff":
        return 1.0
    return 0.0 if value == 0 else seconds(name, value)


def _conflict(option: str, contract: str) -> None:
    raise ContractError(
        f"Celery's option {option} and the contract's {contract} say different things about one task. "
        "To repair: keep the contract and remove the option."
    )
