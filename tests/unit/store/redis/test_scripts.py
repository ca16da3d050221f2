"""The scripts as files: each is complete, and touches no key that is not the store's."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from celery_guard.store.redis import operators, scripts, store

KEY = re.compile(r"""redis\.call\('(\w+)',\s*([^,)]+)""")


@pytest.mark.parametrize("name", scripts.names())
def test_a_script_is_found_with_the_parts_it_uses(name: str) -> None:
    found = scripts.script(name)
    assert "local STORE = KEYS[1] .. ':'" in found.text
    assert len(found.digest) == 40


@pytest.mark.parametrize("name", [*scripts.names(), *sorted(scripts.PARTS)])
def test_every_key_is_made_of_the_stores_tag(name: str) -> None:
    text = files(scripts).joinpath(f"{name}.lua").read_text(encoding="utf-8")
    made = re.compile(r"STORE \.\. |index\b|zset\b|slot$|due_index\(")
    for command, key in KEY.findall(text):
        assert command == "TIME" or made.search(key), f"{name}.lua: {command} {key}"


def test_every_key_is_in_the_table_of_keys() -> None:
    written = set()
    for name in [*scripts.names(), *sorted(scripts.PARTS)]:
        text = files(scripts).joinpath(f"{name}.lua").read_text(encoding="utf-8")
        written |= {word.rstrip(":") for word in re.findall(r"STORE \.\. '([a-z_]+:?)", text)}
    table = ((store.__doc__ or "") + (operators.__doc__ or "")).replace("``", "")
    assert written
    assert {word for word in written if word not in table} == set()
