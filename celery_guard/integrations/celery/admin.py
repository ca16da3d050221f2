"""The operators' journeys of one app, put together: each on the app's store, under the app's rule of who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery.utils.imports import symbol_by_name

from celery_guard.errors import SettingError
from celery_guard.flow.admin.actor import Authorize, by_role
from celery_guard.flow.admin.audit import Audit, Authority
from celery_guard.flow.admin.dlq import Dlq
from celery_guard.flow.admin.edit import Edits
from celery_guard.flow.admin.jobs import Jobs
from celery_guard.flow.admin.keys import Keys
from celery_guard.flow.admin.quarantine import Quarantine
from celery_guard.flow.admin.replay import Replays

from .live import CeleryAsking
from .mailing import CeleryMailing
from .messages import CeleryMessages
from .result import encode_value

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["Admin"]


class Admin:
    """What ``Guard.dlq`` and its neighbours are, and what the command line works with. Made anew each time; the state is the store's."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def authority(self) -> Authority:
        """Who may do what. Raises ``SettingError`` where ``authorize`` leads nowhere."""
        return Authority(self._runtime.store, self._rule(), self._runtime.settings.confirm_above)

    @property
    def audit(self) -> Audit:
        """Who did what."""
        return Audit(self._runtime.store, self.authority)

    @property
    def dlq(self) -> Dlq:
        """Dead letters."""
        store, authority = self._runtime.store, self.authority
        settings = self._runtime.settings
        replays = Replays(store, authority, self._replayable)
        edits = Edits(store, authority, CeleryMessages(self._runtime), self._replayable, settings)
        return Dlq(store, authority, replays, edits, settings.keep_dead, self._runtime.encryption)

    def _replayable(self, task: str) -> bool:
        return self._runtime.contract_named(task).replayable

    @property
    def quarantine(self) -> Quarantine:
        """Messages that nobody could open."""
        return Quarantine(self._runtime.store, self.authority, CeleryMailing(self._runtime.app))

    @property
    def keys(self) -> Keys:
        """Keys of what is encrypted."""
        return Keys(self._runtime.store, self.authority, self._runtime.encryption)

    @property
    def jobs(self) -> Jobs:
        """Every job."""
        runtime = self._runtime
        return Jobs(
            runtime.store, self.authority, runtime.settings, CeleryAsking(runtime.app), runtime.contract_named, runtime.knows,
            lambda id, value: runtime.encryption.encrypt_result(id, encode_value(runtime.app, value, needed=True)),
        )  # fmt: skip

    def _rule(self) -> Authorize:
        named = self._runtime.settings.authorize
        if named is None:
            return by_role
        try:
            rule = symbol_by_name(named) if isinstance(named, str) else named
        except (ImportError, AttributeError, ValueError) as error:
            raise SettingError(
                f"Setting authorize: {named!r} cannot be imported ({error}). Name a function, as `shop.rights:authorize`."
            ) from error
        if not callable(rule):
            raise SettingError(
                f"Setting authorize: {named!r} is a {type(rule).__name__}, expected a function of (actor, action, target)."
            )
        found: Authorize = rule
        return found
