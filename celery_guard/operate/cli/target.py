"""What a word works on: the app that was named, its guard, its store and its tasks. Each is loaded when first asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from celery_guard.errors import COMMAND, ConfigurationError, GuardError, NotGuardedError
from celery_guard.lazy import lazy

from .main import APP
from .terminal import Terminal

if TYPE_CHECKING:
    from celery import Celery

    from celery_guard.integrations.celery.admin import Admin
    from celery_guard.integrations.celery.runtime import Runtime
    from celery_guard.settings import Settings
    from celery_guard.store.protocol import Store

__all__ = ["Target", "pass_target"]

P = ParamSpec("P")
R = TypeVar("R")


class Target:
    """The app of this command line."""

    def __init__(self, ctx: click.Context) -> None:
        self._ctx = ctx
        self.terminal = Terminal.of(ctx)

    @property
    def settings(self) -> Settings:
        """Raises ``SettingError``."""
        return self.runtime.settings

    @lazy
    def store(self) -> Store:
        """The app's store; closed when the command ends.

        Raises:
            ConfigurationError: there is no store for such a URL, or its driver is not installed.
        """
        settings = self.settings
        try:
            store = self.runtime.store
        except ImportError as error:
            raise ConfigurationError(
                f"The store {settings.shown_store} needs a driver that is not installed ({error}). "
                "To repair: pip install 'celery-guard[postgresql]' or 'celery-guard[mysql]'."
            ) from error
        self._ctx.call_on_close(store.close)
        return store

    @property
    def admin(self) -> Admin:
        """The operators' journeys, on this app's store."""
        self.store  # noqa: B018 - says what is missing, and is closed at the end
        return self.runtime.admin

    @lazy
    def runtime(self) -> Runtime:
        """The app's guard. Raises ``NotGuardedError``."""
        from celery_guard.integrations.celery.runtime import runtime_of

        try:
            return runtime_of(self.app)
        except NotGuardedError as error:
            if self._named is None:
                raise NotGuardedError(self._unnamed) from error
        # the first guarded task that is bound makes one
        self.load_tasks()
        return runtime_of(self.app)

    def load_tasks(self) -> None:
        """Import the modules that the app's tasks are in, and register them.

        Raises:
            ConfigurationError: one of them cannot be imported.
        """
        app = self.app
        try:
            app.loader.import_default_modules()
        except ImportError as error:
            raise ConfigurationError(f"The tasks of the app {app.main!r} cannot be imported: {error}") from error
        app.finalize(auto=True)

    @lazy
    def app(self) -> Celery:
        """The app that was named, or Celery's current one."""
        celery_context = self._ctx.obj
        if celery_context is not None:
            app: Celery = celery_context.app
            return app
        if self._named is None:
            raise NotGuardedError(self._unnamed)
        return load_app(self._named)

    @property
    def _named(self) -> Any:
        return self._ctx.meta.get(APP) or self._ctx.find_root().params.get("app")

    def typed(self, *words: str) -> str:
        """How other words of the guard are typed, the same way in and for the same app as these."""
        prefix = getattr(self._ctx.obj, "typed", None)
        if prefix is not None:
            return " ".join([prefix, *words])
        root = self._ctx.find_root()
        within = ["guard"] if self._ctx.obj is not None else []
        named = self._named if isinstance(self._named, str) else "your_module"
        return " ".join([str(root.info_name), "-A", named, *within, *words])

    def said(self, text: str) -> str:
        """What an error says that knows of no command line, with the command as it was typed here."""
        return text.replace(COMMAND, self.typed())

    def typed_to_celery(self, *words: str) -> str:
        """How words of Celery's own command are typed for the same app."""
        named = self._named if isinstance(self._named, str) else self.app.main or "your_module"
        return " ".join(["celery", "-A", named, *words])

    @property
    def _unnamed(self) -> str:
        words = [word for word in self._ctx.command_path.split()[1:] if word != "guard"]
        return f"No app was named. Type: {self.typed(*words)}; or set CELERY_APP."


def load_app(name: str) -> Celery:
    """The Celery app at ``name`` (``shop``, ``shop.celery``, ``shop:app``), found as Celery finds it.

    Raises:
        ConfigurationError: there is none, or importing it failed; the failure is the cause.
    """
    from celery import Celery
    from celery.app.utils import find_app

    try:
        found = find_app(name)
    except GuardError:
        raise
    except ModuleNotFoundError as error:
        own = str(error.name).replace(":", ".").split(".")[0] == name.replace(":", ".").split(".")[0]
        repair = "name it as in `celery -A`, from the directory that its import starts from (or --workdir)"
        raise ConfigurationError(
            f"The app {name!r} cannot be loaded: there is no module {error.name!r} here. To repair: "
            f"{repair if own else 'install what it imports'}."
        ) from error
    except AttributeError as error:
        raise ConfigurationError(f"The app {name!r} cannot be loaded: {error}.") from error
    except Exception as error:
        # whatever the user's module raises at import, it is the answer to this command
        raise ConfigurationError(
            f"The app {name!r} cannot be loaded: importing it raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Celery):
        raise ConfigurationError(
            f"The app {name!r} cannot be loaded: it is a {type(found).__name__}, and no Celery app."
        )
    return found


def pass_target(command: Callable[Concatenate[Target, P], R]) -> Callable[P, R]:
    """Give a command its :class:`Target` as first argument."""

    @functools.wraps(command)
    def with_target(*args: P.args, **kwargs: P.kwargs) -> R:
        return command(Target(click.get_current_context()), *args, **kwargs)

    return with_target
