"""``guard.dlq``: dead letters by what failed alike, single ones, and what a person does about them. Sending them again is :mod:`.replay`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from celery_guard.errors import NotAllowed, NotFound, ReasonMissing
from celery_guard.job.encryption import NO_ENCRYPTION, Encryption
from celery_guard.job.letter import Handled, LetterGroup
from celery_guard.job.row import Job, StoredPayload
from celery_guard.job.state import State
from celery_guard.store.protocol import Store

from .actor import Action, Actor, Target
from .audit import Acting, Authority
from .edit import Edits
from .letters import ALL, Letters, asked, count, pages, target_of
from .replay import Replays
from .seen import seen_job

__all__ = ["Dlq", "Summary"]

_LETTERS = (State.DEAD, State.RESOLVED)
#: Jobs that have a cause.
_FAILED = (*_LETTERS, State.UNKNOWN, State.DROPPED)


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of an action on many letters."""

    done: int
    #: Why others were left, and how many.
    skipped: dict[str, int]
    #: Some of those that were left.
    examples: tuple[Handled, ...] = ()

    def __str__(self) -> str:
        left = [f"{number} skipped ({why})" for why, number in self.skipped.items()]
        return ", ".join([f"{self.done} done", *left])


class Dlq:
    """Dead letters. Each method is told who acts, and raises ``NotAllowed`` where they may not."""

    def __init__(
        self,
        store: Store,
        authority: Authority,
        replays: Replays,
        edits: Edits,
        keep: timedelta,
        encryption: Encryption = NO_ENCRYPTION,
    ) -> None:
        self._store = store
        self._encryption = encryption
        self._authority = authority
        self._keep = keep
        #: Sending them again.
        self.replays = replays
        #: Correcting the arguments of one, and sending it again with them.
        self.edits = edits

    def groups(
        self, *, by: Actor, task: str | None = None, tenant: str | None = None, limit: int = 100
    ) -> list[LetterGroup]:
        """Dead letters by task and cause, the largest group first. Notes are not shown to a tenant's actor."""
        scope = self._authority.look(by, Action.DLQ_LOOK, Target(name="dead letters", tenant=tenant))
        found = self._store.groups(task=task, tenant=scope.tenant, limit=limit)
        return found if by.tenant is None else [replace(group, note="", noted_by="") for group in found]

    def list(self, letters: Letters = ALL, *, by: Actor, limit: int = 100, after: str | None = None) -> list[Job]:
        """Dead letters, newest first; ``after`` is the id of the last one of the page before."""
        scope = self._authority.look(by, Action.DLQ_LOOK, target_of(letters))
        wanted = {**asked(letters), "tenant": scope.tenant}
        return self._store.jobs(states=[State.DEAD], limit=limit, after=after, **wanted)

    def show(self, id: str, *, by: Actor) -> Job:
        """One job with its failures. Raises ``NotFound``."""
        job = self._seen(id, by, Action.DLQ_LOOK)
        self._authority.look(by, Action.DLQ_LOOK, Target((id,), tenant=job.tenant))
        return job

    def reveal(self, id: str, *, by: Actor, reason: str, generation: int | None = None) -> StoredPayload | None:
        """The message of a job as it was sent, decrypted, arguments included; None where it is gone. The audit has who asked, and why.

        ``generation``: an earlier message, from before it was edited or changed by a retry; the first is 0.
        Raises ``NotFound``, ``ReasonMissing``, and ``EncryptionKeyError`` where its key is not known here.
        """
        target = Target((id,), tenant=self._seen(id, by, Action.JOBS_REVEAL).tenant)
        with self._authority.act(by, Action.JOBS_REVEAL, target, reason):
            payload = self._store.payload(id, generation)
            return None if payload is None else self._encryption.decrypt_message(id, payload)

    def _seen(self, id: str, by: Actor, action: Action) -> Job:
        return seen_job(self._store, self._authority, id, by, action)

    def note(self, cause: str, note: str, *, by: Actor) -> None:
        """Put a note to a cause, for whoever looks next; an empty one takes it away. A cause is no one tenant's, and neither is its note.

        Raises ``NotFound`` where nothing has failed of this cause.
        """
        if by.tenant is not None:
            raise NotAllowed(
                f"{by.name} acts for the tenant {by.tenant!r}; notes are to causes, which touch others too."
            )
        if note and not self._store.jobs(states=_FAILED, cause=cause, limit=1):
            raise NotFound(f"Nothing has failed of the cause {cause}. To see the causes there are: guard dlq groups.")
        target = Target(name=f"cause {cause}")
        with self._authority.act(by, Action.DLQ_NOTE, target, note or "the note is taken away"):
            self._store.annotate(cause, note, by.name)

    def resolve(
        self, letters: Letters, *, by: Actor, reason: str, repaired: bool = False, confirm: int | None = None
    ) -> Summary:
        """Close dead letters: the loss is accepted, or (``repaired``) was made good by hand. They are kept for as long as dead ones are.

        Raises ``ReasonMissing``, ``ConfirmationNeeded``, ``NotFound``.
        """

        def close(ids: Sequence[str]) -> list[Handled]:
            return self._store.resolve(ids, self._keep)

        how = "repaired by hand" if repaired else "accepted loss"
        return self._each(Action.DLQ_RESOLVE, letters, (State.DEAD,), by, _with(reason, how), confirm, close)

    def purge(
        self, letters: Letters, *, by: Actor, reason: str, unreplayed: bool = False, confirm: int | None = None
    ) -> Summary:
        """Delete dead and resolved letters, in small batches. Those that were neither replayed nor resolved stay, without ``unreplayed``.

        Raises ``ReasonMissing``, ``ConfirmationNeeded``, ``NotFound``.
        """

        def delete(ids: Sequence[str]) -> list[Handled]:
            return self._store.purge(ids, unreplayed=unreplayed)

        how = "also unreplayed ones" if unreplayed else "not unreplayed ones"
        return self._each(Action.DLQ_PURGE, letters, _LETTERS, by, _with(reason, how), confirm, delete)

    def export(self, letters: Letters = ALL, *, by: Actor, reason: str = "export") -> Iterator[dict[str, Any]]:
        """Dead letters as plain mappings, without arguments, messages of exceptions or tracebacks, a page in memory at a time.

        That may be and is written down when the first one is asked for.
        """
        with self._authority.act(by, Action.DLQ_EXPORT, target_of(letters), reason) as acting:
            number = 0
            for page in pages(self._store, letters, by):
                for job in page:
                    yield exported(job)
                number += len(page)
                acting.result = f"{number} exported"

    def _each(
        self,
        action: Action,
        letters: Letters,
        states: Sequence[State],
        by: Actor,
        reason: str,
        confirm: int | None,
        work: Any,
    ) -> Summary:
        number = count(self._store, letters, by, states)
        done, left, skipped, examples = 0, number, Counter[str](), list[Handled]()
        with self._authority.act(by, action, target_of(letters, number), reason, confirm) as acting:
            for page in pages(self._store, letters, by, states):
                # no more than were counted, and perhaps confirmed
                page = page[:left]
                left -= len(page)
                for answer in _done(acting, page, work):
                    if answer.answer == "done":
                        done += 1
                    else:
                        skipped[answer.why] += 1
                        examples += [answer] if len(examples) < 20 else []
                acting.result = str(Summary(done, dict(skipped)))
                if not left:
                    break
        return Summary(done, dict(skipped), tuple(examples))


def _done(acting: Acting, page: Sequence[Job], work: Any) -> list[Handled]:
    acting.on((job.id, job.tenant) for job in page)
    answers: list[Handled] = work([job.id for job in page])
    return answers


def _with(reason: str, how: str) -> str:
    if not reason.strip():
        raise ReasonMissing("It needs a reason, for whoever reads the audit. On the command line: --reason TEXT.")
    return f"{how}: {reason}"


#: What is not exported: a failure's words may quote arguments.
_UNSAID = frozenset({"failures", "progress"})


def exported(job: Job) -> dict[str, Any]:
    """A letter without anything that may quote an argument."""
    said = {each.name: getattr(job, each.name) for each in fields(job) if each.name not in _UNSAID}
    # a claim sets it to 0: it is no count of how often the job was published
    said["publications_since_claim"] = said.pop("publications")
    return said
