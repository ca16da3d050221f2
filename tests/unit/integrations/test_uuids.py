"""Ids and tags that are drawn many at a time."""

from __future__ import annotations

import os
from uuid import RFC_4122, UUID

import pytest

from celery_guard.integrations.celery.uuids import _AT_ONCE, Uuids


def test_each_is_a_random_uuid_of_its_own_as_the_library_spells_it() -> None:
    sources = Uuids(), Uuids()
    drawn = [draw() for _ in range(1000) for draw in sources]
    assert len(set(drawn)) == 2000
    for each in drawn:
        assert (str(UUID(each)), UUID(each).version, UUID(each).variant) == (each, 4, RFC_4122)
    assert {each[19] for each in drawn} == set("89ab")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_draws_none_that_its_parent_draws() -> None:
    draw = Uuids()
    draw()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, draw().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader) as said:
        assert said.read() not in {draw() for _ in range(2 * _AT_ONCE)}
