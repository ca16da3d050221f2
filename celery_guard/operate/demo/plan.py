"""What will go wrong: drawn from a seed before anything runs, the same for each of the imports that are compared."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import celery_guard
from celery_guard.errors import ConfigurationError

__all__ = ["FOLDER", "PARENT", "Kill", "Plan", "example_folder", "make_plan", "rows_in_file"]

#: Variables of the environment of every process of an import: its folder, and the demo's process.
FOLDER, PARENT = "GUARD_DEMO_FOLDER", "GUARD_DEMO_PARENT"

Row = dict[str, str]

#: Every so many rows' messages are delivered twice.
_TWICE = 20
#: One in so many rows fails for a while, and one in so many can never be imported; two at least.
_FLAKY, _INVALID = 150, 450

#: What makes a row invalid.
_NONSENSE = (("latitude", "97.25"), ("longitude", "-190.5"), ("latitude", "north"), ("longitude", ""))

#: What is killed, in turn: the process that runs a certain row; a node, all of it; a relay; any process of a pool.
_KINDS = ("row", "node", "relay", "row", "child")

#: Where the process of a row dies: before the row is written, or after the body has returned.
_PLACES = ("before", "after")


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL from outside, sent when this share of the rows is done: to a ``node``, a ``relay`` or a ``child``."""

    at: float
    kind: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows, and what happens to them."""

    seed: int
    rows: tuple[Row, ...]
    #: By ``iata``: rows that can never be imported; that fail at first; whose messages are delivered twice.
    invalid: frozenset[str]
    flaky: frozenset[str]
    twice: frozenset[str]
    #: By ``iata``, and where: rows whose process dies under them, once.
    deadly: Mapping[str, str]
    kills: tuple[Kill, ...]

    def write(self, folder: Path) -> None:
        """The file to import, and the faults for the processes that import it."""
        with (folder / "airports.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)
        rows = {"flaky": sorted(self.flaky), "twice": sorted(self.twice), "deadly": dict(self.deadly)}
        kills = [asdict(kill) for kill in self.kills]
        (folder / "faults.json").write_text(json.dumps({"seed": self.seed, **rows, "kills": kills}, indent=1))


def example_folder() -> Path:
    """The folder in which the package ``airports`` is. Raises ``ConfigurationError`` where it was not installed."""
    package = Path(celery_guard.__file__).parent
    for folder in (package / "_examples", package.parent / "examples"):
        if (folder / "airports" / "tasks.py").exists():
            return folder
    raise ConfigurationError(
        f"The example that the demo runs was found neither in {package} nor beside it. To repair: pip install celery-guard again."
    )


def rows_in_file() -> list[Row]:
    """The file that is shipped with the example."""
    with gzip.open(example_folder() / "airports" / "airports.csv.gz", "rt", newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def make_plan(count: int, seed: int, kills: int) -> Plan:
    """``count`` rows of the shipped file, some invalid ones among them, and ``kills`` kills."""
    draw = random.Random(seed)
    rows = rows_in_file()[:count]
    names = [row["iata"] for row in rows]
    kinds = Counter(_KINDS[number % len(_KINDS)] for number in range(kills))
    flaky_count = max(2, count // _FLAKY)
    chosen = draw.sample(names, min(count, flaky_count + kinds["row"]))
    flaky, deadly = chosen[:flaky_count], chosen[flaky_count:]
    twice = names[draw.randrange(min(_TWICE, count)) :: _TWICE]
    invalid = [_spoilt(number, draw) for number in range(max(2, count // _INVALID))]
    for row in invalid:
        rows.insert(draw.randrange(len(rows) + 1), row)
    outside = [kind for kind in kinds.elements() if kind != "row"]
    draw.shuffle(outside)
    instants = sorted(draw.uniform(0.03, 0.85) for _ in outside)
    return Plan(
        seed=seed,
        rows=tuple(rows),
        invalid=frozenset(row["iata"] for row in invalid),
        flaky=frozenset(flaky),
        twice=frozenset(twice),
        deadly={name: _PLACES[number % len(_PLACES)] for number, name in enumerate(deadly)},
        kills=tuple(map(Kill, instants, outside)),
    )


def _spoilt(number: int, draw: random.Random) -> Row:
    """A row that the real file does not have, and that nobody could import."""
    column, value = _NONSENSE[number % len(_NONSENSE)]
    row = {
        "iata": f"INVALID{number}", "name": "Nowhere", "city": "Nowhere", "state": "NA", "country": "USA",
        "latitude": f"{draw.uniform(25, 49):.6f}", "longitude": f"{draw.uniform(-124, -67):.6f}",
    }  # fmt: skip
    row[column] = value
    return row
