"""Authority: every action of an operator goes through here, is allowed or refused, and is written down either way.

    may they? -> how many, and is that meant? -> intent -> the action -> what came of it

The intent is written before anything is touched, so that a process which is killed leaves the truth: it was begun. Refusals are written as well.
Looking is not written down, but for what shows arguments (``reveal``) or takes data out (``export``); a look that is refused is.

If what came of an action cannot be written, because the store went away, the action is not undone and no error is made of it: the log has it,
and the audit has the intent.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from celery_guard.errors import ConfirmationNeeded, GuardError, NotAllowed, NotFound, ReasonMissing, StoreError
from celery_guard.job.audit import AuditEntry, NewAudit, Outcome
from celery_guard.store.operators import Operators

from .actor import Action, Actor, Authorize, Target, needed

__all__ = ["Acting", "Audit", "Authority"]

logger = logging.getLogger("celery_guard.audit")

#: Rows of single jobs that are written at once.
_TOGETHER = 500


class Acting:
    """An action that is allowed and under way."""

    def __init__(self, store: Operators, first: NewAudit) -> None:
        self._store = store
        self._first = first
        #: What came of it, in a few words; the audit keeps it.
        self.result = ""

    @property
    def entry(self) -> str:
        """What the rows of this action have in common."""
        return self._first.entry

    def intend(self, detail: str) -> None:
        """Note more of what is about to be done, before it is."""
        self._store.audit([self._row(Outcome.INTENDED, detail=detail)])

    def on(self, jobs: Iterable[tuple[str, str | None]]) -> None:
        """Note single jobs (id, tenant) that are about to be touched, each in a row of its own."""
        rows = [self._row(Outcome.INTENDED, job=id, tenant=tenant) for id, tenant in jobs]
        for start in range(0, len(rows), _TOGETHER):
            self._store.audit(rows[start : start + _TOGETHER])

    def _row(
        self, outcome: Outcome, *, detail: str = "", job: str | None = None, tenant: str | None = None
    ) -> NewAudit:
        first = self._first
        return replace(
            first, token=_token(), outcome=outcome, detail=detail, job=job or first.job, tenant=tenant or first.tenant
        )

    def end(self, outcome: Outcome, detail: str) -> None:
        """Note what came of it."""
        try:
            self._store.audit([self._row(outcome, detail=detail)])
        except StoreError as error:
            logger.error(
                "%s by %s on %s is %s (%s), which the audit could not be told: %s",
                self._first.action, self._first.actor, self._first.target, outcome, detail, error,
            )  # fmt: skip


class Authority:
    """Decides who may, and writes down who did.

    Args:
        authorize: the rule that says yes or no.
        confirm_above: an action on more jobs than this is refused until its number is confirmed.
    """

    def __init__(self, store: Operators, authorize: Authorize, confirm_above: int) -> None:
        self._store = store
        self._authorize = authorize
        self.confirm_above = confirm_above

    def look(self, actor: Actor, action: Action, target: Target) -> Target:
        """What the actor may look at of this: the target, narrowed to the actor's tenant. Raises ``NotAllowed``."""
        target = self.within(actor, target)
        self._ask(actor, action, target, "")
        return target

    def within(self, actor: Actor, target: Target) -> Target:
        """The target, as far as it is of the actor's tenant."""
        return replace(target, tenant=actor.tenant) if target.tenant is None else target

    @contextmanager
    def act(
        self, actor: Actor, action: Action, target: Target, reason: str, confirm: int | None = None
    ) -> Iterator[Acting]:
        """Do something inside the block, if the actor may and its extent is meant; the audit has it either way.

        ``confirm`` is how many jobs the actor has said may be touched.

        Raises:
            NotAllowed: the actor may not.
            ReasonMissing: nobody said why.
            ConfirmationNeeded: it touches more jobs than ``confirm_above``, and than were confirmed.
        """
        target = self.within(actor, target)
        self._ask(actor, action, target, reason)
        self._sized(actor, action, target, reason, confirm)
        first = self._row(actor, action, target, reason, Outcome.INTENDED)
        self._store.audit([first])
        acting = Acting(self._store, first)
        try:
            yield acting
        except BaseException as error:
            # what a GuardError says was written for people; others may quote what they met
            said = f"{error.code}: {error}" if isinstance(error, GuardError) else type(error).__name__
            acting.end(Outcome.FAILED, f"{acting.result}; {said}" if acting.result else said)
            raise
        acting.end(Outcome.DONE, acting.result)

    def missing(self, actor: Actor, action: Action, what: str, *, hidden: bool) -> NotFound:
        """The error for something that is not there, or is another tenant's: the actor is told the same, the audit is not."""
        if hidden:
            self._refuse(actor, action, Target(name=what), "", "it is another tenant's")
        return NotFound(f"There is no {what}: it never was, or its time was over and it was deleted.")

    def _ask(self, actor: Actor, action: Action, target: Target, reason: str) -> None:
        if not actor.may_see(target.tenant):
            self._refuse(actor, action, target, reason, f"the actor is {actor.tenant}'s")
            raise NotAllowed(f"{actor.name} acts for the tenant {actor.tenant!r} and sees no other.")
        try:
            allowed = self._authorize(actor, action, target)
        except Exception as error:
            self._refuse(actor, action, target, reason, f"authorize raised {type(error).__name__}")
            raise
        if allowed is not True:
            self._refuse(actor, action, target, reason, "not allowed")
            raise NotAllowed(
                f"{actor.name} ({actor.role}) may not do {action} on {target}. By default it takes the role {needed(action)}; "
                "on the command line that is --role, elsewhere who makes the Actor says it, or the setting authorize."
            )

    def _sized(self, actor: Actor, action: Action, target: Target, reason: str, confirm: int | None) -> None:
        if not reason.strip():
            self._refuse(actor, action, target, reason, "no reason was given")
            raise ReasonMissing(
                f"{action} needs a reason, for whoever reads the audit. On the command line: --reason TEXT."
            )
        count = target.count or 0
        if count > max(self.confirm_above, confirm or 0):
            self._refuse(actor, action, target, reason, "not confirmed")
            raise ConfirmationNeeded(
                f"{action} on {target} touches {count} jobs, more than {self.confirm_above} (setting confirm_above). If that many are meant, "
                f"confirm the number: --confirm {count}.",
                count,
                self.confirm_above,
            )

    def _refuse(self, actor: Actor, action: Action, target: Target, reason: str, why: str) -> None:
        self._store.audit([replace(self._row(actor, action, target, reason, Outcome.REFUSED), detail=why)])

    def _row(self, actor: Actor, action: Action, target: Target, reason: str, outcome: Outcome) -> NewAudit:
        return NewAudit(
            token=_token(), entry=_token(), outcome=outcome, actor=actor.name, role=actor.role.value, origin=actor.origin,
            action=action.value, target=str(target), job=target.job,
            tenant=target.tenant if actor.tenant is None else actor.tenant, reason=reason,
        )  # fmt: skip


class Audit:
    """``guard.audit``: who did what, on what, why, from where, and what came of it. Rows are only ever appended."""

    def __init__(self, store: Operators, authority: Authority) -> None:
        self._store = store
        self._authority = authority

    def list(
        self,
        *,
        by: Actor,
        actor: str | None = None,
        action: Action | None = None,
        outcome: Outcome | None = None,
        job: str | None = None,
        tenant: str | None = None,
        entry: str | None = None,
        since: timedelta | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[AuditEntry]:
        """Rows, newest first; ``since`` is an age, ``after`` the number of the last one of the page before.

        ``by`` is who looks: an actor with a tenant sees that tenant's rows. Raises ``NotAllowed``.
        """
        scope = self._authority.look(by, Action.AUDIT_LOOK, Target(name="audit", tenant=tenant))
        return self._store.audited(
            actor=actor, action=None if action is None else action.value, outcome=outcome, job=job, tenant=scope.tenant,
            entry=entry, since=since, limit=limit, after=after,
        )  # fmt: skip


def _token() -> str:
    return secrets.token_hex(12)
