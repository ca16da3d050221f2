"""A connection that is cut in the middle of an operation: at each of its round trips in turn, so that the question is lost, or the answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from celery_guard.job.tally import Count
from celery_guard.store.protocol import Store
from celery_guard.testing.wire import Wire

from .counting import totals

__all__ = ["Cuts", "lost"]

_Prepare = Callable[[Store], Any]
_Call = Callable[[Store, Any], Any]
_Check = Callable[[Store, Any, Any], object]

#: What leaves no row: a call whose answer was lost may be counted once more.
_BESIDE = {Count.DUPLICATE, Count.CONFLICT, Count.IGNORED, Count.FENCED, Count.RENEWED_LATE}

#: Each operation is cut in both ways.
lost = pytest.mark.parametrize("answers", [False, True], ids=["a lost question", "a lost answer"])


class Cuts:
    """``store`` is on a line of its own, ``wired`` is cut."""

    def _everywhere(
        self,
        store: Store,
        wired: tuple[Wire, Store],
        answers: bool,
        prepare: _Prepare,
        call: _Call,
        check: _Check,
        meanwhile: _Call | None = None,
    ) -> None:
        """Cut the call wherever it can be, until it is not cut any more; unless something happens meanwhile, each round counts the same."""
        wire, cut = wired
        then = meanwhile or (lambda store, given: None)
        for at in range(1, 40):
            given = prepare(store)
            cut.next_due()
            wire.cut(at, answers=answers, then=partial(then, store, given))
            said = call(cut, given)
            whole = wire.mend()
            check(store, given, said)
            if whole:
                assert at > 1, "the operation was never cut"
                counted = {label: total for label, total in totals(store).items() if label[0] not in _BESIDE}
                assert meanwhile or all(total % at == 0 for total in counted.values()), (at, counted)
                return
        raise AssertionError("the operation has no end")
