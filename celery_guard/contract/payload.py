"""Payload models: arguments with a version, which old and new workers of one fleet can tell apart.

A message says for each payload of which version it is. A worker reads every version from ``oldest`` up to its own: what is older is
brought up one version at a time by the model's upcasts. What is newer it cannot read, and gives back: the job is parked
(``held_version``) until a worker comes that can.

=======================  =======================================================================
the message's version    what a worker does whose model has ``version=3``
=======================  =======================================================================
3                        reads it
1, 2                     reads it through the upcasts 1 -> 2 -> 3
none                     takes it for 1: its sender knew no models
4                        parks the job
=======================  =======================================================================

Raise the version whenever a message of the old shape would be refused or misread: a field that is added without a default, renamed,
removed, or that means something else.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticSerializationError

from celery_guard.errors import ContractError, PayloadError, PayloadVersionError

from .measure import refuse, span, whole

__all__ = ["Payload", "Snapshot", "encoded", "opened", "upcast", "validated"]

_Data = dict[str, Any]
_Model = TypeVar("_Model", bound="Payload")

#: What a message without a version is taken for.
UNVERSIONED = 1


class _Upcast:
    """A function of a payload model, from one version's data to the next one's."""

    def __init__(self, version: int, function: Callable[[_Data], _Data]) -> None:
        self.version = version
        self.function = function


def upcast(version: int) -> Callable[[Callable[[_Data], _Data]], Any]:
    """Mark a function of a payload model: it turns the data of ``version`` into that of ``version + 1``.

    The function is given the data as a mapping of its own and returns one. It has to be pure: it runs in every attempt of every message of that
    version, so it asks nobody and changes nothing.

    Raises ``ContractError`` for what is no version.
    """
    whole("upcast", version, 1, "name the version that is read")
    return lambda function: _Upcast(version, function)


def _gapless(model: type[BaseModel], version: int, oldest: int) -> dict[int, Callable[[_Data], _Data]]:
    name = model.__qualname__
    found = [value for value in vars(model).values() if isinstance(value, _Upcast)]
    upcasts = {upcast.version: upcast.function for upcast in found}
    if oldest > version:
        refuse(f"{name}(oldest={oldest})", oldest, f"at most version={version}", "correct one of them")
    if len(upcasts) < len(found):
        raise ContractError(f"{name} has two upcasts from one version. To repair: keep one.")
    needed = range(oldest, version)
    missing = [step for step in needed if step not in upcasts]
    if missing:
        steps = ", ".join(f"{step} -> {step + 1}" for step in missing)
        raise ContractError(
            f"{name}(version={version}): found no upcast {steps}, expected one for each version from {oldest}. To repair: write "
            f"@upcast({missing[0]}), under a name of its own, or say oldest={missing[-1] + 1} once no older message is left."
        )
    surplus = sorted(set(upcasts) - set(needed))
    if surplus:
        raise ContractError(
            f"{name}(version={version}, oldest={oldest}): found an upcast from version {surplus[0]}, expected none but from {oldest} "
            f"to {version - 1}. To repair: raise the version, or remove it."
        )
    return upcasts


class Payload(BaseModel):
    """Data that travels as one argument of a task, with a version.

    >>> class Charge(Payload, version=2):
    ...     order_id: int
    ...     cents: int
    ...
    ...     @upcast(1)
    ...     def euros_to_cents(data):
    ...         return {"order_id": data["order_id"], "cents": data["euros"] * 100}

    ``version`` is the shape that is written; ``oldest`` (default 1) the oldest that is still read. There has to be an upcast for each
    version in between. Values are frozen, and fields that the model does not have are refused.

    Raises:
        ContractError: an upcast is missing, or is too much.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(_Upcast,), hide_input_in_errors=True)

    payload_version: ClassVar[int] = 1
    payload_oldest: ClassVar[int] = 1
    payload_upcasts: ClassVar[Mapping[int, Callable[[_Data], _Data]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The class's arguments are read once the fields are there."""
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(cls, *, version: int = 1, oldest: int = 1, **kwargs: Any) -> None:
        """Read the version and its upcasts. Raises ``ContractError`` for a gap."""
        super().__pydantic_init_subclass__(**kwargs)
        cls.payload_version = whole(f"{cls.__qualname__}(version=…)", version, 1, "versions are counted from 1")
        cls.payload_oldest = whole(f"{cls.__qualname__}(oldest=…)", oldest, 1, "versions are counted from 1")
        cls.payload_upcasts = _gapless(cls, version, oldest)


class Snapshot(Payload):
    """A payload that carries a copy of data, and says when it was taken and for how long it is good.

    >>> class Price(Snapshot, version=1, good_for=timedelta(minutes=15)):
    ...     sku: str
    ...     cents: int

    A body is never given one that is older: the job ends dead, as ``snapshot_expired``. Where the model defines ``refresh``, the body is given
    what that returns instead. ``snapshot_taken_at`` is the moment the object was made, by its maker's clock, unless you say otherwise; how
    old it is is asked of the store's clock, at each attempt.

    Raises:
        ContractError: ``good_for`` is missing or makes no sense.
    """

    payload_good_for: ClassVar[timedelta]

    snapshot_taken_at: AwareDatetime = Field(default_factory=lambda: datetime.now(timezone.utc))

    @classmethod
    def __pydantic_init_subclass__(cls, *, good_for: Any = None, **kwargs: Any) -> None:
        """Read for how long it is good. Raises ``ContractError``."""
        super().__pydantic_init_subclass__(**kwargs)
        if Payload not in cls.__bases__ and (good_for is not None or not hasattr(cls, "payload_good_for")):
            cls.payload_good_for = span(f"{cls.__qualname__}(good_for=…)", good_for)

    def refresh(self: _Model) -> _Model:
        """Override it to give a body fresh data in place of an expired snapshot. It runs in the attempt, as the body does."""
        raise NotImplementedError

    def expired(self, now: datetime) -> bool:
        """Whether it is older than it may be."""
        return now - self.snapshot_taken_at > self.payload_good_for


def encoded(payload: Payload, name: str) -> _Data:
    """The payload as plain JSON data, which comes back as an equal payload; ``name`` is the argument's, for the message.

    Raises ``PayloadError`` where it would not.
    """
    model = type(payload)
    try:
        data = payload.model_dump(
            mode="json", by_alias=True, exclude=set(model.model_computed_fields), warnings="error"
        )
        back = _read(model, data)
    except (PydanticSerializationError, ValidationError) as error:
        raise PayloadError(f"{name}: {model.__qualname__} does not come back as it went: {error}", name) from None
    if back != payload:
        fields = [f for f in model.model_fields if getattr(back, f, None) != getattr(payload, f, None)]
        path = f"{name}.{fields[0]}" if fields else name
        raise PayloadError(
            f"{path} of {model.__qualname__} does not come back as it went. Give the field a type whose JSON keeps its value.",
            path,
        )
    return data


def validated(model: type[_Model], data: Any, name: str) -> _Model:
    """The payload of the model's own version that ``data`` is. Raises ``PayloadError``, which names the fields and shows no value."""
    try:
        return _read(model, data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        why = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in found)
    except (TypeError, ValueError) as error:
        why = str(error)
    raise PayloadError(f"{name} is no {model.__qualname__} of version {model.payload_version}: {why}.", name)


def opened(model: type[_Model], data: Any, version: int | None, name: str) -> _Model:
    """The payload that a message carries as ``data`` of ``version``, brought up to the model's version.

    Raises:
        PayloadVersionError: it is newer than the model.
        PayloadError: it is older than what is still read, or is not what its version says.
    """
    found = UNVERSIONED if version is None else version
    if found > model.payload_version:
        raise PayloadVersionError(
            f"{name} is {model.__qualname__} of version {found}; this worker reads up to version {model.payload_version}.",
            found,
        )
    if found < model.payload_oldest:
        raise PayloadError(
            f"{name} is {model.__qualname__} of version {found}; versions before {model.payload_oldest} are not read any more.",
            name,
        )
    for step in range(found, model.payload_version):
        try:
            data = model.payload_upcasts[step](copy.deepcopy(data))
        except Exception as error:
            raise PayloadError(
                f"{name}: the upcast of {model.__qualname__} from version {step} failed: {type(error).__name__}: {error}",
                name,
            ) from error
    payload = validated(model, data, name)
    if isinstance(payload, Snapshot) and "snapshot_taken_at" not in payload.model_fields_set:
        raise PayloadError(f"{name}: a {model.__qualname__} has to say when it was taken (snapshot_taken_at).", name)
    return payload


def _read(model: type[_Model], data: Any) -> _Model:
    # by JSON's rules, under which a text is a date, a decimal, a UUID, in models that are strict too
    return model.model_validate_json(json.dumps(data))
