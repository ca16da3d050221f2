"""The demo's own judgement: what it would say if a promise were broken, and that its seed decides what goes wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from celery_guard.operate.cli.main import main
from celery_guard.operate.demo.plan import Plan, example_folder, make_plan, rows_in_file
from celery_guard.operate.demo.tally import Tally, add_up


@pytest.fixture
def plan() -> Plan:
    return make_plan(100, 7, 10)


def importable(plan: Plan) -> list[tuple[int, str]]:
    return [(1, row["iata"]) for row in plan.rows if row["iata"] not in plan.invalid]


def counted(plan: Plan, **found: Any) -> Tally:
    """The tally of an import that went as promised, but for what is given."""
    perfect: dict[str, Any] = {
        "batches": [1], "airports": importable(plan), "jobs": len(plan.rows), "dead": sorted(plan.invalid), "kills": {},
        "delivered_twice": 0, "failed_for_a_while": 0, "ended_alone": 0, "seconds": 1.0,
    }  # fmt: skip
    return add_up("celery-guard", plan, **{**perfect, **found})


def test_an_import_as_promised_has_no_problems(plan: Plan) -> None:
    tally = counted(plan)
    assert tally.problems == ()
    assert (tally.rows, tally.importable, tally.imported, tally.missing, tally.doubled) == (102, 100, 100, 0, 0)
    assert (tally.dead, tally.left_by_rollback) == (2, 0)


def test_a_missing_row_is_noticed(plan: Plan) -> None:
    rows = importable(plan)
    tally = counted(plan, airports=rows[1:])
    assert (tally.missing, tally.imported) == (1, 99)
    assert tally.problems == (f"1 importable rows are missing: {rows[0][1]}",)


def test_a_doubled_row_is_noticed_however_often(plan: Plan) -> None:
    rows = importable(plan)
    tally = counted(plan, airports=[*rows, rows[0], rows[0], rows[1]])
    assert (tally.doubled, tally.imported) == (3, 100)
    assert len(tally.problems) == 1


def test_an_invalid_row_that_was_imported_is_noticed(plan: Plan) -> None:
    [invalid, *_] = plan.invalid
    assert counted(plan, airports=[*importable(plan), (1, invalid)]).problems


@pytest.mark.parametrize("wrong", ["one is missing", "one too many", "one twice"])
def test_wrong_dead_letters_are_noticed(plan: Plan, wrong: str) -> None:
    right = sorted(plan.invalid)
    dead = {
        "one is missing": right[1:],
        "one too many": [*right, importable(plan)[0][1]],
        "one twice": [*right, right[0]],
    }[wrong]
    assert len(counted(plan, dead=dead).problems) == 1


@pytest.mark.parametrize(
    "left", [{"batches": [1, 2]}, {"jobs": 103}, {"airports": "another batch's"}], ids=lambda left: next(iter(left))
)
def test_what_a_rolled_back_batch_has_left_is_noticed(plan: Plan, left: dict[str, Any]) -> None:
    if "airports" in left:
        left = {"airports": [*importable(plan), (2, "00M")]}
    tally = counted(plan, **left)
    assert tally.left_by_rollback == 1
    assert tally.problems == ("the batch that was rolled back has left 1 rows",)


def test_plain_celery_has_neither_dead_letters_nor_jobs(plan: Plan) -> None:
    tally = counted(plan, jobs=None, dead=None)
    assert (tally.guarded, tally.dead, tally.left_by_rollback, tally.problems) == (False, None, None, ())


def test_a_seed_decides_everything() -> None:
    assert make_plan(200, 1, 12) == make_plan(200, 1, 12)
    assert make_plan(200, 1, 12) != replace(make_plan(200, 2, 12), seed=1)


@pytest.mark.parametrize("count", [20, 21, 500, 3376])
@pytest.mark.parametrize("kills", [0, 1, 50])
def test_a_plan_has_its_rows_and_its_kills(count: int, kills: int) -> None:
    plan = make_plan(count, 3, kills)
    names = [row["iata"] for row in plan.rows]
    assert len(names) == len(set(names)) == count + len(plan.invalid)
    assert len(plan.invalid) >= 2
    assert plan.twice
    assert plan.flaky | plan.twice | plan.deadly.keys() <= set(names) - plan.invalid
    assert not plan.flaky & plan.deadly.keys()
    assert len(plan.kills) + len(plan.deadly) == min(kills, len(plan.kills) + count - len(plan.flaky))


def test_the_shipped_file_is_whole() -> None:
    rows = rows_in_file()
    assert len(rows) == len({row["iata"] for row in rows}) == 3376
    assert sum(row["state"] == "NA" for row in rows) == 12
    assert all(-90 <= float(row["latitude"]) <= 90 and -180 <= float(row["longitude"]) <= 180 for row in rows)


def test_the_tutorial_shows_the_example_as_it_is() -> None:
    page = (Path(__file__).parents[3] / "docs" / "tutorial" / "airports.md").read_text()
    shown = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    code = [path.read_text() for path in (example_folder() / "airports").glob("*.py")]
    assert len(shown) == 2
    assert all(any(block in file for file in code) for block in shown)


def test_the_example_says_where_its_data_is_from() -> None:
    assert "OurAirports" in (example_folder() / "airports" / "README.md").read_text()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    answer = CliRunner().invoke(main, ["demo", "--keep", str(tmp_path)])
    assert answer.exit_code == 2
    assert "not empty" in answer.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
