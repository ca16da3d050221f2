"""Stored messages read and written anew, for a person who edits one: Celery's body, encoded as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kombu.compression import compress
from kombu.exceptions import EncodeError
from kombu.serialization import dumps, registry

from celery_guard.contract.contract import Effective
from celery_guard.contract.shape import Shape
from celery_guard.errors import PayloadError
from celery_guard.job.row import StoredPayload

from .capture import decode_stored
from .logged import call_without_values

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["CeleryMessages"]


class CeleryMessages:
    """Of one app's tasks. See :class:`~celery_guard.flow.admin.edit.Messages`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def decoded(self, payload: StoredPayload) -> tuple[Any, Any, Any]:
        """See :class:`~celery_guard.flow.admin.edit.Messages`."""
        return decode_stored(payload)

    def opened(self, id: str, payload: StoredPayload) -> StoredPayload:
        """See :class:`~celery_guard.flow.admin.edit.Messages`."""
        return self._runtime.encryption.decrypt_message(id, payload)

    def encrypted(self, id: str, payload: StoredPayload) -> StoredPayload:
        """See :class:`~celery_guard.flow.admin.edit.Messages`."""
        return self._runtime.encryption.encrypted(id, payload)

    def rewritten(
        self, payload: StoredPayload, args: Any, kwargs: Any, embed: Any, headers: Mapping[str, Any]
    ) -> StoredPayload:
        """See :class:`~celery_guard.flow.admin.edit.Messages`."""
        content_type = json.loads(payload.delivery)["content_type"]
        try:
            _, encoding, data = dumps((args, kwargs, embed), serializer=registry.type_to_name[content_type])
        except (EncodeError, TypeError, ValueError) as error:
            raise PayloadError(f"The arguments cannot be encoded as {content_type}: {error}.") from error
        body = data.encode(encoding if encoding != "binary" else "utf-8") if isinstance(data, str) else bytes(data)
        if headers.get("compression"):
            body, _ = compress(body, headers["compression"])
        said = {**headers, **call_without_values(args, kwargs)}
        return replace(payload, body=body, headers=json.dumps(said))

    def known(self, task: str) -> tuple[Effective, Shape] | None:
        """See :class:`~celery_guard.flow.admin.edit.Messages`."""
        found = self._runtime.task_named(task)
        contract = self._runtime.contract_of(found)
        return None if contract is None else (contract, self._runtime.shape_of(found))
