"""The command as Django runs it: everything that is typed after ``guard`` goes to the words that ``celery guard`` has."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, ClassVar

from celery import Celery
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from celery_guard.errors import GuardError, NotGuardedError
from celery_guard.integrations.celery.current import celery_app, guarded_app, load_tasks
from celery_guard.operate.cli.main import guard

__all__ = ["Command"]


@dataclass(frozen=True, slots=True)
class _Project:
    """What the words find in place of Celery's own context."""

    app: Celery
    no_color: bool
    #: How the words are typed here.
    typed: str


class Command(BaseCommand):  # type: ignore[misc]
    """Jobs, dead letters, relay and store of the project's Celery app."""

    help = "Jobs, dead letters, relay and store of the project's guarded Celery app: `guard --help` lists the words."
    # `guard check` is for that, and a store that is out of order must not keep its own repair from running
    requires_system_checks: ClassVar[Any] = []

    def run_from_argv(self, argv: list[str]) -> None:
        """From a command line: Django's own options are Django's, the rest are words."""
        self._called_from_command_line = True
        given, words = _djangos_options().parse_known_args(argv[2:])
        try:
            sys.exit(self._run(words, f"{argv[0]} {argv[1]}", no_color=given.no_color))
        finally:
            connections.close_all()

    def add_arguments(self, parser: Any) -> None:
        """For ``call_command("guard", "status")``."""
        parser.add_argument("words", nargs=argparse.REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:
        """From Python. Raises ``CommandError`` with the exit status of the words."""
        with redirect_stdout(self.stdout._out):
            status = self._run(list(options["words"]), "manage.py guard", no_color=bool(options["no_color"]))
        if status:
            raise CommandError(f"guard {' '.join(options['words'])}: exit status {status}", returncode=status)

    def _run(self, words: list[str], typed: str, *, no_color: bool) -> int:
        """Run the words; their exit status."""
        try:
            project = _Project(_app(), no_color, typed)
        except GuardError as error:
            self.stderr.write(f"error [{error.code}]: {error}")
            return error.exit_code
        try:
            guard.main(args=words, prog_name=typed, obj=project)
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 1
        return 0


def _djangos_options() -> argparse.ArgumentParser:
    """What Django has taken from the command line already, to be left out of the words."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    parser.add_argument("--no-color", action="store_true")
    return parser


def _app() -> Celery:
    """The project's app.

    Raises:
        NotGuardedError: no app with a guard is imported by the project.
        ConfigurationError: its tasks cannot be imported.
    """
    if guarded_app() is None:
        # the first guarded task that is bound makes one
        load_tasks(celery_app())
    if guarded_app() is None:
        raise NotGuardedError(
            "The project has imported no Celery app that has a guard. Import yours in the project's __init__.py, as Celery's page on "
            "Django shows (`from .celery import app as celery_app`), and make one beside it: Guard(app)."
        )
    return celery_app()
