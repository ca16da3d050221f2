"""A process dies where the job's id says, once; a job that is recorded dies nowhere and says what it passed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from celery_guard.testing.faults import RECORD, Faults

ROOT = Path(__file__).parents[3]

#: One delivery of one job, as a worker traces it; its id and the folder of faults are arguments.
JOURNEY = """
import sys
from celery import Celery
from celery.app.trace import build_tracer
from celery_guard import Guard, GuardedTask
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.testing.steps import install_from

id, folder = sys.argv[1:]
app = Celery("journey", broker="memory://", backend="cache+memory://", set_as_current=False)
guard = Guard(app, store=f"sqlite:///{folder}/guard.db")

@app.task(name="job", base=GuardedTask, shared=False)
def job():
    pass

guard.store.upgrade()
job.apply_async(task_id=id)
install_from({"GUARD_TEST_FAULTS": folder} if "@" in id else {}, app)
message = {"id": id, "hostname": "here", "is_eager": False, "called_directly": False, "delivery_info": {}}
build_tracer(job.name, job, app=app)(id, (), {}, message)
runtime_of(app).keeper.close()
row = guard.store.job(id)
print(row.state.value, row.told, type(guard.store).__name__)
"""


class Died(Exception):
    """What happens at a point here, instead of dying."""


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    def act() -> None:
        raise Died

    return Faults(tmp_path, act)


def passes(faults: Faults, *ids: str) -> bool:
    """Whether these jobs come through a step with two writes."""
    try:
        with faults.step("settle", ids):
            for _ in range(2):
                with faults.write():
                    pass
    except Died:
        return False
    return True


def test_a_job_dies_at_its_point_and_only_once(faults: Faults) -> None:
    assert [passes(faults, "settle.2.before@1") for _ in range(3)] == [False, True, True]
    assert faults.struck("settle.2.before@1") == 1


def test_other_jobs_and_jobs_without_a_point_pass(faults: Faults) -> None:
    assert passes(faults, "claim.before@1", "settle.3.before@2", "settle.2.before", "a-plain-id")


def test_one_of_a_batch_is_enough(faults: Faults) -> None:
    assert not passes(faults, "a", "settle.after@1", "b")


def test_points_are_died_at_one_after_another(faults: Faults) -> None:
    points = ["settle.after", "settle.before", "settle.1.after"]
    id = "+".join(points) + "@1"
    # a job that is recorded passes each point before the one that dies there
    assert [passes(faults, f"{RECORD}@{time}", id) for time in range(4)] == [False, False, False, True]
    assert [faults.recorded(f"{RECORD}@{time}")[-1] for time in range(3)] == points
    assert faults.struck(id) == 3


def test_a_shared_death_is_died_by_the_first_that_comes(faults: Faults) -> None:
    assert [passes(faults, f"settle.before@1~{member}") for member in (2, 1, 2)] == [False, True, True]


def test_the_next_death_is_known_beforehand(faults: Faults) -> None:
    id = "settle.before+told.1.before@1"
    assert (faults.aims(id, "settle"), faults.aims(id, "told")) == (True, False)
    passes(faults, id)
    assert (faults.aims(id, "settle"), faults.aims(id, "told")) == (False, True)


def test_a_recorded_job_passes_and_says_where(faults: Faults) -> None:
    assert passes(faults, f"{RECORD}@1")
    ends = ["settle.before", "settle.after"]
    writes = [f"settle.{number}.{end}" for number in (1, 2) for end in ("before", "after")]
    assert faults.recorded(f"{RECORD}@1") == [ends[0], *writes, ends[1]]


def test_a_record_may_begin_after_a_death(faults: Faults) -> None:
    id = f"settle.1.after+{RECORD}@1"
    assert not passes(faults, id)
    assert faults.recorded(id) == []
    assert passes(faults, id)
    assert len(faults.recorded(id)) == 6


def test_whoever_passes_a_point_for_anybody_dies(faults: Faults) -> None:
    faults.at = "settle.2.after"
    assert [passes(faults) for _ in range(2)] == [False, True]


def test_what_anybody_passes_is_recorded(faults: Faults) -> None:
    faults.at = RECORD
    passes(faults)
    assert len(faults.recorded("anybody")) == 6


def test_jobs_that_show_only_inside_a_step_die_at_its_end(faults: Faults) -> None:
    with pytest.raises(Died), faults.step("take") as taken:
        taken(["take.after@1"])


def test_a_write_outside_a_step_and_one_of_another_step_are_no_points(faults: Faults) -> None:
    faults.at = RECORD
    with faults.write():
        pass
    with faults.step("tell"), faults.write("publish"):
        pass
    assert faults.recorded("anybody") == ["tell.before", "tell.after"]


def test_a_write_belongs_to_the_innermost_step(faults: Faults) -> None:
    faults.at = RECORD
    with faults.step("tell"), faults.step("part"), faults.write():
        pass
    assert "part.1.before" in faults.recorded("anybody")


def test_a_step_that_fails_has_no_end(faults: Faults) -> None:
    faults.at = RECORD
    with pytest.raises(KeyError), faults.step("claim"):
        raise KeyError
    assert faults.recorded("anybody") == ["claim.before"]
    with faults.write():
        pass
    assert faults.recorded("anybody") == ["claim.before"]


def journey(id: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", JOURNEY, id, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_installed_it_finds_the_steps_and_their_writes(tmp_path: Path) -> None:
    done = journey(f"{RECORD}@1", tmp_path)
    assert done.stdout.split()[:2] == ["succeeded", "True"], done.stderr
    found = Faults(tmp_path).recorded(f"{RECORD}@1")
    ends = ["claim.before", "claim.after", "body.before", "body.after", "settle.before", "settle.after", "tell.before"]
    ends += ["result.before", "result.after", "tell.after", "told.before", "told.after"]
    assert [point for point in found if point.count(".") == 1] == ends
    assert {f"{step}.1.{end}" for step in ("claim", "settle", "told") for end in ("before", "after")} <= set(found)


def test_a_process_dies_by_the_kernels_hand(tmp_path: Path) -> None:
    done = journey("settle.1.before@1", tmp_path)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_without_its_variable_nothing_is_installed(tmp_path: Path) -> None:
    assert journey("plain", tmp_path).stdout.split() == ["succeeded", "True", "SqlStore"]
    assert {path.name for path in tmp_path.iterdir()} <= {"guard.db", "guard.db-wal", "guard.db-shm"}


def test_a_write_that_is_refused_and_made_again_is_the_same_one(tmp_path: Path) -> None:
    faults = Faults(tmp_path)
    with faults.step("settle", [f"{RECORD}@1"]):
        with pytest.raises(OSError, match="locked"), faults.write():
            raise OSError("the file is locked")
        for _ in range(2):
            with faults.write():
                pass
    assert faults.recorded(f"{RECORD}@1") == [
        "settle.before", "settle.1.before", "settle.1.before", "settle.1.after", "settle.2.before", "settle.2.after", "settle.after",
    ]  # fmt: skip
