"""What operators ask of a Redis store: :class:`~celery_guard.store.operators.Operators` by scripts.

======================  ======  ===================================================================================
``audit``               zset    by number: what operators did; each has a hash ``audit:NUMBER``
``audit_job:ID``        zset    by number: what they did to one job
``audit_tokens``        hash    which call has written which row, and the last number
``cause_notes``         hash    notes to causes, as JSON
``cause_replays``       hash    when a job of each cause was last sent again
``replays``             zset    by ``created``: replays; each has a hash ``replay:ID``
``replays_open``        set     those that may still go on
``replay_jobs:ID``      hash    a job of the replay -> its place, as JSON
``replay_state:ID:S``   zset    by position: its jobs in each state
``replay_counts:ID``    hash    how many jobs of each wave are in each state
======================  ======  ===================================================================================
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from celery_guard.job.audit import AuditEntry, NewAudit, Outcome
from celery_guard.job.ciphertext import Ciphertext, CiphertextKind
from celery_guard.job.encryption import ID_LENGTH, MESSAGE, MESSAGE_END, RESULT, TEXT
from celery_guard.job.instant import Instant, instant_to_datetime, microseconds
from celery_guard.job.letter import Handled, LetterGroup
from celery_guard.job.replay import NOBODY, SAME_CAUSE, NewReplay, Progress, Replay, ReplayState
from celery_guard.job.row import Job
from celery_guard.job.text import clean
from celery_guard.store.answers import Replayed
from celery_guard.store.calls import BATCH, batches

from . import groups, replays, rows
from .opened import OpenStore

__all__ = ["RedisOperators"]

#: How many rows one script looks at for a list that people asked for.
_BUDGET = 1000

_TEXTS = ("entry", "actor", "role", "origin", "action", "target", "reason", "detail")


class RedisOperators(OpenStore):
    """The part of a store that people work with."""

    # -- audit ----------------------------------------------------------------------------------------------------

    def audit(self, rows: Sequence[NewAudit]) -> None:
        """Append rows to the audit, in their order."""
        for batch in batches(rows):
            self._server.run("audit", {"rows": [_given(row) for row in batch]})

    def audited(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        outcome: Outcome | None = None,
        job: str | None = None,
        tenant: str | None = None,
        entry: str | None = None,
        since: timedelta | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[AuditEntry]:
        """Rows of the audit, newest first. Filters other than the job are compared row by row, a thousand rows a round trip."""
        word = None if outcome is None else outcome.value
        wanted = {"actor": actor, "action": action, "outcome": word, "tenant": tenant, "entry": entry}
        words: dict[str, Any] = {
            "wanted": {name: value for name, value in wanted.items() if value is not None},
            "budget": _BUDGET,
        }
        if job is not None:
            words["job"] = job
        if since is not None:
            words["since"] = microseconds(since)
        found: list[AuditEntry] = []
        while len(found) < limit:
            place = {} if after is None else {"after": after}
            reached, *page = self._server.run("audited", {**words, **place, "limit": min(limit - len(found), _BUDGET)})
            found += [_entry(number, row) for number, row in page]
            after = int(reached)
            if not after:
                break
        return found

    def retain_audit(self, keep: timedelta, limit: int) -> int:
        """Forget up to ``limit`` rows that are older than ``keep``."""
        gone: int = self._server.run("retain_audit", {"keep": microseconds(keep), "limit": min(limit, BATCH)})
        return gone

    # -- keys -----------------------------------------------------------------------------------------------------

    def ciphertexts(
        self, limit: int, after: str | None = None, *, but: str | None = None, brief: bool = False
    ) -> tuple[list[Ciphertext], str | None]:
        """What is encrypted with another key than ``but``, a page of jobs at a time, the newest first."""
        words: dict[str, Any] = {"indices": ["created"], "budget": limit, "limit": limit, "wanted": {}, "ages": {}}
        place = {} if after is None else {"after": after.split(" ", 1)}
        more, reached, *page = self._server.run("jobs", {**words, **place})
        asked = {
            "ids": [rows.text(id) for id, _ in page], "brief": brief, "id_length": ID_LENGTH, "message": MESSAGE,
            "message_end": MESSAGE_END, "result": RESULT, "text": TEXT, **({} if but is None else {"but": but}),
        }  # fmt: skip
        found = self._server.run("ciphertexts", asked) if page else []
        texts = [
            Ciphertext(CiphertextKind(rows.text(kind)), rows.text(job), int(part), rows.text(text))
            for kind, job, part, text in found
        ]
        return texts, " ".join(map(rows.text, reached)) if more else None

    def reencrypt(self, was: Ciphertext, text: str) -> bool:
        """Put a ciphertext in the place of ``was``."""
        words = {"kind": was.kind.value, "id": was.job, "part": str(was.part), "was": was.text, "text": text}
        return bool(self._server.run("reencrypt", words))

    # -- dead letters ---------------------------------------------------------------------------------------------

    def groups(self, *, task: str | None = None, tenant: str | None = None, limit: int = 100) -> list[LetterGroup]:
        """Dead letters by task and cause, the largest group first. Every letter is looked at, a thousand a round trip."""
        wanted = {name: value for name, value in (("task", task), ("tenant", tenant)) if value is not None}
        largest = groups.counted(self._letters(wanted))[:limit]
        known = self._server.run("causes", {"causes": [group.cause or "" for group in largest]})
        samples = (rows.failures(self._server.run("job", {"id": group.sample})[1]) for group in largest)
        return [
            groups.told(group, note, replayed, sample)
            for group, (note, replayed), sample in zip(largest, known, samples, strict=True)
        ]

    def _letters(self, wanted: Mapping[str, str]) -> Iterator[Job]:
        words = {"indices": ["state:dead"], "budget": _BUDGET, "limit": _BUDGET, "wanted": wanted, "ages": {}}
        more: Any = True
        here: dict[str, Any] = {}
        while more:
            more, reached, *page = self._server.run("jobs", {**words, **here})
            yield from (rows.job(rows.text(id), rows.row_in(row)) for id, row in page)
            here = {"after": [*map(rows.text, reached)]}

    def annotate(self, cause: str, note: str, by: str) -> None:
        """Put a note to a cause."""
        self._server.run("annotate", {"cause": cause, "note": clean(note), "by": clean(by)})

    def resolve(self, ids: Sequence[str], keep: timedelta) -> list[Handled]:
        """Close dead letters."""
        return self._handle("resolve", ids, {"keep": microseconds(keep), "mark": secrets.token_hex(12)})

    def purge(self, ids: Sequence[str], *, unreplayed: bool) -> list[Handled]:
        """Delete dead and resolved letters."""
        return self._handle("purge", ids, {"unreplayed": int(unreplayed)})

    def _handle(self, script: str, ids: Sequence[str], words: dict[str, Any]) -> list[Handled]:
        return [
            groups.handled(id, answer)
            for batch in batches(ids)
            for id, answer in zip(batch, self._server.run(script, {**words, "ids": batch}), strict=True)
        ]

    def would_replay(self, ids: Sequence[str]) -> list[Replayed]:
        """What a replay would answer now."""
        return [
            rows.replayed(id, answer)
            for batch in batches(ids)
            for id, answer in zip(batch, self._server.run("would_replay", {"ids": batch}), strict=True)
        ]

    # -- replays --------------------------------------------------------------------------------------------------

    def replay_begin(self, new: NewReplay) -> None:
        """Write a replay without a job in it."""
        self._server.run("replay_begin", {"id": new.id, "words": replays.given(new)})

    def replay_add(self, id: str, jobs: Sequence[str], first: int) -> int:
        """Add dead jobs to a replay that is building."""
        added = 0
        for batch in batches(jobs):
            added += self._server.run("replay_add", {"id": id, "jobs": batch, "first": first + added})
        return added

    def replay_move(
        self, id: str, was: Sequence[ReplayState], to: ReplayState, why: str = "", wave: int | None = None
    ) -> bool:
        """Change the state of a replay."""
        words: dict[str, Any] = {"id": id, "was": [state.value for state in was], "to": to.value, "why": why}
        if wave is not None:
            words["wave"] = str(wave)
        return bool(self._server.run("replay_move", {**words, "mark": secrets.token_hex(12)}))

    def replay_wave(self, id: str, wave: int) -> bool:
        """Go on to the next wave."""
        words = {"id": id, "was": [ReplayState.RUNNING.value], "wave": str(wave), "mark": secrets.token_hex(12)}
        return bool(self._server.run("replay_move", words))

    def replay_observe(self, id: str, wave: int, run: int) -> Progress:
        """Note what became of jobs that were sent again, and count."""
        words = {"id": id, "wave": wave, "run": run, "limit": _BUDGET, "same": SAME_CAUSE}
        return replays.progress(self._server.run("replay_observe", words))

    def replay_release(self, id: str, wave: int, turn: int, count: int) -> int:
        """Send waiting jobs again, if it is time."""
        words = {
            "id": id, "wave": str(wave), "turn": str(turn), "count": min(count, BATCH), "budget": _BUDGET, "mark": secrets.token_hex(12),
        }  # fmt: skip
        released: int = self._server.run("replay_release", words)
        return released

    def replays(
        self, *, states: Sequence[ReplayState] = (), tenant: str | None = None, limit: int = 100
    ) -> list[Replay]:
        """Replays, newest first; of more than a thousand, the newest thousand."""
        words: dict[str, Any] = {"budget": _BUDGET, "limit": limit}
        if states:
            words["states"] = {state.value: True for state in states}
            if not {*states} & {ReplayState.ABORTED, ReplayState.DONE}:
                words["open"] = True
        if tenant is not None:
            words["tenant"] = tenant
        return self._replays(words)

    def replays_with(self, job: str) -> list[Replay]:
        """Replays that are not over and in which this job waits."""
        return self._replays({"budget": _BUDGET, "limit": _BUDGET, "open": True, "job": job})

    def _replays(self, words: dict[str, Any]) -> list[Replay]:
        found = [replays.of(rows.text(id), row) for id, row in self._server.run("replays", words)]
        return sorted(found, key=lambda replay: replay.created, reverse=True)

    def replay_of(self, id: str) -> Replay | None:
        """One replay with its counts."""
        row, counts = self._server.run("replays", {"id": id})
        return replays.of(id, row, replays.counts(counts)) if row else None

    def replay_skipped(self, id: str, limit: int = 100) -> list[Handled]:
        """Jobs of a replay that were not sent again, and why."""
        found = self._server.run("replay_skipped", {"id": id, "limit": limit})
        answers = (rows.replayed(rows.text(job), why) for job, why in found)
        return [Handled(answer.id, "skipped", answer.why) for answer in answers]

    def replay_failed(self, id: str, limit: int = 100) -> list[Handled]:
        """Jobs of a replay that have failed again."""
        found = self._server.run("replay_failed", {"id": id, "limit": limit})
        return [Handled(*map(rows.text, answer)) for answer in found]

    def retain_replays(self, keep: timedelta, limit: int) -> int:
        """Forget up to ``limit`` rows of a replay that is over for longer than ``keep``."""
        words = {"keep": microseconds(keep), "limit": min(limit, BATCH), "nobody": NOBODY}
        gone: int = self._server.run("retain_replays", words)
        return gone


def _given(row: NewAudit) -> dict[str, Any]:
    said = {name: clean(getattr(row, name)) for name in _TEXTS}
    said |= {"token": row.token, "outcome": row.outcome.value}
    return said | {name: value for name in ("job", "tenant") if (value := getattr(row, name)) is not None}


def _entry(number: Any, row: bytes) -> AuditEntry:
    said = json.loads(row)
    return AuditEntry(
        int(number),
        instant_to_datetime(Instant(int(said["at"]))),
        outcome=Outcome(said["outcome"]),
        job=said.get("job"),
        tenant=said.get("tenant"),
        **{name: said[name] for name in _TEXTS},
    )
