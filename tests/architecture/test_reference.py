"""The reference of settings is made from the settings, and is fresh.

``UPDATE_REFERENCE=1 pytest tests/architecture/test_reference.py`` writes it.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from celery_guard.settings import ENVIRONMENT_PREFIX, Settings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"

HEAD = f"""# Settings

Each setting may be given in three places; the first that says something wins: `Guard(app, lease=20)`, `app.conf.guard_lease = 20`,
`{ENVIRONMENT_PREFIX}LEASE=20s` in the environment. Unknown names are refused in all three. Plain numbers are seconds; a text may carry a unit
(`500ms`, `30s`, `5m`, `2h`, `7d`; sizes: `256KiB`).

| setting | default | what it does |
|---|---|---|
"""


def shown(value: Any) -> str:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
            if seconds >= length and seconds % length == 0:
                return f"{seconds / length:g}{unit}"
        return f"{seconds:g}s"
    return str(value)


def page() -> str:
    rows = []
    for name, field in Settings.model_fields.items():
        default = "required" if field.is_required() else f"`{shown(field.default)}`"
        text = " ".join((field.description or "").split()).replace("|", "\\|")
        rows.append(f"| `{name}` | {default} | {text} |\n")
    return HEAD + "".join(rows)


def test_the_reference_of_settings_is_fresh() -> None:
    if os.environ.get("UPDATE_REFERENCE"):
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_setting_says_what_it_does() -> None:
    assert all(field.description for field in Settings.model_fields.values())
