"""The app that is fed noise: one task, in processes that write down every class a pickle asks for."""

from __future__ import annotations

import os
import sys
from typing import Any

from celery_guard import GuardedTask

from .app import app, guard, mark, task

__all__ = ["app", "guard", "take"]


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if event == "pickle.find_class":
        descriptor = os.open(os.environ["APP_PICKLES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{args[0]} {args[1]}\n".encode())
        os.close(descriptor)


if "APP_PICKLES" in os.environ:
    sys.addaudithook(_watch)


@task(base=GuardedTask, bind=True)
def take(self: Any, value: Any) -> None:
    """Takes anything."""
    mark(f"take {value}" if isinstance(value, int) else "take", self)
