"""Messages that are wrong in one way: a good one with something broken, by a random generator whose seed a test prints."""

from __future__ import annotations

import json
import random
import string
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from celery_guard.job.envelope import HEADER, Envelope

__all__ = ["KINDS", "TOKEN", "Noise", "noise"]

#: A header that nobody knows, by which a message is found again.
TOKEN = "x_noise"

#: A pickle that would call ``os.system`` when it is loaded.
PICKLE = b"cposix\nsystem\n(S'false'\ntR."

WRONG: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**63, 2**200, 1.5, float("nan"), float("inf"), "", "x", "\x00", "a\x00b", "\ud800", "x" * 70_000,
    "9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00", "not a time", [], [1], ["a", 2, None], [[]], {}, {"a": 1}, {"task": 5},
    {"\ud800": "\x00"}, [{"task": "no.such"}],
)  # fmt: skip

HEADERS = (
    "task", "id", "root_id", "parent_id", "group", "group_index", "retries", "eta", "expires", "timelimit", "shadow",
    "origin", "argsrepr", "kwargsrepr", "ignore_result", "stamped_headers", "stamps", "replaced_task_nesting", "lang",
)  # fmt: skip
ENVELOPE = ("id", "key", "fingerprint", "generation", "created", "deadline", "tenant", "correlation_id", "version")


@dataclass
class Noise:
    """A message as it is given to a producer."""

    kind: str
    id: str
    body: bytes
    headers: dict[str, Any]
    content_type: str = "application/json"
    content_encoding: str = "utf-8"
    properties: dict[str, Any] = field(default_factory=dict)


def noise(draw: random.Random, number: int, task: str, kind: str = "") -> Noise:
    """A message for ``task`` that is wrong in one way; ``none`` is a kind too."""
    id = f"noise-{number}"
    envelope = Envelope(id=id, created=time.time()).to_header()
    headers = {
        "lang": "py", "task": task, "id": id, "root_id": id, "parent_id": None, "group": None, "retries": 0, "eta": None,
        "expires": None, "timelimit": [None, None], "argsrepr": "(1,)", "kwargsrepr": "{}", "origin": "noise", HEADER: envelope,
        TOKEN: number,
    }  # fmt: skip
    kind = kind or draw.choice([*KINDS])
    message = Noise(kind, id, _body([1], {}, {}), headers)
    if kind != "none":
        KINDS[kind](draw, message)
    return message


def _body(*parts: Any) -> bytes:
    return json.dumps(parts).encode()


def _truncated(draw: random.Random, it: Noise) -> None:
    it.body = it.body[: draw.randrange(len(it.body))]


def _bytes(draw: random.Random, it: Noise) -> None:
    it.body = draw.randbytes(draw.randrange(64))


def _flipped(draw: random.Random, it: Noise) -> None:
    place = draw.randrange(len(it.body))
    it.body = it.body[:place] + bytes([it.body[place] ^ (1 << draw.randrange(8))]) + it.body[place + 1 :]


def _foreign(draw: random.Random, it: Noise) -> None:
    it.body = json.dumps(draw.choice(WRONG)).encode()


def _deep(draw: random.Random, it: Noise) -> None:
    depth = draw.choice([50, 190, 500, 900, 5_000, 100_000])
    opening, closing = draw.choice([("[", "]"), ('{"a":', "}")])
    it.body = f"[[{opening * depth}1{closing * depth}], {{}}, {{}}]".encode()


def _huge(draw: random.Random, it: Noise) -> None:
    it.body = _body(["x" * 3_000_000], {}, {})


def _header(draw: random.Random, it: Noise) -> None:
    it.headers[draw.choice(HEADERS)] = draw.choice(WRONG)


def _missing(draw: random.Random, it: Noise) -> None:
    del it.headers[draw.choice(["task", "id", "root_id", "retries", "timelimit", HEADER])]


def _envelope(draw: random.Random, it: Noise) -> None:
    it.headers[HEADER][draw.choice(ENVELOPE)] = draw.choice(WRONG)


def _no_envelope(draw: random.Random, it: Noise) -> None:
    it.headers[HEADER] = draw.choice(WRONG)


def _content_type(draw: random.Random, it: Noise) -> None:
    types = [
        "application/x-python-serialize",
        "application/x-yaml",
        "application/x-msgpack",
        "text/plain",
        "\x00",
        "x" * 400,
    ]
    it.content_type = draw.choice([*types, "application/data"])
    if it.content_type == types[0]:
        it.body, it.content_encoding = PICKLE, "binary"


def _encoding(draw: random.Random, it: Noise) -> None:
    it.content_encoding = draw.choice(["binary", "utf-16", "ascii", "nonsense", "base64", "\x00", "x" * 400])


def _compression(draw: random.Random, it: Noise) -> None:
    it.headers["compression"] = draw.choice(["application/x-gzip", "application/x-bz2", "nonsense", 5, [], {"a": 1}])


def _call(draw: random.Random, it: Noise) -> None:
    parts: list[Any] = [[1], {}, {}]
    parts[draw.randrange(3)] = draw.choice(WRONG)
    it.body = _body(*parts)


def _embed(draw: random.Random, it: Noise) -> None:
    name = draw.choice(["callbacks", "errbacks", "chain", "chord"])
    it.body = _body([1], {}, {name: draw.choice(WRONG)})


def _arguments(draw: random.Random, it: Noise) -> None:
    it.body = _body(
        draw.choice([[], [1, 2, 3]]), {"".join(draw.choices(string.printable, k=5)): draw.choice(WRONG)}, {}
    )


def _property(draw: random.Random, it: Noise) -> None:
    it.properties = {draw.choice(["correlation_id", "reply_to"]): draw.choice(["", "\x00", "x" * 300, "\u20ac"])}


def _stranger(draw: random.Random, it: Noise) -> None:
    it.headers["task"] = draw.choice(["no.such.task", "celery.no_such", "x" * 300, "\u20ac"])


KINDS: dict[str, Callable[[random.Random, Noise], None]] = {
    "truncated": _truncated,
    "bytes": _bytes,
    "flipped": _flipped,
    "foreign": _foreign,
    "deep": _deep,
    "huge": _huge,
    "header": _header,
    "missing": _missing,
    "envelope": _envelope,
    "no envelope": _no_envelope,
    "content type": _content_type,
    "encoding": _encoding,
    "compression": _compression,
    "call": _call,
    "embed": _embed,
    "arguments": _arguments,
    "property": _property,
    "stranger": _stranger,
}
