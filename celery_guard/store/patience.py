"""How often and how long an operation of a store is repeated on errors that pass by themselves. The only place that repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from celery_guard.errors import StoreUnavailableError

__all__ = ["Patience"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an operation is repeated: until one of the bounds is met. Delays are full jitter under a growing cap."""

    tries: int = 8
    seconds: float = 15
    first: float = 0.02
    cap: float = 2

    def times(self, factor: int) -> Patience:
        """As many times as patient."""
        return replace(self, tries=self.tries * factor, seconds=self.seconds * factor)

    def run(
        self,
        work: Callable[[bool], T],
        passes: Callable[[BaseException], bool],
        explained: Callable[[Exception], BaseException],
        factor: int = 1,
    ) -> T:
        """Run work, which is told whether it is a repetition, and again while its errors may pass; ``factor`` times as patient.

        Raises what ``explained`` makes of the last error.
        """
        try:
            try:
                return work(False)
            except Exception as error:
                if not passes(error):
                    raise
                return self.times(factor).repeat(lambda: work(True), passes, error)
        except Exception as error:
            said = explained(error)
            if said is error:
                raise
            raise said from error

    def repeat(self, work: Callable[[], T], passes: Callable[[BaseException], bool], error: BaseException) -> T:
        """Go on after ``error``, the first try's, until ``work`` succeeds or patience ends; ``passes`` says which errors may pass.

        Raises:
            StoreUnavailableError: it did not succeed in time; the cause is the last error.
        """

        if self.tries < 2:
            raise StoreUnavailableError(f"The store could not be reached or was too busy: {error}") from error

        def give_up(state: RetryCallState) -> T:
            last = state.outcome.exception() if state.outcome is not None else error
            raise StoreUnavailableError(
                f"The store could not be reached or was too busy: {state.attempt_number + 1} tries in "
                f"{state.seconds_since_start or 0:.1f} s, the last one said: {last}"
            ) from last

        retrying = Retrying(
            retry=retry_if_exception(passes),
            wait=wait_random_exponential(multiplier=self.first, max=self.cap),
            stop=stop_after_attempt(self.tries - 1) | stop_after_delay(self.seconds),
            retry_error_callback=give_up,
        )
        return retrying(work)
