"""A property that is worked out once, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["lazy"]

T = TypeVar("T")


class lazy(Generic[T]):
    """``functools.cached_property`` as it is since Python 3.12: before, one lock a class is held while a value is worked out.

    A process that is forked while another thread holds that lock waits for it for ever, as the children of a worker's pool did. Here two threads
    may both work a value out; the first one's is everybody's.
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> lazy[T] | T:
        if instance is None:
            return self
        found: T = instance.__dict__.setdefault(self._name, self._work_out(instance))
        return found
