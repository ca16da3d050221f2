"""The name of one call among all calls of a task: its key, and the fingerprint of what it carries.

Both are computed where the job is accepted, travel with it and are never computed again. The arguments are bound through the
task's signature first, with defaults filled in, so that ``charge(7)``, ``charge(order_id=7)`` and ``charge(7, currency="EUR")``
with that default are one call. What counts as one value: :mod:`celery_guard.contract.canonical`.

=============  =======================================================================================
key            SHA-256 of task, tenant and the values that ``Contract.key`` names
fingerprint    SHA-256 of all bound arguments, or of those that ``Contract.match`` names
=============  =======================================================================================

Where the contract says that arguments are sensitive both are keyed (HMAC-SHA-256 with the setting ``key_secret``): nobody who reads a hash can try
out which card number it is of.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, NoReturn, Protocol
from uuid import UUID

from celery_guard.errors import ContractError, EnqueueError, PayloadError
from celery_guard.lazy import lazy

from .canonical import canonical
from .contract import Key, Tenant

__all__ = ["Identity", "Named", "check_key", "identify", "key_hash"]

#: The argument that carries the tenant where the contract names none.
_TENANT = "tenant"
_TENANT_LENGTH = 255
#: Writes what a loose fingerprint is made from.
_LOOSE = json.JSONEncoder(sort_keys=True, default=canonical)
_SHOWN_LENGTH = 200


class Named(Protocol):
    """What a contract says about names: a ``Contract`` or an ``Effective``."""

    @property
    def key(self) -> Key | None: ...

    @property
    def match(self) -> tuple[str, ...] | None: ...

    @property
    def tenant(self) -> Tenant | None: ...

    @property
    def sensitive(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a job is."""

    #: 64 hexadecimal digits; None where the call has no key.
    key: str | None
    #: 64 hexadecimal digits; None only without a key, where a value cannot be compared.
    fingerprint: str | None
    tenant: str | None
    #: The key's values as a person reads them, in bounded length; empty without a key, and where arguments are sensitive.
    shown: str


def identify(
    contract: Named,
    task_name: str,
    signature: Signature | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    payloads: Mapping[str, Any] | None = None,
    secret: bytes | None = None,
) -> Identity:
    """Compute key, fingerprint and tenant of one call.

    ``signature`` is that of the task's body without ``self``; None where the sender does not know the task. ``payloads`` are arguments as a
    function of the contract is to see them, where they travel in another form. With a ``secret`` the hashes are keyed by it.

    Raises:
        TypeError: the arguments do not fit the signature.
        PayloadError: a value that counts has no canonical text.
        EnqueueError: a named value is missing, or the tenant is no short text.
    """
    call = _Call(task_name, signature, args, kwargs, {**kwargs, **(payloads or {})})
    tenant = _tenant(contract.tenant, call)
    values = None if contract.key is None else _key_values(contract.key, call)
    if values is None:
        return Identity(None, _loose_fingerprint(call, secret), tenant, "")
    key = key_hash(task_name, tenant, values, secret)
    shown = "" if secret else ", ".join(f"{name}={canonical(value)}" for name, value in values.items())
    return Identity(key, _hash(_matched(contract.match, call), secret), tenant, _shortened(shown))


def key_hash(task_name: str, tenant: str | None, values: Mapping[str, Any], secret: bytes | None = None) -> str:
    """The key of a call, of the values that the contract names. Raises ``PayloadError`` for a value without a canonical text."""
    return _hash(canonical([task_name, tenant, values]), secret)


def check_key(contract: Named, signature: Signature, task_name: str) -> None:
    """Refuse a contract that names an argument which the task does not have.

    Raises:
        ContractError: names the arguments that exist.
    """
    parameters = signature.parameters
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for field, value in (
        ("key", contract.key), ("match", contract.match), ("tenant", contract.tenant), ("sensitive", contract.sensitive or None),
    ):  # fmt: skip
        for name in _names(value):
            if name.split(".")[0] not in parameters:
                having = ", ".join(parameters) or "none"
                raise ContractError(
                    f"{task_name}: Contract.{field} names {name!r}, which is no argument of the task. Its arguments: {having}."
                )


class _Call:
    """One call's arguments, bound when they are first asked for."""

    def __init__(
        self,
        task_name: str,
        signature: Signature | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        seen: Mapping[str, Any],
    ) -> None:
        self.task_name = task_name
        self.signature = signature
        self.args = args
        self.kwargs = kwargs
        #: ``kwargs`` as a function of the contract sees them.
        self.seen = seen

    @lazy
    def given(self) -> dict[str, Any]:
        """What the caller passed, by parameter. Without a signature, positional arguments have no names."""
        if self.signature is None:
            return {"*": list(self.args), **self.kwargs}
        return self.signature.bind(*self.args, **self.kwargs).arguments

    @lazy
    def bound(self) -> dict[str, Any]:
        """``given`` with defaults filled in."""
        if self.signature is None:
            return self.given
        if (simply := _bound_simply(self.signature, self.args, self.kwargs)) is not None:
            return simply
        filled = self.signature.bind(*self.args, **self.kwargs)
        filled.apply_defaults()
        return filled.arguments

    @lazy
    def by_name(self) -> Mapping[str, Any]:
        """``bound``, and beside it what ``**kwargs`` takes."""
        parameters = () if self.signature is None else self.signature.parameters.values()
        extra: dict[str, Any] = next((self.bound[p.name] for p in parameters if p.kind is Parameter.VAR_KEYWORD), {})
        return {**extra, **self.bound}

    def may_have(self, name: str) -> bool:
        """Whether the call can have an argument of this name; cheaper than binding."""
        return name in self.kwargs or (self.signature is not None and name in self.signature.parameters)

    def value(self, path: str) -> Any:
        """The value at a path such as ``order`` or ``order.id``."""
        name, *deeper = path.split(".")
        if name not in self.by_name:
            self._missing(path, "the call has no argument of this name; pass it by name")
        found = self.by_name[name]
        for step in deeper:
            if not isinstance(found, Mapping):
                self._missing(
                    path, f"{step!r} is looked for in a value of type {type(found).__qualname__}, not a mapping"
                )
            if step not in found:
                self._missing(path, f"there is no {step!r} in the mapping")
            found = found[step]
        return found

    def named(self, path: str) -> Any:
        """The value at a path that names the call: None is no name, but for an argument that may be left out."""
        value = self.value(path)
        if value is None and not self._is_optional(path):
            raise EnqueueError(
                f"{self.task_name}: Contract.key names {path!r}, and it is None in this call, so all such calls would be one. If the "
                "database makes the value, flush the session first; where a call may have no key, make Contract.key a function "
                "that returns None for it. Nothing was enqueued."
            )
        return value

    def _is_optional(self, path: str) -> bool:
        parameter = None if self.signature is None else self.signature.parameters.get(path)
        return parameter is not None and parameter.default is not Parameter.empty

    def _missing(self, path: str, why: str) -> NoReturn:
        raise EnqueueError(f"{self.task_name}: the contract names {path!r}, but {why}. Nothing was enqueued.")


def _bound_simply(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """As ``bind`` and ``apply_defaults`` for parameters that all may be given by name, in less than half of the time; None for any other call."""
    found: dict[str, Any] = {}
    given, named = len(args), 0
    for place, (name, parameter) in enumerate(signature.parameters.items()):
        kind = parameter.kind
        if kind is not Parameter.POSITIONAL_OR_KEYWORD and kind is not Parameter.KEYWORD_ONLY:
            return None
        if place < given:
            if kind is Parameter.KEYWORD_ONLY or name in kwargs:
                return None
            found[name] = args[place]
        elif name in kwargs:
            found[name] = kwargs[name]
            named += 1
        elif parameter.default is Parameter.empty:
            return None
        else:
            found[name] = parameter.default
    return found if named == len(kwargs) and given <= len(found) else None


def _key_values(key: Key, call: _Call) -> dict[str, Any] | None:
    if callable(key):
        value = key(*call.args, **call.seen)
        return None if value is None else {"key": value}
    return {name: call.named(name) for name in _names(key)}


def _matched(match: tuple[str, ...] | None, call: _Call) -> str:
    if match is not None:
        return canonical({name: call.value(name) for name in match})
    # A default that has no text is left out while it is not passed: it is in no message either.
    return canonical(
        {name: value for name, value in call.bound.items() if name in call.given or _has_text(value)}, "the call"
    )


def _loose_fingerprint(call: _Call, secret: bytes | None) -> str | None:
    """A fingerprint for a job without a key, to tell two payloads under one id apart; None rather than an error.

    Celery's own ids are never met twice, so this one is made for speed.
    """
    try:
        arguments = call.bound
    except TypeError:
        arguments = {"*": list(call.args), **call.kwargs}
    try:
        return _hash(_LOOSE.encode(arguments), secret)
    except (TypeError, ValueError, RecursionError, PayloadError):
        return None


def _has_text(value: Any) -> bool:
    try:
        canonical(value)
    except PayloadError:
        return False
    return True


def _tenant(tenant: Tenant | None, call: _Call) -> str | None:
    if callable(tenant):
        value = tenant(*call.args, **call.seen)
    elif tenant is None:
        value = call.value(_TENANT) if call.may_have(_TENANT) else None
    else:
        value = call.value(tenant)
    return None if value is None else _tenant_text(value, call.task_name)


def _tenant_text(value: Any, task_name: str) -> str:
    text = str(value) if isinstance(value, (str, int, UUID)) and not isinstance(value, bool) else ""
    if not text or len(text) > _TENANT_LENGTH or not text.isprintable():
        raise EnqueueError(
            f"{task_name}: the tenant is a value of type {type(value).__qualname__} that is no printable text of 1 to "
            f"{_TENANT_LENGTH} characters. Pass the tenant's name or id. Nothing was enqueued."
        )
    return text


def _names(value: Any) -> tuple[str, ...]:
    if value is None or callable(value):
        return ()
    return (value,) if isinstance(value, str) else value


def _hash(text: str, secret: bytes | None) -> str:
    data = text.encode("ascii")
    return hmac.new(secret, data, "sha256").hexdigest() if secret else hashlib.sha256(data).hexdigest()


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."
