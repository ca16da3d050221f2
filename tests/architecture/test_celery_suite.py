"""A run of Celery's own suite fails when it should."""

from __future__ import annotations

import pytest

from tests.celery_suite.expected import Expected

EXPECTED = Expected("5.7.0", frozenset({"passes"}), {"changed": "why"}, {"unjudged": "why"}, {})


@pytest.mark.parametrize(
    ("name", "how", "guarded", "wrong"),
    [
        ("passes", "passed", True, False),
        ("passes", "failed", True, True),
        ("passes", "skipped", True, True),
        ("changed", "failed", True, False),
        ("changed", "passed", True, True),
        ("changed", "passed", False, False),
        ("changed", "failed", False, True),
        ("unjudged", "failed", True, False),
        ("unlisted", "passed", True, True),
        ("unlisted", "failed", True, True),
    ],
)
def test_what_passed_must_pass_and_what_is_listed_as_changed_must_fail(
    name: str, how: str, guarded: bool, wrong: bool
) -> None:
    assert bool(EXPECTED.against({name: how}, frozenset({name}), guarded=guarded)) is wrong


def test_a_test_that_was_not_run_is_not_as_expected() -> None:
    assert EXPECTED.against({}, frozenset({"passes"}), guarded=True) == {"passes": "not run, and is expected to pass"}


def test_each_test_of_celerys_is_expected_to_end_in_one_way() -> None:
    expected = Expected.read()
    groups = [expected.passes, expected.changed.keys(), expected.unjudged.keys()]
    assert len(set().union(*groups)) == sum(map(len, groups))
    assert expected.slow.keys() <= expected.passes | expected.changed.keys()
