"""What the demo does in a process of its own: ``python -m celery_guard.operate.demo.steps STEP``.

So the demo itself imports no application, and each step reads its settings from its own environment.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from celery_guard.errors import ConfigurationError

__all__ = ["main"]


def load(module: str) -> None:
    """Accept the file, as ``python -m airports.load FILE`` does, with the faults."""
    import_module("celery_guard.operate.demo.faults")
    import_module(module).main()


def roll_back() -> None:
    """Load the file in a transaction, and roll it back."""
    loading, models = import_module("airports.load"), import_module("airports.models")
    loading.make_tables()
    with models.new_session() as session:
        loading.load(session, Path(sys.argv[1]))
        session.rollback()


def count() -> None:
    """Print what is in the database: the batches, and the batch and ``iata`` of each airport."""
    models = import_module("airports.models")
    with models.new_session() as session:
        batches = [batch.id for batch in session.query(models.Batch)]
        airports = [list(row) for row in session.query(models.Airport.batch_id, models.Airport.iata)]
    print(json.dumps({"batches": batches, "airports": airports}))  # noqa: T201 - this is the step's answer


def main(step: str, arguments: list[str]) -> None:
    """Run one step; what is left of the command line is the step's own."""
    sys.argv = [step, *arguments]
    match step:
        case "load":
            load(sys.argv.pop(1))
        case "roll-back":
            roll_back()
        case "count":
            count()
        case _:
            raise ConfigurationError(f"The demo has no step {step!r}.")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
