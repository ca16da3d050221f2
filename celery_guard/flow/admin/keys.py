"""``guard.keys``: which keys what is stored is encrypted with, and putting all of it under the first key.

A rotation goes through the store a page at a time and writes each text by compare-and-set, so it may run beside everything else, be
killed at any moment, and be begun again: what it has written is under the first key already and is passed over. It needs the keys,
and no job is read, run or changed by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from celery_guard.errors import ConfigurationError, EncryptionKeyError, PayloadError
from celery_guard.job.ciphertext import Ciphertext, CiphertextKind
from celery_guard.job.encryption import Encryption, key_of
from celery_guard.job.state import State
from celery_guard.store.protocol import Store

from .actor import Action, Actor, Target
from .audit import Authority

__all__ = ["KeyUse", "Keys", "Rotated", "unknown_keys"]

#: Rows that one question to the store looks at. Messages are up to ``payload_limit`` large, and a page is in memory at once.
_PAGE = 50

#: Jobs that a worker looks at when it starts.
_SAMPLE = 10


@dataclass(frozen=True, slots=True)
class KeyUse:
    """One key: what this process may do with it, and how much of what is stored takes it."""

    key: str
    #: ``encrypts``, ``decrypts``, or ``missing`` where this process does not have it.
    here: str
    messages: int = 0
    results: int = 0
    failures: int = 0

    @property
    def used(self) -> bool:
        """Whether anything that is stored takes it."""
        return bool(self.messages or self.results or self.failures)


@dataclass(frozen=True, slots=True)
class Rotated:
    """What came of a rotation."""

    renewed: int
    #: Texts whose key is not known here, by that key.
    unknown: Mapping[str, int] = field(default_factory=dict)
    #: Texts that do not open with the key that they name, as "message of job 5f0c...": the first of them.
    damaged: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [f"{self.renewed} renewed"]
        words += [f"{number} left, for the key {key} is not known here" for key, number in self.unknown.items()]
        return ", ".join([*words, *([f"{len(self.damaged)} damaged"] if self.damaged else [])])


class Keys:
    """The keys of one app's store."""

    def __init__(self, store: Store, authority: Authority, encryption: Encryption) -> None:
        self._store = store
        self._authority = authority
        self._encryption = encryption

    def status(self, *, by: Actor) -> list[KeyUse]:
        """Every key that this process has, or that something in the store takes. Reads every row once. Raises ``NotAllowed``."""
        self._authority.look(by, Action.KEYS_LOOK, _target(by, "keys"))
        used: dict[str, Counter[CiphertextKind]] = {key: Counter() for key in self._encryption.keys}
        for page in self._pages(but=None, brief=True):
            for text in page:
                used.setdefault(text.key, Counter())[text.kind] += 1
        return [
            KeyUse(key, self._here(key), *(counted[kind] for kind in CiphertextKind)) for key, counted in used.items()
        ]

    def rotate(self, *, by: Actor, reason: str, progress: Callable[[int], object] = lambda done: None) -> Rotated:
        """Put everything that is stored encrypted under the first key. ``progress`` is told how many texts were renewed.

        What is written meanwhile, by processes whose first key is another, is left: give all of them the key first, and look at
        :meth:`status` afterwards.

        Raises:
            NotAllowed, ReasonMissing: nothing was touched.
            ConfigurationError: this process has no keys.
        """
        if not self._encryption.keys:
            raise ConfigurationError("encryption_keys is not set here: there is no key to put what is stored under.")
        renewed, unknown, damaged = 0, Counter[str](), list[str]()
        target = _target(by, f"key {self._encryption.keys[0]}")
        with self._authority.act(by, Action.KEYS_ROTATE, target, reason) as acting:
            for page in self._pages(but=self._encryption.keys[0], brief=False):
                for text in page:
                    try:
                        renewed += self._store.reencrypt(text, self._encryption.renewed(text.text))
                    except EncryptionKeyError:
                        unknown[text.key] += 1
                    except PayloadError:
                        damaged.append(f"{text.kind} of job {text.job}")
                acting.result = str(Rotated(renewed, unknown, tuple(damaged)))
                progress(renewed)
        return Rotated(renewed, unknown, tuple(damaged))

    def _pages(self, *, but: str | None, brief: bool) -> Iterator[list[Ciphertext]]:
        place: str | None = None
        while True:
            page, place = self._store.ciphertexts(_PAGE, place, but=but, brief=brief)
            yield page
            if place is None:
                return

    def _here(self, key: str) -> str:
        if not self._encryption.knows(key):
            return "missing"
        return "encrypts" if self._encryption.on and key == self._encryption.keys[0] else "decrypts"


def _target(by: Actor, named: str) -> Target:
    """Keys are no tenant's, so an actor with one is refused."""
    return Target(name=named, tenant=None if by.tenant is None else "")


def unknown_keys(store: Store, encryption: Encryption) -> set[str]:
    """Keys that the newest waiting jobs take and this process does not have. A few jobs are looked at, whatever the store holds."""
    waiting = store.jobs(states=[State.PENDING, State.SENT], limit=_SAMPLE)
    messages = (store.payload(job.id) for job in waiting)
    keys = {key_of(message) for message in messages if message is not None}
    return {key for key in keys if key is not None and not encryption.knows(key)}
