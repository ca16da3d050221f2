"""Ids and tags that are drawn many at a time."""

from __future__ import annotations

import os
from uuid import RFC_4122, UUID

import pytest

from celery_guard.integrations.celery import uuids
from celery_guard.integrations.celery.uuids import random_uuid


def test_each_is_a_random_uuid_of_its_own_as_the_library_spells_it() -> None:
    drawn = [random_uuid() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    for each in drawn:
        assert (str(UUID(each)), UUID(each).version, UUID(each).variant) == (each, 4, RFC_4122)
    assert {each[19] for each in drawn} == set("89ab")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_draws_none_that_its_parent_draws() -> None:
    random_uuid()
    assert uuids._waiting
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, random_uuid().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader) as said:
        assert said.read() not in {random_uuid() for _ in range(2 * uuids._AT_ONCE)}
