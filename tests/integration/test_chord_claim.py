"""A process that is told to end while it sends the body of a chord has not sent it, whatever Celery notes on the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import celery
import pytest
from celery import Celery, Task
from celery._state import _task_stack

from celery_guard.integrations.celery.hanging import once_it_can_be_written
from celery_guard.testing.services import REDIS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(celery.VERSION < (5, 7), reason="the claim to send the body is there since Celery 5.7"),
]


class Sends(Task):  # type: ignore[misc]
    """A task that is sent as the guard sends."""

    write: Callable[[Any], str]

    def apply_async(self, args: Any = None, *rest: Any, **options: Any) -> str:
        return once_it_can_be_written(lambda: type(self).write(args))


def nothing() -> None:
    """A body."""


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("claims", broker="memory://", backend=f"{REDIS.need()}2", set_as_current=False)
    yield app
    app.close()


def test_the_body_of_a_chord_is_sent_when_its_last_part_is_told_again_after_a_shutdown_in_the_middle(
    app: Celery,
) -> None:
    member, body = (
        app.task(name="claims.member", shared=False)(nothing),
        app.task(name="claims.body", shared=False, base=Sends)(nothing),
    )
    app.finalize()
    group, written = f"claims-{uuid4().hex}", []
    app.backend.set_chord_size(group, 1)
    member.push_request(id=f"{group}-0", group=group, group_index=0, chord=body.s(), guard_tells=1)
    _task_stack.push(member)

    def ended(args: Any) -> str:
        raise SystemExit

    def sent(args: Any) -> str:
        written.append(args)
        return "sent"

    try:
        Sends.write = staticmethod(ended)
        with pytest.raises(SystemExit):
            app.backend.on_chord_part_return(member.request, "SUCCESS", 7)
        Sends.write = staticmethod(sent)
        for _ in range(2):
            app.backend.on_chord_part_return(member.request, "SUCCESS", 7)
        assert [list(args) for args in written] == [[[7]]]
    finally:
        _task_stack.pop()
        member.pop_request()
