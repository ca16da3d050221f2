"""What is encrypted in the tables, page by page; and one text in place of another."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from celery_guard.job.ciphertext import Ciphertext, CiphertextKind

from .statements import ciphertexts as statements

__all__ = ["page", "reencrypt"]

_KINDS = tuple(CiphertextKind)


def page(
    connection: Connection, limit: int, after: str | None, but: str | None, brief: bool
) -> tuple[list[Ciphertext], str | None]:
    """The ciphertexts among the next ``limit`` rows; and the place to go on from. A place is ``kind part job``."""
    kind, behind = _place(after)
    rows = connection.execute(statements.listed(kind, behind, limit, but, brief)).all()
    home = statements.HOMES[kind]
    found = [Ciphertext(kind, job, int(part), home.inner(text, brief)) for job, part, text in rows if text is not None]
    if len(rows) == limit:
        return found, f"{kind} {rows[-1][1]} {rows[-1][0]}"
    next = _KINDS.index(kind) + 1
    return found, f"{_KINDS[next]}" if next < len(_KINDS) else None


def reencrypt(connection: Connection, was: Ciphertext, text: str, again: bool) -> bool:
    """Put ``text`` in the place of one that is still there; ``again``: an earlier try may have done it."""
    there = (was.text, text) if again else (was.text,)
    return any(
        connection.execute(statements.replaced(was.kind, was.job, was.part, old, text)).rowcount for old in there
    )


def _place(after: str | None) -> tuple[CiphertextKind, tuple[str, int] | None]:
    if after is None:
        return _KINDS[0], None
    kind, *behind = after.split(" ", 2)
    return CiphertextKind(kind), (behind[1], int(behind[0])) if behind else None
