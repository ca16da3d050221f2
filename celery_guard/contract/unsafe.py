"""What is unsafe about an app's settings and contracts: facts in, findings out. Pure rules, no I/O.

Who reads the facts speaks Celery (:mod:`celery_guard.integrations.celery.facts`); who shows the findings are the command
``guard check`` and the log of a worker at boot. Each finding carries a code that never changes its meaning and is a
heading of the runbook's page about checks:

============  =====================================================================
CHECK-1xx     what the broker and the worker do with the message of a lost job
CHECK-2xx     what the worker's pool cannot do
CHECK-3xx     contracts
CHECK-4xx     how messages are written, and where bodies run
CHECK-5xx     the store and its relay
CHECK-6xx     the result backend
============  =====================================================================

A task without a guard is Celery's own affair, but it shares the worker and its settings: what is unsafe for it is a
finding too. What the guard makes harmless for guarded tasks is at most a remark (``info``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from . import server
from .facts import AppFacts, Finding, Severity, TaskFacts

__all__ = ["CODES", "findings"]


def findings(facts: AppFacts) -> list[Finding]:
    """All that is unsafe, the worst first."""
    found = [finding for rule in _RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: (-finding.severity.rank, finding.code))


def _about(
    code: str, severity: Severity, tasks: Iterable[TaskFacts], what: str, why: str, fix: str
) -> Iterator[Finding]:
    """One finding about some tasks; none where there are no such tasks."""
    names = [task.name for task in sorted(tasks, key=lambda task: (not task.own, task.name))]
    if names:
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield Finding(code, severity, f"{what}: {shown}", why, fix, tuple(names))


def _lost_without_bound(facts: AppFacts) -> Iterator[Finding]:
    both = [task for task in facts.tasks if task.acks_late and task.reject_on_worker_lost]
    yield from _about(
        "CHECK-101", Severity.WARNING, (task for task in both if not task.guarded),
        "late acks with reject_on_worker_lost, and no bound",
        "A job that kills its process is delivered again each time; nothing counts, so it kills workers for ever.",
        "base=GuardedTask, which counts crashes (Retry.max_crashes) and ends the job as a dead letter; or reject_on_worker_lost=False.",
    )  # fmt: skip
    yield from _about(
        "CHECK-101", Severity.INFO, (task for task in both if task.guarded),
        "reject_on_worker_lost says nothing to a guarded task",
        "The store brings a lost job back, Retry.max_crashes times; the broker is not asked to.",
        "Leave reject_on_worker_lost and acks_late out.",
    )  # fmt: skip


def _late_acks_alone(facts: AppFacts) -> Iterator[Finding]:
    late = [task for task in facts.tasks if task.acks_late and not task.reject_on_worker_lost]
    yield from _about(
        "CHECK-102", Severity.WARNING, (task for task in late if not task.guarded),
        "late acks do not bring a killed job back",
        "When its process is killed, Celery acknowledges the message all the same: the job is gone.",
        "base=GuardedTask, or Celery(task_cls=GuardedTask) for all: the store brings the job back, a bounded number of times.",
    )  # fmt: skip
    yield from _about(
        "CHECK-102", Severity.INFO, (task for task in late if task.guarded),
        "a guarded task does not need late acks",
        "The store brings a lost job back whenever its message was acknowledged; a message that is held longer is only "
        "delivered more often.",
        "Leave acks_late out.",
    )  # fmt: skip


def _not_acked_on_timeout(facts: AppFacts) -> Iterator[Finding]:
    kept = [task for task in facts.tasks if task.acks_late and not task.acks_on_timeout]
    yield from _about(
        "CHECK-103", Severity.WARNING, (task for task in kept if not task.guarded),
        "late acks with acks_on_timeout off, and no bound",
        "A job that runs into its hard limit is put back on the queue each time, for ever.",
        "base=GuardedTask, for which a hard limit is a counted attempt; or acks_on_timeout=True.",
    )  # fmt: skip
    yield from _about(
        "CHECK-103", Severity.INFO, (task for task in kept if task.guarded),
        "acks_on_timeout=False says nothing to a guarded task",
        "A hard limit is a counted attempt; whether another follows is said by Retry(max_attempts=...).",
        "Leave acks_on_timeout and acks_on_failure_or_timeout out, and declare a Retry.",
    )  # fmt: skip


def _delivered_while_running(facts: AppFacts) -> Iterator[Finding]:
    visible = facts.visibility_timeout
    if visible is None:
        return
    fix = (
        f"Raise visibility_timeout in broker_transport_options over the longest limit, or lower the limit (both in seconds; it is "
        f"{visible.total_seconds():g} now)."
    )
    yield from _about(
        "CHECK-104", Severity.WARNING, (task for task in facts.tasks if task.limit is not None and task.limit > visible),
        f"the broker's visibility timeout ({visible}) is under the limit of an attempt",
        "Messages that are held, or wait in the worker behind such a body, are delivered again meanwhile. The guard refuses "
        "each copy of a guarded job, at the price of a claim; tasks without a guard run twice.",
        fix,
    )  # fmt: skip
    endless = [task for task in facts.tasks if task.limit is None and task.acks_late]
    yield from _about(
        "CHECK-104", Severity.WARNING, (task for task in endless if not task.guarded),
        f"late acks without a limit, under a visibility timeout of {visible}",
        "A body that runs for longer is started a second time, while the first one runs.",
        "Declare a time_limit under the visibility timeout, or base=GuardedTask.",
    )  # fmt: skip
    yield from _about(
        "CHECK-104", Severity.INFO, (task for task in endless if task.guarded),
        f"late acks without a limit, under a visibility timeout of {visible}",
        "While a body runs for longer, copies of its message are delivered; the guard refuses each.",
        "Leave acks_late out.",
    )  # fmt: skip


#: What a pool does about a limit, where it does not enforce it.
_LIMITLESS = {
    "threads": "The threads pool cannot end a body.",
    "solo": "The solo pool cannot end a body: it runs in the worker's only thread.",
    "eventlet": "The eventlet pool does not end a body.",
    "gevent": "The gevent pool ends a body only where it waits, never while it computes.",
}


def _limits_of_the_pool(facts: AppFacts) -> Iterator[Finding]:
    lacks = _LIMITLESS.get(facts.pool)
    if lacks is None:
        return
    yield from _about(
        "CHECK-201", Severity.WARNING, (task for task in facts.tasks if task.limit is not None),
        f"a hard limit, and the {facts.pool} pool",
        f"{lacks} A guarded attempt that is over its limit and grace loses its lease, and another may start while it still runs; "
        "what the first one writes through the guard is refused.",
        "Call self.job.check() in the body, give what it waits for timeouts of its own, or use --pool prefork.",
    )  # fmt: skip
    yield from _about(
        "CHECK-202", Severity.WARNING, (task for task in facts.tasks if task.soft is not None),
        f"a soft limit, and the {facts.pool} pool",
        "SoftTimeLimitExceeded is raised by a signal to a process of its own; in this pool nobody raises it.",
        "Call self.job.check() in the body, or use --pool prefork.",
    )  # fmt: skip


def _green(facts: AppFacts) -> Iterator[Finding]:
    if facts.pool in ("gevent", "eventlet"):
        yield from _about(
            "CHECK-203", Severity.WARNING, facts.guarded,
            f"guarded tasks in the {facts.pool} pool, where a body that computes without waiting renews no lease",
            "All bodies share one thread with what renews their leases. One that computes for longer than the lease loses its "
            "own and all others'; their jobs are started again elsewhere, and the stale attempts are refused.",
            "Let bodies wait often (gevent.sleep(0)), raise the setting lease, or use --pool prefork for such tasks.",
        )  # fmt: skip


def _contracts(facts: AppFacts) -> Iterator[Finding]:
    held = [(task, task.contract) for task in facts.guarded if task.contract is not None]
    yield from _about(
        "CHECK-301", Severity.INFO, (task for task, contract in held if contract.owner is None),
        "no owner",
        "A dead letter of such a task says nobody who could be asked.",
        'Contract(owner="the team").',
    )  # fmt: skip
    yield from _about(
        "CHECK-302", Severity.INFO, (task for task, contract in held if contract.retry.declared and contract.key is None),
        "retries without a key",
        "The same call that is enqueued twice is two jobs, and each of them is repeated.",
        'Contract(key="the argument that names the call"), where the same call must not happen twice.',
    )  # fmt: skip


def _unread(facts: AppFacts) -> Iterator[Finding]:
    yield from _about(
        "CHECK-303", Severity.ERROR, (task for task in facts.tasks if task.unread),
        "a contract that nobody reads",
        "A contract counts on a guarded task, under the name `contract`; elsewhere Celery keeps it as any other attribute, and says nothing.",
        "base=GuardedTask on the task, and contract=Contract(...).",
    )  # fmt: skip
    for task in facts.tasks:
        if task.unknown_failures:
            yield from _about(
                "CHECK-304", Severity.WARNING, [task],
                f"Retry names failures that are not there ({', '.join(task.unknown_failures)})",
                "No exception will ever be one of them, so what should be final may be repeated, or the other way round.",
                "Write the class itself, or its whole dotted name ('requests.Timeout'); and install its library where workers run.",
            )  # fmt: skip


#: Names under which kombu knows the codecs that turn bytes into objects of any kind.
_UNSAFE_CODECS = frozenset({"pickle", "application/x-python-serialize"})


def _codecs(facts: AppFacts) -> Iterator[Finding]:
    why = "Whoever can write to the broker or the result backend can run code in your workers."
    settings = [name for name, values in facts.serializers.items() if _UNSAFE_CODECS & set(values)]
    if settings:
        yield Finding(
            "CHECK-401", Severity.ERROR, f"pickle in {', '.join(sorted(settings))}", why,
            'Use "json" (or "msgpack") and drop pickle from the setting.',
        )  # fmt: skip
    yield from _about(
        "CHECK-401", Severity.ERROR, (task for task in facts.tasks if task.serializer in _UNSAFE_CODECS),
        "pickle as the task's serializer", why, 'serializer="json".',
    )  # fmt: skip


def _eager(facts: AppFacts) -> Iterator[Finding]:
    if facts.always_eager:
        yield Finding(
            "CHECK-402", Severity.WARNING, "task_always_eager is on",
            "Bodies run inside the caller, at once: when that process dies, the job dies with it.",
            "Take it out of every configuration that is not a test's.",
        )  # fmt: skip


def _encryption(facts: AppFacts) -> Iterator[Finding]:
    if facts.has_keys and not facts.encrypts:
        yield Finding(
            "CHECK-403", Severity.INFO, "there are encryption_keys, and encrypt is off",
            "What is encrypted elsewhere is read; what is sent from here is not encrypted.",
            "Once every worker, relay and publisher has the keys: encrypt = True.",
        )  # fmt: skip
    if facts.encrypts and facts.result_backend not in ("", "NoneType", "disabled"):
        yield Finding(
            "CHECK-404", Severity.INFO, f"the result backend ({facts.result_backend}) keeps results as they are",
            "Messages and results are encrypted in the store and on the broker; what Celery is told of an end it writes to its own backend.",
            "ignore_result=True for tasks whose values are nobody's business; callers are given the stored value by the guard.",
        )  # fmt: skip


def _store(facts: AppFacts) -> Iterator[Finding]:
    if facts.store.startswith("sqlite"):
        if facts.store.rstrip("/").endswith(":") or "mode=memory" in facts.store:
            yield Finding(
                "CHECK-502", Severity.WARNING, "the store is in memory",
                "Each process has a store of its own, and what it accepted ends with it.",
                "Name a database: postgresql+psycopg://..., or at least a file: sqlite:///guard.db.",
            )  # fmt: skip
        else:
            yield Finding(
                "CHECK-501", Severity.INFO, f"the store is a file ({facts.store})",
                "It is for one machine: workers on another one, or a network share, would not see each other's jobs.",
                "PostgreSQL, MySQL or MariaDB as soon as there are two machines.",
            )  # fmt: skip
    for guarantee, text in sorted(facts.limits.items()):
        yield Finding(
            "CHECK-503", Severity.INFO, f"a limit of this store, {guarantee}: {text}",
            "What the store cannot keep, the guard cannot promise.", "Know it, or use another store.",
        )  # fmt: skip
    yield from server.server_findings(facts.server)
    if not facts.relay:
        yield Finding(
            "CHECK-504", Severity.INFO, "workers run no relay (setting relay)",
            "Accepted jobs wait until a relay publishes them.",
            "Keep `celery guard relay` running, or the beat task celery_guard.relay.",
        )  # fmt: skip


def _beside_django(facts: AppFacts) -> Iterator[Finding]:
    if facts.beside_django:
        yield Finding(
            "CHECK-505", Severity.WARNING, f"the store ({facts.store}) is none of Django's databases by name",
            "A job that is enqueued inside atomic() does not join that transaction: it goes out whether that commits or not.",
            "Leave the setting store out, or name the database by its alias: django://default.",
        )  # fmt: skip


def _chords(facts: AppFacts) -> Iterator[Finding]:
    if facts.counts_chords_by_increment:
        yield Finding(
            "CHECK-601", Severity.WARNING, f"the result backend ({facts.result_backend}) counts chord parts by increment",
            "A part that is reported twice, which any crash can cause, starts the chord's body too early.",
            "A result backend that knows its parts apart: Redis, or a database (db+...).",
        )  # fmt: skip


_RULES: tuple[Callable[[AppFacts], Iterator[Finding]], ...] = (
    _lost_without_bound,
    _late_acks_alone,
    _not_acked_on_timeout,
    _delivered_while_running,
    _limits_of_the_pool,
    _green,
    _contracts,
    _unread,
    _codecs,
    _eager,
    _encryption,
    _store,
    _beside_django,
    _chords,
)

#: Every code there is.
CODES = (
    "CHECK-101", "CHECK-102", "CHECK-103", "CHECK-104", "CHECK-201", "CHECK-202", "CHECK-203", "CHECK-301", "CHECK-302",
    "CHECK-303", "CHECK-304", "CHECK-401", "CHECK-402", "CHECK-403", "CHECK-404", "CHECK-501", "CHECK-502", "CHECK-503", "CHECK-504", "CHECK-505",
    *server.CODES, "CHECK-601",
)  # fmt: skip
