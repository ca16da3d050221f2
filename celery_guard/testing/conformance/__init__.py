"""The conformance suite: what every store has to do, as tests that a store's author runs with one import.

A whole test module of a store::

    import pytest

    from celery_guard.testing.conformance import *  # noqa: F403
    from my_store import MyCallers, empty, lose_message, open_store

    @pytest.fixture(scope="module")
    def subject():
        return Subject(name="mine", url="mydb://...", open=open_store, empty=empty, lose_message=lose_message)

    @pytest.fixture
    def caller(subject):           # transactions of somebody else's program on the same database,
        return MyCallers(subject)  # or refuse_callers(store), for a store that declares it cannot join them

One file a journey: accept, audit, keys, followers, handover, claim, progress, bodies, settle, tell, relay, sweep, people, operators, letters, replays,
edits, ciphertexts, counting, doors, clock, races, apart, cut, cut_relay, cut_people,
round_trips, upkeep. The tests wait for the store, by polling it with a bound, and assert nothing about how long it took.
"""

# ruff: noqa: E402  (pytest has to be told of the modules before they are imported)

import pytest

_MODULES = "accept apart audit bodies ciphertexts claim clock counting crowd cut cut_people cut_relay cuts doors edits followers handover keys letters moves operators people progress races relay replays round_trips settle sweep tell upkeep"
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _MODULES.split()))

from .accept import TestAccept, TestDue
from .apart import TestProcesses
from .audit import TestAudit
from .bodies import TestBodies
from .ciphertexts import TestCiphertexts
from .claim import TestClaim, TestCounts, TestRenew
from .clock import TestClock, skewed
from .counting import TestCounting, TestStanding
from .cut import TestCut
from .cut_people import TestPeopleCut, TestReplaysCut
from .cut_relay import TestRelayCut
from .doors import TestDoors, TestOpenTransactions
from .edits import TestEdits
from .fixtures import opened_store, store
from .followers import TestFollowers
from .handover import TestHandover
from .keys import TestKeys
from .letters import TestAges, TestExpiry, TestGroups, TestPurge, TestResolve, TestWouldReplay
from .operators import TestBacklog, TestHandled, TestNarrowing, TestUnknown
from .people import TestCancel, TestQuarantine, TestReading, TestReplay
from .progress import TestProgress
from .races import TestRaces
from .relay import TestDoubling, TestGiveBack, TestRelay, TestTokens
from .replays import TestReplays
from .round_trips import TestRoundTrips, wired
from .settle import TestLate, TestSettle, TestSettleFailure, TestSettleFollow
from .subject import Caller, Callers, Subject, refuse_callers
from .sweep import TestLapsed, TestRetain, TestSuspects
from .tell import TestTell
from .upkeep import TestSlots, TestStoreItself

__all__ = [
    "Caller",
    "Callers",
    "Subject",
    "TestAccept",
    "TestAges",
    "TestAudit",
    "TestBacklog",
    "TestBodies",
    "TestCancel",
    "TestCiphertexts",
    "TestClaim",
    "TestClock",
    "TestCounting",
    "TestCounts",
    "TestCut",
    "TestDoors",
    "TestDoubling",
    "TestDue",
    "TestEdits",
    "TestExpiry",
    "TestFollowers",
    "TestGiveBack",
    "TestGroups",
    "TestHandled",
    "TestHandover",
    "TestKeys",
    "TestLapsed",
    "TestLate",
    "TestNarrowing",
    "TestOpenTransactions",
    "TestPeopleCut",
    "TestProcesses",
    "TestProgress",
    "TestPurge",
    "TestQuarantine",
    "TestRaces",
    "TestReading",
    "TestRelay",
    "TestRelayCut",
    "TestRenew",
    "TestReplay",
    "TestReplays",
    "TestReplaysCut",
    "TestResolve",
    "TestRetain",
    "TestRoundTrips",
    "TestSettle",
    "TestSettleFailure",
    "TestSettleFollow",
    "TestSlots",
    "TestStanding",
    "TestStoreItself",
    "TestSuspects",
    "TestTell",
    "TestTokens",
    "TestUnknown",
    "TestWouldReplay",
    "opened_store",
    "refuse_callers",
    "skewed",
    "store",
    "wired",
]
