"""Replay: dead letters are sent again as a frozen set, in waves, by whoever drives it.

    preview -> freeze (page by page, then it runs) -> each turn: look, stop or finish, next wave, release

The operator's command makes the replay and watches it. Relays drive it, in their loop; the state is all in the store, and each step a
compare-and-set there (:mod:`celery_guard.job.replay` has the rule), so the death of any process, or two of them at once, changes nothing.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from celery_guard.errors import MoveRefused, StoreError, StoreUnavailableError
from celery_guard.job.audit import NewAudit, Outcome
from celery_guard.job.letter import Handled
from celery_guard.job.replay import (
    SAME_CAUSE,
    SAME_CAUSE_SHARE,
    NewReplay,
    Replay,
    ReplayState,
    why_stop,
    window,
)
from celery_guard.job.row import Job
from celery_guard.store.protocol import Store

from .actor import Action, Actor, Target
from .audit import Authority
from .letters import Letters, pages, target_of

__all__ = ["Driver", "Preview", "Replays"]

logger = logging.getLogger("celery_guard.replay")

#: More tenants than these are counted together.
_SHOWN_TENANTS = 50
_OTHERS = "others"

#: A turn is about so long, and releases at most so many.
_TURN = timedelta(seconds=1)
_MOST = 100

#: So many jobs that have failed again are looked at for one of the same cause.
_LOOKED_AT = 100

_ID_OF_HOLDER = re.compile(r"its key is held by job .* \((\w+)\)")


@dataclass(slots=True)
class Preview:
    """What a replay would do now; each job is looked at again when its turn comes."""

    count: int = 0
    tasks: Counter[str] = field(default_factory=Counter)
    #: Jobs without a tenant are under the empty name.
    tenants: Counter[str] = field(default_factory=Counter)
    #: Why some would be skipped, and how many.
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def would_go(self) -> int:
        """How many would be sent again."""
        return self.count - sum(self.skipped.values())


class Replays:
    """``guard.dlq.replays``: sending dead letters again. Each method is told who acts, and raises ``NotAllowed`` where they may not."""

    def __init__(self, store: Store, authority: Authority, replayable: Callable[[str], bool]) -> None:
        self._store = store
        self._authority = authority
        self._replayable = replayable

    def preview(self, letters: Letters, *, by: Actor) -> Preview:
        """What a replay of these would do; nothing is changed. Raises ``NotFound``."""
        self._authority.look(by, Action.DLQ_LOOK, target_of(letters))
        seen = Preview()
        for job, why in self._looked_at(letters, by):
            seen.count += 1
            seen.tasks[job.task] += 1
            tenant = job.tenant or ""
            seen.tenants[tenant if tenant in seen.tenants or len(seen.tenants) < _SHOWN_TENANTS else _OTHERS] += 1
            if why:
                seen.skipped[_ID_OF_HOLDER.sub(r"its key is held by another job (\1)", why)] += 1
        return seen

    def begin(
        self,
        letters: Letters,
        *,
        by: Actor,
        reason: str,
        rate: float = 10,
        cap: int | None = None,
        stop_share: int = 20,
        same_cause: int = SAME_CAUSE_SHARE,
        confirm: int | None = None,
    ) -> Replay:
        """Freeze the set and let it run.

        Args:
            rate: jobs a second, at most 1000.
            cap: how many jobs of one tenant may be on their way at a time.
            stop_share: it stops itself when more than so many per cent of a wave have failed again.
            same_cause: it stops itself when more than so many per cent of what was sent, and at least two, have died again of the cause that
                they had died of.
            confirm: how many jobs the actor has said may be touched.

        Raises ``ReasonMissing``, ``ConfirmationNeeded``, ``NotFound``; ``MoveRefused`` where none of them would be sent again.
        """
        if (
            not 0 < rate <= 1000
            or not 0 <= stop_share <= 100
            or not 0 <= same_cause <= 100
            or (cap is not None and cap < 1)
        ):
            raise ValueError("rate is over 0 and at most 1000, stop_share and same_cause from 0 to 100, cap from 1")
        seen = self.preview(letters, by=by)
        if not seen.would_go:
            raise MoveRefused(f"None of these would be sent again: {_skips(seen) or 'there are no such dead letters'}.")
        target = target_of(letters, seen.would_go)
        with self._authority.act(by, Action.DLQ_REPLAY, target, reason, confirm) as acting:
            new = NewReplay(
                id=secrets.token_hex(6), actor=by.name, role=by.role.value, origin=by.origin, reason=reason, target=str(target),
                tenant=self._authority.within(by, target).tenant, every=timedelta(seconds=1 / rate), cap=cap, stop_share=stop_share,
                same_cause=same_cause,
            )  # fmt: skip
            self._store.replay_begin(new)
            acting.result = f"replay {new.id}"
            frozen = self._freeze(new.id, letters, by, seen.would_go)
            self._store.replay_move(new.id, [ReplayState.BUILDING], ReplayState.RUNNING)
            acting.result = f"replay {new.id} of {frozen} jobs"
        return self._found(new.id)

    def _freeze(self, id: str, letters: Letters, by: Actor, most: int) -> int:
        frozen = 0
        batch: list[str] = []

        def add() -> int:
            return self._store.replay_add(id, batch, frozen)

        for job, why in self._looked_at(letters, by):
            if not why and frozen + len(batch) < most:
                batch.append(job.id)
            if len(batch) == _MOST:
                frozen += add()
                batch = []
        return frozen + (add() if batch else 0)

    def _looked_at(self, letters: Letters, by: Actor) -> Iterator[tuple[Job, str]]:
        """Each letter, and why it would be skipped."""
        for page in pages(self._store, letters, by):
            answers = self._store.would_replay([job.id for job in page])
            for job, answer in zip(page, answers, strict=True):
                yield job, answer.why or self._forbidden(job)

    def _forbidden(self, job: Job) -> str:
        return "" if self._replayable(job.task) else "its contract says that its effects are not to be repeated"

    def show(self, id: str, *, by: Actor) -> Replay:
        """One replay with its counts. Raises ``NotFound``."""
        found = self._seen(id, by, Action.DLQ_LOOK)
        self._authority.look(by, Action.DLQ_LOOK, _target(found))
        return found

    def step(self, replay: Replay) -> None:
        """Drive it one step from here, so that its first job goes at once; relays do the rest."""
        Driver(self._store).step(replay)

    def skipped(self, id: str, *, by: Actor, limit: int = 100) -> list[Handled]:
        """Jobs of a replay that were not sent again, and why. Raises ``NotFound``."""
        return self._store.replay_skipped(self.show(id, by=by).id, limit)

    def failed(self, id: str, *, by: Actor, limit: int = 100) -> list[Handled]:
        """Jobs of a replay that have failed again; those sent last first. Raises ``NotFound``."""
        return self._store.replay_failed(self.show(id, by=by).id, limit)

    def pause(self, id: str, *, by: Actor, reason: str) -> Replay:
        """Send no more until it is resumed; what is on its way is not called back. Raises ``NotFound``, ``MoveRefused``."""
        return self._move(id, by, Action.REPLAY_PAUSE, reason, (ReplayState.RUNNING,), ReplayState.PAUSED)

    def resume(self, id: str, *, by: Actor, reason: str) -> Replay:
        """Go on with one that was paused, or has stopped itself; the ramp begins anew. Raises ``NotFound``, ``MoveRefused``."""
        was = (ReplayState.PAUSED, ReplayState.STOPPED)
        return self._move(id, by, Action.REPLAY_RESUME, reason, was, ReplayState.RUNNING)

    def abort(self, id: str, *, by: Actor, reason: str) -> Replay:
        """End it for good; what was not sent stays a dead letter. Raises ``NotFound``, ``MoveRefused``."""
        was = (ReplayState.BUILDING, ReplayState.RUNNING, ReplayState.PAUSED, ReplayState.STOPPED)
        return self._move(id, by, Action.REPLAY_ABORT, reason, was, ReplayState.ABORTED)

    def _move(
        self, id: str, by: Actor, action: Action, reason: str, was: Sequence[ReplayState], to: ReplayState
    ) -> Replay:
        found = self._seen(id, by, action)
        with self._authority.act(by, action, _target(found), reason) as acting:
            if not self._store.replay_move(id, was, to, f"{by.name}: {reason}"):
                now = self._found(id)
                raise MoveRefused(f"The replay {id} is {now.state}; {action} is for one that is {' or '.join(was)}.")
            acting.result = f"it is {to}"
        return self._found(id)

    def _seen(self, id: str, by: Actor, action: Action) -> Replay:
        found = self._store.replay_of(id)
        if found is None or not by.may_see(found.tenant):
            raise self._authority.missing(by, action, f"replay {id}", hidden=found is not None)
        return found

    def _found(self, id: str) -> Replay:
        found = self._store.replay_of(id)
        assert found is not None
        return found

    def list(self, *, by: Actor, states: Sequence[ReplayState] = (), limit: int = 100) -> list[Replay]:
        """Replays, newest first, without counts."""
        scope = self._authority.look(by, Action.DLQ_LOOK, Target(name="replays"))
        return self._store.replays(states=states, tenant=scope.tenant, limit=limit)


class Driver:
    """Drives the replays of a store, a step at a time. Any number may, at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: What the store said of replays that could not be driven: it is logged once.
        self._broken: dict[str, str] = {}

    def once(self) -> int:
        """One step of each replay that runs; how many there are. One that cannot be driven keeps none of the others.

        Raises ``StoreError`` where they cannot be listed, and ``StoreUnavailableError`` where the store is away.
        """
        running = self._running()
        broken: dict[str, str] = {}
        for replay in running:
            try:
                self.step(replay)
            except StoreUnavailableError:
                raise
            except StoreError as error:
                broken[replay.id] = str(error)
                if self._broken.get(replay.id) != str(error):
                    logger.warning("replay %s cannot be driven, the next turn tries again: %s", replay.id, error)
        self._broken = broken
        return len(running)

    def _running(self) -> list[Replay]:
        limit = _MOST
        while len(running := self._store.replays(states=[ReplayState.RUNNING], limit=limit)) == limit:
            limit *= 10
        return running

    def step(self, replay: Replay) -> None:
        """Look at what was sent; stop, finish, go on to the next wave, or release what it is time for."""
        seen = self._store.replay_observe(replay.id, replay.wave, replay.run)
        if why := why_stop(replay, seen):
            self._stop(replay, why)
        elif seen.over:
            self._store.replay_move(replay.id, [ReplayState.RUNNING], ReplayState.DONE, wave=replay.wave)
        elif seen.waiting:
            left = window(replay.wave, replay.run) - seen.released
            if left > 0:
                self._store.replay_release(replay.id, replay.wave, replay.turn, min(left, self._a_turns_worth(replay)))
            elif seen.tried:
                self._store.replay_wave(replay.id, replay.wave)

    def _a_turns_worth(self, replay: Replay) -> int:
        return max(1, min(_MOST, _TURN // max(replay.every, timedelta(microseconds=1))))

    def _stop(self, replay: Replay, why: str) -> None:
        why += self._for_example(replay)
        if self._store.replay_move(replay.id, [ReplayState.RUNNING], ReplayState.STOPPED, why, wave=replay.wave):
            logger.warning("replay %s of %s has stopped itself: %s", replay.id, replay.target, why)
            self._store.audit(
                [
                    NewAudit(
                        token=secrets.token_hex(12), entry=secrets.token_hex(12), outcome=Outcome.DONE, actor="replay", role="",
                        origin="relay", action="replay.stop", target=str(_target(replay)), tenant=replay.tenant, reason=why,
                    )
                ]
            )  # fmt: skip

    def _for_example(self, replay: Replay) -> str:
        """A job that has failed again, and its cause, in words."""
        failed = self._store.replay_failed(replay.id, _LOOKED_AT)
        # what it stopped at is one of the same cause, where there is one
        for found in sorted(failed, key=lambda one: one.why != SAME_CAUSE)[:1]:
            job = self._store.job(found.id)
            if job is not None and job.failures:
                last = job.failures[-1]
                return f"; one of them is job {job.id}: {last.type_name}, cause {last.cause}"
            return f"; one of them is job {found.id}"
        return ""


def _target(replay: Replay) -> Target:
    return Target(name=f"replay {replay.id}", tenant=replay.tenant)


def _skips(seen: Preview) -> str:
    return ", ".join(f"{number} would be skipped ({why})" for why, number in seen.skipped.items())
