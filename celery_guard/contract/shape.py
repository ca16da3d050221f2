"""How the arguments of a task travel: by place as they were given, or by name, and which of them are payloads.

A task that takes a payload model, or whose contract says ``named=True``, has all its arguments sent by name. They are bound by the
signature of the sender, who knows what it meant: if the worker's signature has a parameter more in the middle by then, no
value moves into another's place. Other tasks keep what Celery does, since hooks and ``self.retry(args=...)`` see the difference.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Union

from celery_guard.errors import ContractError, PayloadError, PayloadVersionError

if TYPE_CHECKING:
    from .payload import Payload

__all__ = ["Shape", "Wired", "shape_of"]


@dataclass(frozen=True, slots=True)
class Wired:
    """One call as it goes onto the wire."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    #: The version of each argument that is a payload.
    versions: Mapping[str, int] = field(default_factory=dict)
    #: Those arguments as the body will see them.
    payloads: Mapping[str, Payload] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a task's arguments."""

    task: str
    signature: Signature | None = None
    models: Mapping[str, type[Payload]] = field(default_factory=dict)
    named: bool = False

    def wire(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, by_celery: bool = False) -> Wired:
        """The call as it goes onto the wire. ``by_celery``: what one task hands to the next; the next one judges it, not its sender.

        Raises:
            PayloadError: an argument is not what the task takes, or would not come back as it went.
            TypeError: the arguments do not fit the signature.
        """
        if self.named and self.signature is not None:
            try:
                args, kwargs = (), _by_name(self.signature, args, kwargs)
            except TypeError as error:
                if not by_celery:
                    raise TypeError(f"{self.task}: {error}") from None
        self._refuse_strays(args, kwargs)
        data, versions, payloads = dict(kwargs), {}, {}
        for name, model in self.models.items():
            value = kwargs.get(name)
            if value is None:
                continue
            versions[name] = model.payload_version
            if by_celery and isinstance(value, Mapping):
                continue
            from .payload import encoded

            payloads[name] = payload = self._payload(model, value, name)
            data[name] = encoded(payload, name)
        return Wired(args, data, versions, payloads)

    def open(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], versions: Mapping[str, int]
    ) -> tuple[Sequence[Any], dict[str, Any], dict[str, Payload]]:
        """The call as the body takes it, and the payloads among its arguments.

        Raises:
            PayloadVersionError: a payload is newer than this process, or it knows no payload of this name at all.
            PayloadError: a payload is not what it says, or is too old.
        """
        strange = [name for name in versions if name not in self.models]
        if strange:
            name = strange[0]
            raise PayloadVersionError(
                f"{self.task}: the message has a payload {name!r} of version {versions[name]}, and the task knows none of this name here.",
                versions[name],
            )
        if self.models and args and self.signature is not None:
            args, kwargs = (), _by_name(self.signature, args, kwargs)
        payloads: dict[str, Payload] = {}
        for name, model in self.models.items():
            value = kwargs.get(name)
            if isinstance(value, _payload_class()):
                payloads[name] = value
            elif value is not None:
                from .payload import opened

                payloads[name] = opened(model, value, versions.get(name), f"{self.task}: {name}")
        return args, {**kwargs, **payloads}, payloads

    def replaced(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """``args`` given anew for a call that has names already (``self.retry(args=...)``): each takes the place of its name."""
        if not (self.named and args and self.signature is not None):
            return args, kwargs
        return (), {**kwargs, **self.signature.bind_partial(*args).arguments}

    def _payload(self, model: type[Payload], value: Any, name: str) -> Payload:
        if isinstance(value, model):
            return value
        if isinstance(value, Mapping):
            from .payload import validated

            return validated(model, dict(value), f"{self.task}: {name}")
        raise PayloadError(
            f"{self.task}: {name} is a value of type {type(value).__qualname__}, expected {model.__qualname__} or a mapping that is one.",
            name,
        )

    def _refuse_strays(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        payload = _payload_class()
        places = [*((f"args[{place}]", value) for place, value in enumerate(args)), *kwargs.items()]
        for name, value in places:
            if isinstance(value, payload) and name not in self.models:
                raise PayloadError(
                    f"{self.task}: {name} is a {type(value).__qualname__}, but the task does not say that it takes one. Annotate the "
                    "parameter with the model, by a name that its module knows; where the task is not known here, send the task itself.",
                    name,
                )


def _payload_class() -> type[Payload] | tuple[()]:
    """What a payload is an instance of: of nothing, until somebody has imported the class, and pydantic with it, to declare one."""
    kind: type[Payload] | tuple[()] = getattr(sys.modules.get(f"{__package__}.payload"), "Payload", ())
    return kind


def shape_of(task: str, body: Callable[..., Any], signature: Signature | None, *, named: bool) -> Shape:
    """Read what a task's parameters are annotated with.

    Raises ``ContractError`` where arguments have to travel by name and one has none.
    """
    if signature is None:
        return Shape(task)
    models = {}
    for name, parameter in signature.parameters.items():
        model = _model(_resolved(name, parameter.annotation, body))
        if model is not None:
            models[name] = model
    if models or named:
        nameless = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)
        found = [parameter for parameter in signature.parameters.values() if parameter.kind in nameless]
        if found:
            raise ContractError(
                f"{task}: found the parameter {found[0]}, expected only parameters that can be given by name: "
                f"{'it takes a payload model' if models else 'its contract says named=True'}. To repair: give it a name."
            )
    return Shape(task, signature, models, bool(models) or named)


def _by_name(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(signature.bind(*args, **kwargs).arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD:
            found.update(found.pop(parameter.name, {}))
    return found


def _resolved(name: str, annotation: Any, body: Callable[..., Any]) -> Any:
    """The annotation itself, where it is a text; None where its names mean nothing here."""
    if not isinstance(annotation, str):
        return annotation
    while hasattr(body, "__wrapped__"):
        body = body.__wrapped__
    code, cells = getattr(body, "__code__", None), getattr(body, "__closure__", None) or ()
    around = {n: c.cell_contents for n, c in zip(code.co_freevars, cells, strict=True)} if code else {}
    stand_in: Any = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(stand_in, getattr(body, "__globals__", {}), around)[name]
    except (NameError, AttributeError, TypeError, SyntaxError, ValueError):
        return None


def _model(annotation: Any) -> type[Payload] | None:
    """The payload model that an annotation is: ``Charge``, ``Charge | None``."""
    if typing.get_origin(annotation) in (Union, types.UnionType):
        found = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
        return _model(found[0]) if len(found) == 1 else None
    return annotation if isinstance(annotation, type) and issubclass(annotation, _payload_class()) else None
