"""The reference of settings is made from the settings, and is fresh.

``UPDATE_REFERENCE=1 pytest tests/architecture/test_reference.py`` writes it.
"""

from __future__ import annotations

import os
import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from celery_guard import Contract, Retry, RunningJob, Timing
from celery_guard.setting_names import ENVIRONMENT_PREFIX
from celery_guard.settings import Settings

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = REFERENCE / "settings.md"

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


def section(heading: str) -> str:
    text = (REFERENCE / "contract.md").read_text(encoding="utf-8")
    return text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("declared", [Contract, Retry, Timing])
def test_the_reference_names_each_field_of_a_contract_with_its_default(declared: type[Any]) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section(f"`{declared.__name__}`"), re.MULTILINE))
    assert list(rows) == [field.name for field in fields(declared)]
    plain = declared()
    for name, default in rows.items():
        value = getattr(plain, name)
        if isinstance(value, (bool, int, float, tuple)):
            assert default == f"`{value:g}`" if isinstance(value, float) else f"`{value}`", name
        elif isinstance(value, timedelta):
            assert default == f"`{value.total_seconds():g}`", name
        else:
            assert value is None, name


def test_the_reference_names_everything_a_running_job_offers() -> None:
    named = set(re.findall(r"`(\w+)(?:\([\w, ]*\))?`", section("The running job")))
    offered = {name for name in vars(RunningJob) if not name.startswith("_")}
    assert offered <= named, offered - named
