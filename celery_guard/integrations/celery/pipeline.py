"""Redis: a batch of messages in one round trip, and the server's answer to each.

kombu's own batch says only whether all of it went well, so that one message which Redis will not have (its queue's key holds
something else) would make the whole batch uncertain, for ever. Here the pipeline that kombu has filled is executed, and each
answer is given to the message that it is about.
"""

from __future__ import annotations

import logging
from typing import Any

from celery_guard.flow.relay import Published
from celery_guard.job.row import Outgoing

from .templates import Templates

__all__ = ["Pipeline", "server_is_out"]

logger = logging.getLogger("celery_guard.relay")

#: Answers of a server that takes no message from anybody now: those that redis-py has a class for, and the words of the others.
_OUT_KINDS = frozenset(
    {
        "AuthenticationError", "BusyLoadingError", "ClusterDownError", "MasterDownError", "OutOfMemoryError", "ReadOnlyError",
        "TryAgainError",
    }
)  # fmt: skip
_OUT_WORDS = frozenset({"BUSY", "MISCONF", "NOREPLICAS", "UNKILLABLE"})


def server_is_out(error: BaseException) -> bool:
    """Whether Redis said that it takes nothing now (full, a replica, loading); it is not this message's fault."""
    return type(error).__name__ in _OUT_KINDS or str(error).partition(" ")[0] in _OUT_WORDS


class Pipeline:
    """One batch in kombu's pipeline. ``batch`` is what ``Producer.batch()`` gives, large enough not to flush by itself."""

    def __init__(self, batch: Any, templates: Templates | None = None) -> None:
        self._batch = batch
        self._templates = templates
        #: Job ids, and how many commands the pipeline held after each.
        self._ends: list[tuple[str, int]] = []

    def fill(self, row: Outgoing) -> bool:
        """Put a message in that kombu need not build; False where it has to."""
        try:
            message = None if self._templates is None else self._templates.filled(row)
        except Exception as error:  # noqa: BLE001 - whatever it is, kombu does not need it
            self._without_templates(row, error)
            return False
        if message is None:
            return False
        pipeline = self._batch.state.session.pipeline
        pipeline.lpush(*message)
        self._ends.append((row.id, len(pipeline.command_stack)))
        return True

    def filled(self, row: Outgoing) -> bool:
        """Note that kombu has put this job's commands in; False where it does not pipeline here, and has sent them."""
        session = self._batch.state.session
        if session is None:
            return False
        pipeline = session.pipeline
        if self._templates is not None:
            begin = self._ends[-1][1] if self._ends else 0
            try:
                self._templates.learn(row, pipeline.command_stack[begin:], getattr(pipeline, "global_keyprefix", ""))
            except Exception as error:  # noqa: BLE001 - as above
                self._without_templates(row, error)
        self._ends.append((row.id, len(pipeline.command_stack)))
        return True

    def _without_templates(self, row: Outgoing, error: Exception) -> None:
        """Have kombu build the rest of the batch: it is the way that always goes."""
        self._templates = None
        logger.warning("job %s: its message could not be put together, kombu builds it: %r", row.id, error)

    def execute(self) -> Published:
        """Send what is in, and say of each message what became of it. Raises redis-py's connection errors."""
        if not self._ends:
            return Published()
        answers = self._batch.state.session.pipeline.execute(raise_on_error=False)
        sent: list[str] = []
        refused: list[tuple[str, Exception]] = []
        outage: Exception | None = None
        begin = 0
        for id, end in self._ends:
            error = next((answer for answer in answers[begin:end] if isinstance(answer, Exception)), None)
            begin = end
            if error is None:
                sent.append(id)
            elif server_is_out(error):
                outage = error
            else:
                refused.append((id, error))
        return Published(tuple(sent), tuple(refused), outage)
