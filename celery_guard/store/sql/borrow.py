"""A driver's socket, looked at and left as it was found."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["borrowed"]


@contextmanager
def borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket object for a descriptor that is somebody else's; it is not closed.

    Where ``socket.setdefaulttimeout`` is in force, as in Celery's beat, Python makes such an object non-blocking, and with it the connection of a
    driver that waits for answers.
    """
    blocking = os.get_blocking(descriptor)
    end = socket.socket(fileno=descriptor)
    try:
        os.set_blocking(descriptor, blocking)
        yield end
    finally:
        end.detach()
