"""What may stand in the project at all: no machine's paths, no unsafe codecs, no drawer for odds and ends, no giant files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("celery_guard", "tests", "examples", "benchmarks", "docs", "changelog.d", ".ci")
TEXT = {
    ".cfg",
    ".ini",
    ".json",
    ".lua",
    ".mako",
    ".md",
    ".py",
    ".pyi",
    ".sh",
    ".sql",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
    "",
}

# Spelled in two parts, so that this file does not find itself.
MACHINE = ["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/", "/op" + "t/venv", "work" + "place"]

#: Modules that turn bytes into code or into arbitrary objects.
UNSAFE = {"_pickle", "cloudpickle", "dill", "marshal", "pickle", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}

#: Names that say nothing about what lives there.
NAMELESS = {"base", "common", "helper", "helpers", "misc", "util", "utils"}

LONGEST = 400


def files() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith((".coverage", ".git")))
    for room in ROOMS:
        for path in (ROOT / room).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".#"):
                yield path


def modules(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from (path for path in (ROOT / room).rglob("*.py") if "__pycache__" not in path.parts)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_there_is_something_to_look_at() -> None:
    seen = {name(path) for path in files()}
    assert {"README.md", "check", ".ci/run", "celery_guard/errors.py", "docs/README.md"} <= seen


def test_no_text_names_the_machine_it_was_written_on() -> None:
    found = [
        f"{name(path)}:{number}: {word}"
        for path in files()
        if path.suffix in TEXT
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for word in MACHINE
        if word in line
    ]
    assert not found, found


def test_no_module_of_the_package_can_turn_bytes_into_code() -> None:
    found = [
        f"{name(path)}:{node.lineno}: {word}"
        for path in modules("celery_guard")
        for node, word in unsafe(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, found


def unsafe(tree: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names if alias.name.split(".")[0] in UNSAFE)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE:
            yield node, str(node.module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in UNSAFE_CALLS:
            yield node, node.func.id


@pytest.mark.parametrize("line", ["import pickle", "from marshal import loads", "eval('1')"])
def test_what_can_turn_bytes_into_code_is_recognized(line: str) -> None:
    assert list(unsafe(ast.parse(line)))


def test_every_module_has_a_name_that_says_what_lives_there() -> None:
    rooms = ("celery_guard", "tests", "examples", "benchmarks")
    found = [name(path) for path in modules(*rooms) if {*path.relative_to(ROOT).parent.parts, path.stem} & NAMELESS]
    assert not found, found


def test_no_module_is_two_things() -> None:
    rooms = ("celery_guard", "tests", "examples", "benchmarks")
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules(*rooms)}
    found = {path: lines for path, lines in lengths.items() if lines > LONGEST}
    assert not found, found
