"""The processes around one job, and an adversary who decides what happens next.

Workers, a relay and a sweep are each a place in their program and what they hold in memory; between any two of their steps anybody
else may take any number of steps, so a process that is frozen is one whose turn does not come. The adversary also

* kills a process anywhere (a new one takes its place, with nothing in memory), interrupts a body by a shutdown,
* loses a message, doubles one, loses the answer of a store call that was written (the call is repeated, as the store's retry does),
* lets time pass, whenever it likes: a lease may lapse under a process at work, a wait may end at once.

Clocks of workers are in no rule, so skewed ones change nothing; the variant that reads one shows what they would change. What is
checked is kept beside the row, as an onlooker who sees everything would write it down; no rule reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import rules
from .moment import RETRY, Known, Limits, Relay, State, Sweep, Worker, too_late, unused, with_worker
from .rules import ENDED, NOW, End, Mine, Row, Seen, Wrong

__all__ = ["Violation", "World"]


class Violation(Exception):
    """A step that may not be possible, in words, and the promise that it breaks."""

    def __init__(self, promise: str, step: str) -> None:
        super().__init__(promise, step)
        self.promise = promise
        self.step = step


Step = tuple[str, State]


class World:
    """All that can happen next, right or wrong."""

    def __init__(self, limits: Limits, wrong: Wrong | None = None) -> None:
        self.limits = limits
        self.wrong = wrong

    def steps(self, now: State) -> Iterator[Step]:
        """What may happen with faults."""
        yield from self.progress(now)
        yield from self._adversary(now)

    def progress(self, now: State) -> Iterator[Step]:
        """What processes do by themselves."""
        for place, worker in enumerate(now.workers):
            if place and worker == now.workers[place - 1]:
                continue  # two that are alike may do the same
            yield from _WORKER[worker.at](self, now, worker)
        for place in range(len(now.relays)):
            yield from self._relay(now, place)
        yield from self._sweep(now)

    def healed(self, now: State) -> list[Step]:
        """What happens once faults have stopped: processes are faster than any wait, so time passes when nobody has work."""
        return list(self.progress(now)) or list(self._time(now))

    def resting(self, now: State) -> bool:
        """The job has ended, and Celery knows."""
        return now.row.state in ENDED and now.row.told and now.known.heard and not now.mail

    # -- workers ------------------------------------------------------------------------------------------------------

    def _idle(self, now: State, worker: Worker) -> Iterator[Step]:
        if now.mail:
            yield from self._claim(now._replace(mail=now.mail - 1), worker, unused(now))

    def _claim_again(self, now: State, worker: Worker) -> Iterator[Step]:
        yield from self._claim(now, worker, worker.owner)

    def _claim(self, now: State, worker: Worker, owner: int) -> Iterator[Step]:
        row = rules.claim(now.row, owner, self.wrong)
        if row is None:
            yield from self._look(now, worker, owner)
            return
        words = f"a worker claims the job: fence {row.fence}"
        moved = now._replace(row=row, known=self._granted(now, row, owner, words))
        yield words, with_worker(moved, worker, _started(owner, row))
        yield from _unheard(words, moved, worker, Worker("claim", owner))

    def _look(self, now: State, worker: Worker, owner: int) -> Iterator[Step]:
        row = now.row
        if row.state == "running" and (
            row.owner == owner or (self.wrong is Wrong.FENCE_WITHOUT_OWNER and worker.owner)
        ):
            words = f"a worker repeats its claim and takes the job for its own: fence {row.fence}"
            known = self._granted(now, row, owner, words)
            yield words, with_worker(now._replace(known=known), worker, _started(owner, row))
        elif row.state in ENDED and not row.told and row.relay is not None:
            speaking = Worker("speak", owner, row.fence, how=End(row.state))
            yield (
                f"a worker claims and reads that the job is {row.state} and untold",
                with_worker(now, worker, speaking),
            )
        else:
            yield "a worker claims and finds nothing to do", with_worker(now, worker, Worker())

    def _speak(self, now: State, worker: Worker) -> Iterator[Step]:
        assert worker.how is not None
        row = rules.speak(now.row, worker.how.state, worker.fence, self.wrong)
        if row is None:
            yield f"another is to tell fence {worker.fence}", with_worker(now, worker, Worker())
            return
        spoken = now._replace(row=row)
        words = f"a worker becomes the one to tell: fence {worker.fence} is {worker.how.state}"
        yield from _unheard(words, spoken, worker, Worker("claim", worker.owner))
        self._one_teller(now, words)
        yield words, with_worker(spoken, worker, Worker("tell", fence=worker.fence, how=worker.how))

    def _run(self, now: State, worker: Worker) -> Iterator[Step]:
        if worker.cancel:
            yield from self._settle(now, worker._replace(how=End("cancelled")), worker)
            return
        returned = worker._replace(how=End("succeeded"))
        if self.wrong is Wrong.TELL_BEFORE_SETTLE:
            yield f"the body of fence {worker.fence} returns", with_worker(now, worker, returned._replace(at="tell"))
        else:
            yield from self._settle(now, returned, worker)
        spent = worker.made >= self.limits.attempts
        yield from self._settle(now, worker._replace(how=End("dead", "failed") if spent else RETRY), worker)

    def _settle_again(self, now: State, worker: Worker) -> Iterator[Step]:
        yield from self._settle(now, worker, worker)

    def _settle(self, now: State, worker: Worker, before: Worker) -> Iterator[Step]:
        assert worker.how is not None
        mine, how = Mine(worker.fence, worker.owner, worker.attempt), worker.how
        words = f"fence {worker.fence} settles: {how.state}"
        row = rules.settle(now.row, mine, how, self.wrong)
        if row is None and worker.again and rules.was_written(now.row, mine, how):
            yield (
                f"fence {worker.fence} settles again and finds that it is written",
                with_worker(now, before, _ended(worker)),
            )
        elif row is None:
            yield f"fence {worker.fence} settles and is refused", with_worker(now, before, Worker())
        else:
            moved = self._settled(now, row, (worker.fence, worker.owner), words)
            yield words, with_worker(moved, before, _ended(worker))
            yield from _unheard(words, moved, before, worker._replace(at="settle", again=True))

    def _settled(self, now: State, row: Row, attempt: tuple[int, int], words: str) -> State:
        if now.known.latest != attempt:
            raise Violation("what a superseded attempt writes is refused", words)
        if now.known.settled:
            raise Violation("one settle a fence", words)
        if row.state in ENDED:
            self._one_teller(now, words)
        known = now.known._replace(settled=True, live=now.known.live - {attempt})
        return self._move(now._replace(known=known), row)

    def _tell(self, now: State, worker: Worker) -> Iterator[Step]:
        assert worker.how is not None
        same = (now.row.state, now.row.fence) == (worker.how.state, worker.fence)
        if not same and worker.in_time:
            raise Violation(
                "Celery is told what is written",
                f"fence {worker.fence} tells Celery: {worker.how.state}; the row is {now.row.state}",
            )
        known = now.known._replace(heard=now.known.heard or same)
        after = "settle" if self.wrong is Wrong.TELL_BEFORE_SETTLE and worker.owner else "note"
        yield (
            f"fence {worker.fence} tells Celery: {worker.how.state}",
            with_worker(now._replace(known=known), worker, worker._replace(at=after)),
        )

    def _note(self, now: State, worker: Worker) -> Iterator[Step]:
        row = rules.told(now.row, worker.fence) or now.row
        if row.told and not now.known.heard:
            raise Violation("told is written after Celery was told", f"fence {worker.fence} notes that Celery was told")
        yield f"fence {worker.fence} notes that Celery was told", with_worker(now._replace(row=row), worker, Worker())

    # -- relay and sweep ------------------------------------------------------------------------------------------------

    def _relay(self, now: State, place: int) -> Iterator[Step]:
        relay = now.relays[place]
        name = f"relay {place + 1}"

        def at(relay: Relay, after: State) -> State:
            return after._replace(relays=(*after.relays[:place], relay, *after.relays[place + 1 :]))

        if relay.at == "idle":
            token = unused(now)
            row = rules.take(now.row, token)
            if row is not None and now.mail < self.limits.mail:
                taken = now._replace(row=row, mail=now.mail + 1)
                yield f"{name} takes the row and publishes", at(Relay("mark", token), taken)
        else:
            row = rules.published(now.row, relay.token, self.wrong)
            if row is None:
                yield f"{name} finds its token gone", at(Relay(), now)
            else:
                yield f"{name} marks the row", at(Relay(), self._move(now, row))

    def _sweep(self, now: State) -> Iterator[Step]:
        row = now.row
        if now.sweep.saw is not None:
            assert now.sweep.how is not None
            moved = rules.recover(row, now.sweep.saw, now.sweep.how, self.wrong)
            after = now._replace(sweep=Sweep())
            if moved is None:
                yield "the sweep finds the row changed", after
            else:
                yield f"the sweep moves the job: {moved.state}", self._move(after, moved)
        elif rules.lapsed(row, self.wrong):
            sweep = Sweep(Seen(row.state, row.reason, row.fence, row.owner), self._recovery(row))
            yield f"the sweep sees the job {row.state} for too long", now._replace(sweep=sweep)

    def _recovery(self, row: Row) -> End:
        """What the sweep decides: as ``Sweep.recover_lapsed`` and ``Sweep.recover_unclaimed`` do."""
        if row.state == "sent":
            if row.publications >= self.limits.publications:
                return End("dead", "never_claimed", due=NOW)
            return End("pending", row.reason, due=NOW)
        if row.cancel:
            return End("cancelled", due=NOW)
        if row.crashes + 1 >= self.limits.crashes and self.wrong is not Wrong.UNBOUNDED_CRASHES:
            return End("dead", "crashed", crashed=True, due=NOW)
        return End("pending", "lost", crashed=self.wrong is not Wrong.UNBOUNDED_CRASHES)

    # -- the adversary --------------------------------------------------------------------------------------------------

    def _adversary(self, now: State) -> Iterator[Step]:
        yield from self._time(now)
        yield from self._people(now)
        for worker in now.workers:
            if worker.at in ("run", "settle"):
                yield from self._renewal(now, worker, f"fence {worker.fence}")
        if not now.faults:
            return
        weaker = now._replace(faults=now.faults - 1)
        for worker in now.workers:
            if worker.at != "idle":
                yield (
                    f"the worker of fence {worker.fence} is killed ({worker.at})",
                    with_worker(weaker, worker, Worker()),
                )
            if worker.at == "run":
                interrupted = worker._replace(how=End("pending", "interrupted", charged=False))
                for words, after in self._settle(weaker, interrupted, worker):
                    yield f"{words} (interrupted)", after
        for place, relay in enumerate(now.relays):
            if relay.at != "idle":
                others = (*now.relays[:place], Relay(), *now.relays[place + 1 :])
                yield f"relay {place + 1} is killed", weaker._replace(relays=others)
        if now.sweep.saw is not None:
            yield "the sweep is killed", weaker._replace(sweep=Sweep())
        if now.mail:
            yield "a message is lost", weaker._replace(mail=now.mail - 1)
        if now.mail < self.limits.mail and now.row.fence + now.row.publications:
            yield "a message comes once more", weaker._replace(mail=now.mail + 1)

    def _time(self, now: State) -> Iterator[Step]:
        row = rules.come(now.row)
        if row is not None:
            live = frozenset() if row.state == "running" else now.known.live
            known = now.known._replace(live=live, ripe=True)
            workers = now.workers
            if row.state in ENDED:
                workers = too_late(workers)
            yield "time passes", now._replace(row=row, known=known, workers=workers)

    def _people(self, now: State) -> Iterator[Step]:
        if now.cancels:
            row, answer = rules.cancel(now.row)
            if answer != "too late":
                yield f"a person cancels: {answer}", self._move(now, row)._replace(cancels=now.cancels - 1)
        row_again = rules.replay(now.row, self.wrong) if now.replays else None
        if row_again is not None:
            late = too_late(now.workers)
            known = now.known._replace(heard=False, ripe=True)
            yield "a person replays", now._replace(
                row=row_again, workers=late, known=known, replays=now.replays - 1
            )  # fmt: skip

    def _renewal(self, now: State, worker: Worker, name: str) -> Iterator[Step]:
        row = rules.renew(now.row, Mine(worker.fence, worker.owner, worker.attempt))
        if row is None:
            yield f"{name} learns that it lost the job", with_worker(now, worker, Worker())
            return
        live = now.known.live | {(worker.fence, worker.owner)}
        self._one_lease(live, f"{name} renews its lease")
        renewed = with_worker(
            now._replace(row=row, known=now.known._replace(live=live)), worker, worker._replace(cancel=row.cancel)
        )
        if renewed != now:
            yield f"{name} renews its lease", renewed

    # -- what must hold -------------------------------------------------------------------------------------------------

    def _granted(self, now: State, row: Row, owner: int, step: str) -> Known:
        known, fence = now.known, row.fence
        # one that hears of its grant too late knows that by its own clock: it asked before that lease began
        live = known.live if row.due == NOW else known.live | {(fence, owner)}
        self._one_lease(live, step)
        if known.succeeded:
            raise Violation("the body does not run again after success", step)
        if not known.ripe:
            raise Violation("no attempt starts before it is due", step)
        if known.latest[0] == fence and known.latest != (fence, owner):
            raise Violation("one owner a fence", step)
        if row.crashes >= self.limits.crashes or row.attempts > self.limits.attempts + self.limits.crashes - 1:
            raise Violation("attempts within bounds", step)
        return known._replace(live=live, latest=(fence, owner), settled=False)

    def _one_lease(self, live: frozenset[tuple[int, int]], step: str) -> None:
        if len(live) > 1:
            raise Violation("no two live leases", step)

    def _one_teller(self, now: State, step: str) -> None:
        if any(worker.at in ("tell", "note") and worker.in_time and not worker.owner for worker in now.workers):
            raise Violation("one teller at a time", step)

    def _move(self, now: State, row: Row) -> State:
        """A row that is moved: an end is never replaced (but by replay, which does not come here)."""
        before = now.row
        if before.state in ENDED and (row.state, row.fence, row.reason) != (before.state, before.fence, before.reason):
            raise Violation("an ended row is never replaced", f"the row is {before.state}, and becomes {row.state}")
        if row.state == before.state and row.reason == before.reason:
            return now._replace(row=row)
        known = now.known
        if row.state == "pending":
            known = known._replace(ripe=row.due == NOW)
        elif row.state in ENDED:
            known = known._replace(heard=False, succeeded=known.succeeded or row.state == "succeeded")
        return now._replace(row=row, known=known)


def _started(owner: int, row: Row) -> Worker:
    return Worker("run", owner, row.fence, row.attempts, row.attempts - row.crashes, row.cancel)


def _ended(worker: Worker) -> Worker:
    assert worker.how is not None
    if worker.how.state in ENDED:
        return Worker("tell", fence=worker.fence, how=End(worker.how.state), in_time=worker.in_time)
    return Worker()


def _unheard(words: str, moved: State, before: Worker, again: Worker) -> Iterator[Step]:
    """The same step, its answer lost: the call will be repeated."""
    if moved.faults:
        yield f"{words}; the answer is lost", with_worker(moved._replace(faults=moved.faults - 1), before, again)


_WORKER: dict[str, Callable[[World, State, Worker], Iterator[Step]]] = {
    "idle": World._idle,
    "claim": World._claim_again,
    "speak": World._speak,
    "run": World._run,
    "settle": World._settle_again,
    "tell": World._tell,
    "note": World._note,
}
