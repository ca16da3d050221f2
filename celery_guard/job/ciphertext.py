"""What the store has that is encrypted, as a rotation of keys reads it: which row, and the text in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Ciphertext", "CiphertextKind"]


class CiphertextKind(str, Enum):
    """Where a ciphertext stands."""

    MESSAGE = "message"
    RESULT = "result"
    FAILURE = "failure"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Ciphertext:
    """One encrypted text of one job."""

    kind: CiphertextKind
    job: str
    #: Which of the job's: a message's generation, a failure's number; 0 for its result.
    part: int
    #: ``<key id>:<token>``; the key id alone where no more was asked for.
    text: str

    @property
    def key(self) -> str:
        """The id of the key that it takes."""
        return self.text.partition(":")[0]
