"""Fields that nobody may read: which values of a call they are, and any text without these values.

A contract names fields (``card``, ``customer.email``); a list on the way is entered item by item, and below a named field everything is
sensitive. Their values are known wherever the call is known, and are looked for in every text that leaves it: a value is found as it is printed, as
``repr`` and JSON write it, and where a cut went through it. Values of fewer than three characters are not looked for, for they are everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from celery_guard.errors import ConfigurationError

from .contract import Effective

if TYPE_CHECKING:
    from celery_guard.settings import Settings

__all__ = ["MASK", "NOTHING_HIDDEN", "Hidden", "Locked", "hidden_in", "masked_call", "restored_call", "secret_for"]

MASK = "***"

_SHORTEST = 3
#: What stands where a text was cut (:mod:`celery_guard.job.text`): before it, and after it, a part of a value may stand.
_CUTS = (" […cut]", "\n[…", "…]\n")


class Hidden:
    """Values that no text may have."""

    __slots__ = ("_texts",)

    def __init__(self, values: Iterable[Any] = ()) -> None:
        found = {form for value in values for form in _forms(value) if len(form) >= _SHORTEST}
        #: The longest first: one may be a part of another.
        self._texts = sorted(found, key=len, reverse=True)

    def also(self, other: Hidden) -> None:
        """Hide the values of another call, too: the message that the job goes on with."""
        self._texts = sorted({*self._texts, *other._texts}, key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._texts)

    def text(self, text: str) -> str:
        """The text, with a mask in place of each value."""
        for hidden in self._texts:
            text = text.replace(hidden, MASK)
        for cut in _CUTS:
            if cut in text:
                text = cut.join(self._around_cuts(text.split(cut)))
        return text

    def data(self, value: Any) -> Any:
        """The same for the texts in plain data."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.data(key): self.data(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        if value is None or isinstance(value, bool):
            return value
        shown = str(value)
        return value if self.text(shown) == shown else MASK

    def shows_in(self, text: str) -> bool:
        """Whether one of the values is in the text."""
        return any(hidden in text for hidden in self._texts)

    def _around_cuts(self, parts: list[str]) -> Iterator[str]:
        for index, part in enumerate(parts):
            for hidden in self._texts if index < len(parts) - 1 else ():
                part = _without_end(part, hidden)
            for hidden in self._texts if index else ():
                part = _without_end(part[::-1], hidden[::-1], MASK[::-1])[::-1]
            yield part


#: The values of a call that has no sensitive fields.
NOTHING_HIDDEN = Hidden()


def hidden_in(
    paths: Sequence[str], signature: Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Hidden:
    """The values of the fields at ``paths`` in one call. A call that does not fit the signature is looked through by name only."""
    by_name = _by_name(signature, args, kwargs)
    return Hidden(leaf for path in paths for found in _at(by_name, path.split(".")) for leaf in _leaves(found))


def masked_call(
    paths: Sequence[str], signature: Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The call as it may be shown or exported: (args, kwargs) with a mask in place of each sensitive field."""
    names = [] if signature is None else list(_positional(signature))
    shown = [
        _masked(value, list(_below(paths, names[index] if index < len(names) else None)))
        for index, value in enumerate(args)
    ]
    return shown, {name: _masked(value, list(_below(paths, name))) for name, value in kwargs.items()}


class Locked(Exception):
    """A sensitive field of an edited call is not what it was shown as. Its text names the field and shows no value."""


def restored_call(
    paths: Sequence[str],
    signature: Signature | None,
    edited: tuple[Sequence[Any], Mapping[str, Any]],
    was: tuple[Sequence[Any], Mapping[str, Any]],
) -> tuple[list[Any], dict[str, Any]]:
    """The edited call with each mask replaced by the value that :func:`masked_call` put it in place of.

    Raises ``Locked`` where a sensitive field was changed, moved, added or taken away.
    """
    names = [] if signature is None else list(_positional(signature))
    by_place = [list(_below(paths, name)) for name in names[: max(len(edited[0]), len(was[0]))]]
    args = _restored_items(edited[0], was[0], by_place, "args")
    kwargs = _restored_fields(edited[1], was[1], [path.split(".") for path in paths], "kwargs")
    return args, kwargs


def secret_for(contract: Effective, settings: Settings) -> bytes | None:
    """What the hashes of such a task's calls are keyed with. Raises ``ConfigurationError`` where it is needed and not set."""
    if not contract.sensitive:
        return None
    secret = settings.key_secret
    if secret is None:
        raise ConfigurationError(
            f"{contract.task}: Contract.sensitive names {', '.join(contract.sensitive)}, and the setting key_secret is not set: a plain hash "
            "of a card number can be tried out. To repair: set key_secret (CELERY_GUARD_KEY_SECRET) to one long random text, for all "
            "publishers and workers."
        )
    return secret.get_secret_value().encode()


def _below(paths: Sequence[str], name: str | None) -> Iterator[list[str]]:
    for path in paths:
        first, *rest = path.split(".")
        if first == name:
            yield rest


def _masked(value: Any, paths: Sequence[list[str]]) -> Any:
    if any(not path for path in paths):
        return MASK
    if not paths:
        return value
    if isinstance(value, (list, tuple)):
        return [_masked(item, paths) for item in value]
    if isinstance(value, Mapping):
        return {key: _masked(item, [path[1:] for path in paths if path[0] == str(key)]) for key, item in value.items()}
    return value


def _restored(value: Any, was: Any, paths: Sequence[list[str]], place: str) -> Any:
    if any(not path for path in paths):
        if value != MASK:
            raise Locked(f"{place} is sensitive, and was changed, moved or taken away.")
        if was is _NOTHING:
            raise Locked(f"{place} is sensitive, and was not there before.")
        return was
    if not paths:
        return value
    if isinstance(value, (list, tuple)) and isinstance(was, (list, tuple)):
        return _restored_items(value, was, [paths] * max(len(value), len(was)), place)
    if isinstance(value, Mapping) and isinstance(was, Mapping):
        return _restored_fields(value, was, paths, place)
    if _masked(was, paths) != was or _masked(value, paths) != value:
        raise Locked(f"{place} has sensitive fields, and another shape than it had.")
    return value


def _restored_items(
    value: Sequence[Any], was: Sequence[Any], paths: Sequence[Sequence[list[str]]], place: str
) -> list[Any]:
    if len(value) != len(was) and any(
        _masked(item, list(below)) != item for item, below in zip(was, paths, strict=False)
    ):
        raise Locked(f"{place} has sensitive fields, and another number of items than it had.")
    before = [was[index] if index < len(was) else _NOTHING for index in range(len(value))]
    below = [paths[index] if index < len(paths) else () for index in range(len(value))]
    return [
        _restored(item, old, list(under), f"{place}[{index}]")
        for index, (item, old, under) in enumerate(zip(value, before, below, strict=True))
    ]


def _restored_fields(
    value: Mapping[str, Any], was: Mapping[str, Any], paths: Sequence[list[str]], place: str
) -> dict[str, Any]:
    below = {key: [path[1:] for path in paths if path[0] == str(key)] for key in {**was, **value}}
    for key, old in was.items():
        if key not in value and _masked(old, below[key]) != old:
            raise Locked(f"{place}[{key!r}] is sensitive, and was taken away.")
    return {
        key: _restored(item, was.get(key, _NOTHING), below[key], f"{place}[{key!r}]") for key, item in value.items()
    }


_NOTHING = object()


def _by_name(signature: Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    names = [] if signature is None else list(_positional(signature))
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _positional(signature: Signature) -> Iterator[str]:
    for parameter in signature.parameters.values():
        if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
            yield parameter.name


def _at(value: Any, steps: Sequence[str]) -> Iterator[Any]:
    if not steps:
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _at(item, steps)
    elif isinstance(value, Mapping) and steps[0] in value:
        yield from _at(value[steps[0]], steps[1:])


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield value


def _forms(value: Any) -> Iterator[str]:
    """How a value may stand in a text."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    yield text
    yield repr(value)[1:-1] if isinstance(value, str) else repr(value)
    yield json.dumps(text)[1:-1]


def _without_end(text: str, hidden: str, mask: str = MASK) -> str:
    """The text without the beginning of ``hidden`` that it ends with."""
    for length in range(min(len(hidden), len(text)), _SHORTEST - 1, -1):
        if text.endswith(hidden[:length]):
            return text[:-length] + mask
    return text
