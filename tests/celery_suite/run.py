"""Run Celery's own integration suite, plain or with every task guarded, and compare with what is expected.

    python -m tests.celery_suite.run --plain              as Celery's developers run it
    python -m tests.celery_suite.run                      every task guarded, on PostgreSQL and Redis
    python -m tests.celery_suite.run --both               the one, and then the other
    python -m tests.celery_suite.run --fast               without the slowest, and those that nobody is measured by
    python -m tests.celery_suite.run --store sqlite       another store: sqlite, redis
    python -m tests.celery_suite.run --broker rabbitmq    another broker, where the tests allow for it
    python -m tests.celery_suite.run -k test_stamping     only these
    python -m tests.celery_suite.run --learn              write what the plain run gives as expected

The suite is split into parts, each in a process, with a Redis, a database and a worker of its own, some at a time. What does not end as
expected is run a second time, alone: a machine that is busy fails tests that wait for a number of seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from celery_guard.store import open_store
from celery_guard.testing.databases import database
from celery_guard.testing.servers import private_rabbitmq, private_redis
from celery_guard.testing.services import POSTGRESQL

from .expected import Expected
from .outcomes import FILE
from .tree import VERSION, fetch

ROOT = Path(__file__).parents[2]

FILES = ("test_canvas", "test_tasks", "test_group_chains", "test_inspect", "test_redis_backend", "test_worker")

#: One that starts workers of other apps in its process spoils this one of the same file, also without the guard.
_AWAY_FROM_ITS_FILE = "test_worker.py::test_pidbox_reset_after_repeated_control_errors"

#: Alembic does one migration at a time in a process.
_upgrading = threading.Lock()

#: How many tests ``--fast`` leaves out: more than half of the time is theirs.
_SLOW = 6

#: How long a part may take (seconds).
_LIMIT = 3000


@dataclass(frozen=True)
class Setting:
    """How the suite is run."""

    tree: Path
    guarded: bool = True
    store: str = "postgresql"
    broker: str = "redis"
    jobs: int = 4


@dataclass
class Ended:
    """How tests ended, and how long they took."""

    how: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    guarded_jobs: int = 0

    def add(self, other: Ended) -> None:
        """Take in another's."""
        self.how |= other.how
        self.seconds |= other.seconds
        self.guarded_jobs += other.guarded_jobs


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    options = _options().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="celery-suite-") as temporary:
        tree = fetch(Path(options.folder or temporary))
        setting = Setting(tree, not options.plain, options.store, options.broker, options.jobs)
        names = _collect(tree, options.k)
        if options.learn:
            _learn(setting, names)
            return 0
        expected = Expected.read()
        if expected.celery != VERSION:
            print(f"what is expected was written for Celery {expected.celery}, and {VERSION} is installed")
            return 2
        left_out = {*expected.slow, *expected.unjudged} if options.fast else ()
        selected = [name for name in names if name not in left_out]
        missing = [] if options.k else sorted((expected.passes | expected.changed.keys()) - set(names))
        ways = [replace(setting, guarded=False), replace(setting, guarded=True)] if options.both else [setting]
        return max(_judge(way, expected, selected, missing) for way in ways)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("celery-suite", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--plain", action="store_true", help="without the guard")
    parser.add_argument("--both", action="store_true", help="plain, and then guarded")
    parser.add_argument("--fast", action="store_true", help="without the slowest")
    parser.add_argument("--learn", action="store_true", help="write what the plain run gives as expected")
    parser.add_argument("--store", choices=("postgresql", "sqlite", "redis"), default="postgresql")
    parser.add_argument("--broker", choices=("redis", "rabbitmq"), default="redis")
    parser.add_argument("--jobs", type=int, default=4, help="how many parts at a time")
    parser.add_argument("--folder", help="where Celery's source lies, or is fetched to")
    parser.add_argument("-k", default="", help="as pytest's")
    return parser


def _judge(setting: Setting, expected: Expected, selected: Sequence[str], missing: Sequence[str]) -> int:
    began = time.monotonic()
    ended = run(setting, selected)
    wrong = expected.against(ended.how, frozenset(selected), guarded=setting.guarded)
    if wrong:
        _print("not as expected, and run once more alone", wrong)
        ended.add(run(replace(setting, jobs=1), list(wrong), each=True))
        wrong = expected.against(ended.how, frozenset(selected), guarded=setting.guarded)
    way = f"guarded, {setting.store} store" if setting.guarded else "plain"
    print(f"\nCelery {VERSION}, {way}, {setting.broker} broker, {time.monotonic() - began:.0f} s: {_counted(ended)}")
    if setting.guarded:
        print(f"guarded jobs: {ended.guarded_jobs}; changed by the guard: {len(expected.changed)}")
        if not ended.guarded_jobs:
            wrong["(all)"] = "no job went through the guard"
    wrong |= dict.fromkeys(missing, "expected, and Celery's suite has no such test")
    if wrong:
        _print("NOT AS EXPECTED", wrong)
    return 1 if wrong else 0


def _learn(setting: Setting, names: Sequence[str]) -> None:
    """Write what Celery alone gives as expected; what the guard changes, and why, is written by people, and stays."""
    before = Expected.read()
    plain = run(replace(setting, guarded=False), names)
    passed = {name for name, how in plain.how.items() if how == "passed"}
    slowest = sorted(passed, key=lambda name: -plain.seconds[name])[:_SLOW]
    Expected(
        VERSION,
        frozenset(passed - before.changed.keys()),
        before.changed,
        {
            name: before.unjudged.get(name) or f"{plain.how.get(name, 'not run')} without the guard"
            for name in set(names) - passed
        },
        {name: plain.seconds[name] for name in slowest},
    ).write()
    print(f"plain: {_counted(plain)}")


def run(setting: Setting, names: Sequence[str], *, each: bool = False) -> Ended:
    """Run these tests; ``each`` in a process of its own."""
    parts = [[name] for name in names] if each else _parts(names)
    ended = Ended()
    with ThreadPoolExecutor(max_workers=setting.jobs) as pool:
        for part in pool.map(lambda part: _run_part(setting, part), parts):
            ended.add(part)
    return ended


def _parts(names: Sequence[str]) -> list[list[str]]:
    """By file, the longest in pieces; the longest first."""
    parts: dict[str, list[str]] = {}
    chords = [name for name in names if "::test_chord::" in name]
    for name in names:
        part = name.partition("::")[0]
        if name in chords:
            part = f"chord {chords.index(name) * 2 // len(chords)}"
        elif name == _AWAY_FROM_ITS_FILE:
            part = "test_inspect.py"
        parts.setdefault(part, []).append(name)
    return sorted(parts.values(), key=len, reverse=True)


def _run_part(setting: Setting, names: Sequence[str]) -> Ended:
    with _environment(setting) as (folder, environment):
        command = [sys.executable, "-m", "pytest", "-v", "-p", "tests.celery_suite.outcomes", "--timeout=300"]
        if setting.guarded:
            command += ["-p", "tests.celery_suite.plugin"]
        output = folder / "output"
        with output.open("wb") as file:
            try:
                subprocess.run(
                    [*command, *(f"t/integration/{name}" for name in names)],
                    cwd=setting.tree, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False, timeout=_LIMIT,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                print(f"a part took longer than {_LIMIT} s and was ended: {names[0]} ...")
        said = output.read_text(errors="replace")
        kept = os.environ.get("CELERY_SUITE_LOGS")
        if kept:
            with (Path(kept) / f"{names[0].replace(':', '-')[-120:]}.log").open("a") as log:
                log.write(said)
        outcomes = Path(environment[FILE])
        if not outcomes.exists():
            print(said[-4000:])
            return Ended(dict.fromkeys(names, "not run"))
        found = json.loads(outcomes.read_text())
        _show_failures(said, found["ended"])
        jobs = [int(line.split()[-1]) for line in said.splitlines() if line.startswith("guarded jobs: ")]
        return Ended(found["ended"], found["seconds"], sum(jobs))


def _show_failures(said: str, ended: Mapping[str, str]) -> None:
    if "failed" in ended.values() and "= FAILURES =" in said:
        lines = said[said.index("= FAILURES =") :].splitlines()
        print("\n".join(line[:200] for line in lines if line.startswith(("E  ", "____", "t/", "FAILED"))))


@contextmanager
def _environment(setting: Setting) -> Iterator[tuple[Path, dict[str, str]]]:
    """Servers and a database of its own for one part, as the environment in which its tests run."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="celery-suite-part-")))
        redis = stack.enter_context(private_redis()).start().url
        broker = redis
        if setting.broker == "rabbitmq":
            broker = stack.enter_context(private_rabbitmq()).start().url
        server = urlsplit(redis)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CELERY")},
            "TEST_BROKER": broker,
            "TEST_BACKEND": redis,
            "REDIS_HOST": str(server.hostname),
            "REDIS_PORT": str(server.port),
            "WORKER_LOGLEVEL": "INFO",
            "PYTHONPATH": str(ROOT),
            FILE: str(folder / "outcomes.json"),
        }
        if setting.guarded:
            environment["CELERY_GUARD_STORE"] = stack.enter_context(_store(setting.store, folder))
        yield folder, environment


@contextmanager
def _store(kind: str, folder: Path) -> Iterator[str]:
    with ExitStack() as stack:
        if kind == "sqlite":
            url = f"sqlite:///{folder / 'guard.db'}"
        elif kind == "redis":
            options = ("--maxmemory-policy", "noeviction", "--appendonly", "yes")
            url = stack.enter_context(private_redis(*options)).start().url
        else:
            url = stack.enter_context(database(POSTGRESQL.need()))
        with _upgrading:
            store = open_store(url)
            store.upgrade()
            store.close()
        yield url


def _collect(tree: Path, keyword: str) -> list[str]:
    files = [f"t/integration/{name}.py" for name in FILES]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *files, *(["-k", keyword] if keyword else [])]
    # what is printed is read: no options of somebody's own
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    names = [
        line.removeprefix("t/integration/")
        for line in done.stdout.splitlines()
        if line.startswith("t/") and "::" in line
    ]
    if done.returncode or not names:
        raise SystemExit(f"nothing to run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return names


def _counted(ended: Ended) -> str:
    counts = Counter(ended.how.values())
    return ", ".join(f"{count} {word}" for word, count in counts.most_common())


def _print(title: str, lines: Mapping[str, str]) -> None:
    print(f"\n== {title}")
    for name, what in lines.items():
        print(f"{name}: {what}")


if __name__ == "__main__":
    raise SystemExit(main())
