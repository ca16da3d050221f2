"""What is unsafe about the server of a store that keeps what it is given in memory first: it may evict, and it may forget.

The facts are Redis's own words for its settings, as far as it says them to the store's user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .facts import Finding, Severity

__all__ = ["CODES", "server_findings"]

#: Every code there is.
CODES = ("CHECK-511", "CHECK-512", "CHECK-513")


def server_findings(server: Mapping[str, str | None]) -> Iterator[Finding]:
    """What is unsafe about how the server is set; nothing where the store has no such server."""
    if server:
        yield from _evicts(server.get("maxmemory-policy"), server.get("maxmemory"))
        yield from _forgets(server.get("appendonly"), server.get("appendfsync"))
        yield from _silent(server)


def _evicts(policy: str | None, limit: str | None) -> Iterator[Finding]:
    if policy is None or policy == "noeviction":
        return
    fix = "maxmemory-policy noeviction, on a server of the store's own: full, it refuses writes, and messages wait."
    if policy.startswith("volatile-"):
        yield Finding(
            "CHECK-511", Severity.WARNING, f"the store's server may evict what expires (maxmemory-policy {policy})",
            "Nothing of the store expires, so it is not evicted; what others keep on this server is, such as results that Celery "
            "waits for.", fix,
        )  # fmt: skip
        return
    limited = limit not in (None, "", "0")
    yield Finding(
        "CHECK-511", Severity.ERROR if limited else Severity.WARNING,
        f"the store's server evicts jobs when its memory is full (maxmemory-policy {policy}, maxmemory {limit or 'unknown'})",
        "Accepted jobs, leases, keys and results vanish without a word: jobs are lost, and others run twice.", fix,
    )  # fmt: skip


def _forgets(appendonly: str | None, appendfsync: str | None) -> Iterator[Finding]:
    if appendonly == "no":
        yield Finding(
            "CHECK-512", Severity.WARNING, "the store's server keeps no log of what it was given (appendonly no)",
            "When it ends, every job since its last snapshot is gone, or every job, where it takes none.",
            "appendonly yes, and appendfsync always where no accepted job may be lost.",
        )  # fmt: skip
    elif appendonly == "yes" and appendfsync in ("no", "everysec"):
        how = "a second of" if appendfsync == "everysec" else "many seconds of"
        yield Finding(
            "CHECK-512", Severity.WARNING if appendfsync == "no" else Severity.INFO,
            f"the store's server answers before what it was given is on disk (appendfsync {appendfsync})",
            f"When its machine dies, up to {how} accepted jobs, claims and outcomes are forgotten.",
            "appendfsync always, where no accepted job may be lost.",
        )  # fmt: skip


def _silent(server: Mapping[str, str | None]) -> Iterator[Finding]:
    unsaid = [name for name, value in server.items() if value is None]
    if server.get("appendonly") == "no" and "appendfsync" in unsaid:
        unsaid.remove("appendfsync")
    if unsaid:
        yield Finding(
            "CHECK-513", Severity.WARNING, f"the store's server does not say how it is set: {', '.join(unsaid)}",
            "It could not be reached, or its user may not ask (INFO, CONFIG GET). Nobody has checked that it keeps what it is given.",
            "Let the user run INFO and CONFIG GET, or make sure of it yourself: noeviction, appendonly yes.",
        )  # fmt: skip
