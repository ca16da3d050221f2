"""Files that are written once, kept beside the code, and compared by CI."""

from __future__ import annotations

from pathlib import Path

import click

from .target import Target

__all__ = ["check_option", "write_or_compare"]

check_option = click.option(
    "--check", is_flag=True, help="Write nothing: compare, and end with status 1 where the file is stale."
)


def write_or_compare(target: Target, text: str, file: str, check: bool) -> None:
    """Write ``text`` to a file (``-``: to stdout), or say whether it has this text already."""
    if not check:
        if file == "-":
            click.echo(text, nl=False)
        else:
            Path(file).write_text(text, encoding="utf-8")
            target.terminal.note(f"Written to {file}.")
        return
    path = Path(file)
    found = path.read_text(encoding="utf-8") if path.is_file() else None
    if found == text:
        target.terminal.note(f"{file} is fresh.")
        return
    how = "is missing" if found is None else "is stale: the contracts, or this version, say something else by now"
    word = click.get_current_context().command.name or ""
    target.terminal.note(f"{file} {how}. To repair: {target.typed(word, file)}")
    click.get_current_context().exit(1)
