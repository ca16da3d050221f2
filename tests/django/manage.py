"""The project's ``manage.py``."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.django.settings")
    execute_from_command_line(["manage", *sys.argv[1:]])
