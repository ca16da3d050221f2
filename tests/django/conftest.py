"""Django's tests run in processes of their own, one for each database: Django is set up once a process, for all of it.

``tests/integration/test_django.py`` starts them. Here nothing is collected, unless ``GUARD_DJANGO_STORE`` says on which database.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.ledger import STACK

STORE = os.environ.get("GUARD_DJANGO_STORE")

if STORE is None:
    collect_ignore_glob = ["test_*.py"]
else:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django.settings"
    os.environ["GUARD_DJANGO_QUEUE"] = f"q-{uuid4().hex[:12]}"
    import django
    from django.test.runner import DiscoverRunner

    django.setup()

    @pytest.fixture(autouse=True)
    def _on_what(request: pytest.FixtureRequest) -> None:
        """For the guarantee ledger."""
        from django.db import connection

        database = "mariadb" if connection.vendor == "mysql" else connection.vendor
        request.node.user_properties.append((STACK, f"redis-{database}"))

    @pytest.fixture(scope="session", autouse=True)
    def databases() -> Iterator[None]:
        """Django's own runner makes the databases, by its migrations, and drops them."""
        runner = DiscoverRunner(verbosity=0, interactive=False)
        runner.setup_test_environment()
        made: Any = runner.setup_databases()
        yield
        runner.teardown_databases(made)
        runner.teardown_test_environment()
