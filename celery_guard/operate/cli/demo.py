"""``celery-guard demo``: see an import survive killed workers, doubled messages and failing rows, beside plain Celery."""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .main import json_option
from .terminal import Terminal
from .words import record

if TYPE_CHECKING:
    from celery_guard.operate.demo.tally import Tally

__all__ = ["demo"]

_FEWEST, _MOST = 20, 3376


@click.command()
@click.option("--rows", type=click.IntRange(_FEWEST, _MOST), default=_MOST, show_default=True, help="Rows of the file.")
@click.option("--seed", type=click.IntRange(0), help="What goes wrong is drawn from this. Default: another each time.")
@click.option(
    "--kills", type=click.IntRange(0, 50), default=12, show_default=True, help="SIGKILLs while the import runs."
)
@click.option(
    "--workers", type=click.IntRange(1, 16), default=2, show_default=True, help="Nodes, of two processes each."
)
@click.option("--no-plain", is_flag=True, help="Leave out plain Celery.")
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
    help="Work in this new folder, and leave everything there: databases, broker, logs.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.IntRange(1), default=1200, show_default=True, help="Seconds after which it is given up."
)
@json_option
@click.pass_context
def demo(
    ctx: click.Context,
    rows: int,
    seed: int | None,
    kills: int,
    workers: int,
    no_plain: bool,
    keep: Path | None,
    timeout: int,
) -> None:
    """Import a real file while everything around the import fails, with celery-guard and with plain Celery.

    Needs no server. Every row is a job, enqueued in the transaction of its batch. While real workers run them, processes are
    killed, messages are delivered twice, some rows fail at first and some always.

    Exit status 0 only if celery-guard imported every row that can be imported exactly once, and every other is a dead letter.
    """
    from celery_guard.operate.demo.plan import make_plan
    from celery_guard.operate.demo.runs import Clock
    from celery_guard.operate.demo.show import table

    terminal = Terminal.of(ctx)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    seed = random.SystemRandom().randrange(10_000) if seed is None else seed
    plan = make_plan(rows, seed, kills)
    terminal.note(f"seed {seed}: {len(plan.rows)} rows, {kills} kills")
    folder = _folder(keep)
    try:
        tallies = _run_all(plan, folder, workers, no_plain, Clock(time.monotonic() + timeout), terminal)
    except (TimeoutError, RuntimeError) as error:
        raise click.ClickException(f"{error}\nEverything is left in {folder}") from error
    except (KeyboardInterrupt, SystemExit):
        _leave(folder, keep, True, terminal)
        raise
    good = not tallies[0].problems
    if terminal.as_json:
        terminal.json({"seed": seed, "good": good, "imports": [record(tally) for tally in tallies]})
    else:
        table(terminal, tallies)
        _judge(terminal, tallies)
    _leave(folder, keep, good, terminal)
    ctx.exit(0 if good else 1)


def _run_all(plan: Any, folder: Path, workers: int, no_plain: bool, clock: Any, terminal: Terminal) -> list[Tally]:
    from celery_guard.operate.demo.guarded import Guarded
    from celery_guard.operate.demo.plain import PlainEarly, PlainLate
    from celery_guard.operate.demo.show import Progress

    progress = Progress(terminal)
    kinds = (("guarded", Guarded), *(() if no_plain else (("early", PlainEarly), ("late", PlainLate))))
    return [kind(plan, folder / name, workers, clock, progress).run() for name, kind in kinds]


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="celery-guard-demo-"))
    if keep.exists() and any(keep.iterdir()):
        raise click.BadParameter(f"{keep} is not empty. Name a new folder.", param_hint="--keep")
    keep.mkdir(parents=True, exist_ok=True)
    return keep.resolve()


def _judge(terminal: Terminal, tallies: list[Tally]) -> None:
    guarded, *plain = tallies
    if guarded.problems:
        terminal.say("celery-guard did NOT keep its promise:")
        for problem in guarded.problems:
            terminal.say(f"  {problem}")
    else:
        terminal.say(
            "celery-guard: every row that can be imported is there exactly once, and every other is a dead letter."
        )
    for tally in plain:
        terminal.say(f"{tally.title}: {_words(tally)}")


def _words(tally: Tally) -> str:
    never = tally.rows - tally.importable
    return (
        f"{tally.missing} rows are missing, {tally.doubled} were written again; "
        f"the {never} that can never be imported are only in the workers' logs."
    )


def _leave(folder: Path, keep: Path | None, good: bool, terminal: Terminal) -> None:
    """Remove what nobody asked to keep; what went wrong is kept."""
    import shutil

    if keep is None and good:
        shutil.rmtree(folder)
    else:
        terminal.note(f"everything is left in {folder}")
