"""The public face: every name is there, and importing it costs next to nothing."""

from __future__ import annotations

import subprocess
import sys

import celery_guard
from celery_guard import errors


def test_every_public_name_can_be_had_and_says_what_it_is() -> None:
    for name in celery_guard.__all__:
        assert getattr(celery_guard, name) is not None
    assert set(errors.__all__) <= set(celery_guard.__all__)
    assert "__version__" in dir(celery_guard)
    assert celery_guard.__version__


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(celery_guard, "nothing_of_that_name")


def test_importing_the_package_imports_neither_celery_nor_sqlalchemy() -> None:
    code = "import celery_guard, sys; print(*sorted({'celery', 'kombu', 'sqlalchemy', 'pydantic', 'alembic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_guarded_app_does_not_load_sqlalchemy_before_it_is_used() -> None:
    code = (
        "import sys; from celery import Celery; from celery_guard import Guard, GuardedTask; app = Celery('a');"
        "Guard(app, store='sqlite://'); print('sqlalchemy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
