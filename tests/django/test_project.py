"""The project: where its store is, what ``manage.py check`` says of it, and ``manage.py guard``."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.core import checks
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import TransactionTestCase, override_settings

from celery_guard import Guard, SettingError
from celery_guard.integrations.celery.runtime import Runtime
from celery_guard.integrations.django import default_store
from celery_guard.integrations.django.checks import check_app, check_store
from celery_guard.integrations.django.testing import delete_jobs
from tests.django.sessions import sessions
from tests.django.shop.celery import app, guard
from tests.django.shop.tasks import look_up

ROOT = Path(__file__).parents[2]


@contextmanager
def as_the_projects(other: Celery) -> Iterator[None]:
    other.set_current()
    try:
        yield
    finally:
        app.set_current()


def ids(messages: list[Any]) -> dict[str, int]:
    return {message.id: message.level for message in messages}


class TestSettings(TransactionTestCase):
    def test_the_store_is_djangos_database_unless_something_is_said(self) -> None:
        assert default_store() == "django://default"
        assert guard.settings.store == "django://default"
        assert guard.settings.lease.total_seconds() == 4

    def test_django_s_settings_are_the_guards_under_celerys_namespace(self) -> None:
        with override_settings(CELERY_GUARD_STORE="django://other", CELERY_GUARD_RELAY=False):
            made = Celery("made", set_as_current=False)
            made.config_from_object("django.conf:settings", namespace="CELERY")
            made.conf.guard_poll = 3
            read = Guard(made).settings
        assert (read.store, read.relay, read.poll.total_seconds()) == ("django://other", False, 3)

    def test_a_name_that_is_no_setting_is_refused(self) -> None:
        with override_settings(CELERY_GUARD_LAESE=3):
            made = Celery("made", set_as_current=False)
            made.config_from_object("django.conf:settings", namespace="CELERY")
            with pytest.raises(SettingError, match="did you mean 'lease'"):
                _ = Guard(made).settings

    def test_an_alias_that_is_none_is_refused(self) -> None:
        made = Celery("made", set_as_current=False)
        with pytest.raises(SettingError, match=r"no 'archive'; it has 'default', 'other'"):
            _ = Guard(made, store="django://archive").store

    def test_an_app_of_the_project_is_meant_to_be_guarded(self) -> None:
        assert Runtime(Celery("made", set_as_current=False), {}).meant


class TestChecks(TransactionTestCase):
    def test_a_project_that_is_in_order_has_no_errors(self) -> None:
        assert [message for message in check_app() if message.level > checks.WARNING] == []
        assert check_store(databases=["default"]) == []

    def test_a_look_at_the_store_leaves_no_connection_behind(self) -> None:
        if connection.vendor != "postgresql":
            self.skipTest("PostgreSQL lists its sessions")
        check_store(databases=["default"])
        assert sessions() == 1

    def test_they_are_among_those_that_django_runs(self) -> None:
        assert "celery_guard" in checks.registry.registry.tags_available()
        found = checks.run_checks(tags=["celery_guard"])
        assert "GUARD-103" not in ids(found)

    def test_findings_have_the_codes_of_guard_check(self) -> None:
        made = Celery("made", broker="redis://nowhere", set_as_current=False)
        Guard(made, store="postgresql+psycopg://nobody:secret@nowhere/none")
        made.conf.task_always_eager = True
        with as_the_projects(made):
            found = check_app()
        assert ids(found)["CHECK-402"] == checks.WARNING
        assert ids(found)["CHECK-505"] == checks.WARNING
        assert not any("secret" in str(message) for message in found)

    def test_settings_that_make_no_sense_are_an_error_under_their_code(self) -> None:
        made = Celery("made", broker="memory://", set_as_current=False)
        Guard(made, store="django://archive")
        with as_the_projects(made):
            assert ids(check_app()) == {"GUARD-101": checks.ERROR}

    def test_a_project_without_a_guarded_app_is_told(self) -> None:
        with as_the_projects(Celery("made", broker="memory://", set_as_current=False)):
            # a shared task that is guarded would bring a guard along
            from celery import _state

            kept, _state._on_app_finalizers = _state._on_app_finalizers, set()
            try:
                assert ids(check_app()) == {"GUARD-103": checks.WARNING}
            finally:
                _state._on_app_finalizers = kept

    def test_missing_tables_are_a_warning_so_that_migrate_can_repair_them(self) -> None:
        call_command("migrate", "celery_guard", "zero", verbosity=0)
        try:
            assert ids(check_store(databases=["default"])) == {"GUARD-302": checks.WARNING}
            assert check_store(databases=["other"]) == []
            assert check_store() == []
        finally:
            call_command("migrate", "celery_guard", verbosity=0)
        assert check_store(databases=["default"]) == []


class TestCommand(TransactionTestCase):
    def tearDown(self) -> None:
        delete_jobs()

    def test_the_words_are_those_of_celery_guard(self) -> None:
        job = look_up.delay(1)
        said = io.StringIO()
        call_command("guard", "jobs", "list", "--json", stdout=said)
        assert [found["id"] for found in json.loads(said.getvalue())] == [job.id]

    def test_operators_have_the_same_words_here(self) -> None:
        job = look_up.delay(1)

        def typed(*words: str) -> Any:
            said = io.StringIO()
            call_command("guard", *words, "--json", stdout=said)
            return json.loads(said.getvalue())

        assert [found["id"] for found in typed("jobs", "list", "--task", look_up.name, "--younger", "1h")] == [job.id]
        assert typed("jobs", "cancel", "--task", look_up.name, "--dry-run")["ids"] == [job.id]
        assert typed("jobs", "show", job.id)["timeline"][0]["what"] == "accepted"
        with pytest.raises(CommandError) as told:
            typed("explain", job.id)
        assert told.value.returncode == 1, "no relay is alive"
        assert typed("jobs", "cancel", job.id, "--reason", "enough")[0]["answer"] == "cancelled"
        assert typed("quarantine", "list") == []
        assert typed("audit", "list")[0]["action"] == "jobs.cancel"

    def test_the_exit_status_of_a_word_is_that_of_the_command(self) -> None:
        with pytest.raises(CommandError) as told:
            call_command("guard", "jobs", "show", "no-such-job", stdout=io.StringIO())
        assert told.value.returncode == 1

    def test_as_it_is_typed(self) -> None:
        guard.store.close()
        done = manage("guard", "--json", "store", "check", "--settings", "tests.django.settings")
        assert (done.returncode, done.stdout.strip()) == (
            0,
            "The tables in django://default are those of this version.",
        )
        assert "jobs" in manage("guard", "--help").stdout
        wrong = manage("guard", "stroe")
        assert wrong.returncode == 2
        assert "No such command 'stroe'" in wrong.stderr

    def test_advice_is_typed_as_it_is_typed_here(self) -> None:
        look_up.delay(1)
        guard.store.close()
        done = manage("guard", "status")
        assert done.returncode == 1
        assert "manage guard relay" in done.stdout + done.stderr


def manage(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GUARD_DJANGO_NAME": str(connection.settings_dict["NAME"])}
    return subprocess.run(
        [sys.executable, "-m", "tests.django.manage", *words], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
