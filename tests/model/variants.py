"""What is looked at, and the wrong variants: what each of them costs, which the checker has to find."""

from __future__ import annotations

from dataclasses import dataclass

from .moment import Limits
from .rules import Wrong

__all__ = ["DEEP", "LOOKED_AT", "VARIANTS", "Variant"]

_NOBODY = Limits(cancels=0, replays=0)
_ALL = Limits(faults=1)
_SHORT = Limits(mail=1, faults=1, attempts=1, crashes=1, publications=1)

#: What CI walks through completely.
LOOKED_AT = {
    "faults": _NOBODY._replace(faults=1, mail=1),
    "people": _SHORT._replace(faults=0, attempts=2),
    "relays": Limits(workers=1, relays=2, faults=1, replays=0, attempts=1, publications=1),
}

#: The same with more of everything, for an afternoon: ``python -m tests.model --deep``.
DEEP = {
    "faults": _NOBODY._replace(faults=2, mail=2),
    "people": Limits(faults=1, mail=1),
    "relays": Limits(workers=2, relays=2, faults=1, replays=0, attempts=1),
}


@dataclass(frozen=True)
class Variant:
    """A rule left out, the promise that breaks, and where to look for it."""

    wrong: Wrong
    breaks: str
    limits: Limits = _ALL


VARIANTS = (
    Variant(Wrong.NO_FENCE, "what a superseded attempt writes is refused"),
    Variant(Wrong.ATTEMPT_FOR_FENCE, "what a superseded attempt writes is refused"),
    Variant(Wrong.FENCE_WITHOUT_OWNER, "no two live leases"),
    Variant(Wrong.CLOCK_OF_THE_WORKER, "no two live leases"),
    Variant(Wrong.SETTLE_WITHOUT_COMPARE, "one settle a fence"),
    Variant(Wrong.TELL_BEFORE_SETTLE, "Celery is told what is written"),
    Variant(Wrong.SWEEP_WITHOUT_COMPARE, "an ended row is never replaced"),
    Variant(Wrong.SWEEP_WITHOUT_REASON, "one settle a fence", _NOBODY._replace(faults=1)),
    Variant(Wrong.MARK_WITHOUT_TOKEN, "no attempt starts before it is due"),
    Variant(Wrong.EVERYBODY_TELLS, "one teller at a time"),
    Variant(Wrong.TELLER_WITHOUT_TIME, "one teller at a time"),
    Variant(Wrong.SPEAK_WITHOUT_COMPARE, "Celery is told what is written"),
    Variant(Wrong.REPLAY_WITHOUT_FENCE, "told is written after Celery was told"),
    Variant(Wrong.SWEEP_NEVER, "every job ends once faults stop", _SHORT._replace(cancels=0, replays=0)),
    Variant(Wrong.UNBOUNDED_CRASHES, "attempts within bounds", _SHORT._replace(cancels=0, replays=0)),
    Variant(Wrong.CLAIM_ENDED, "the body does not run again after success"),
)
