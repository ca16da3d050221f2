"""How a delay is drawn, and what a Retry refuses."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from random import Random

import pytest

from celery_guard.contract.retry import Retry
from celery_guard.errors import ContractError


class Highest(Random):
    """A draw that is always as high as a draw can be."""

    def random(self) -> float:
        return 1 - 2**-53


class Lowest(Random):
    def random(self) -> float:
        return 0.0


def seconds(delay: timedelta) -> float:
    return delay.total_seconds()


def test_a_short_time_is_a_number_of_seconds_or_a_timedelta() -> None:
    assert Retry(base=timedelta(seconds=2), cap=timedelta(minutes=5)) == Retry(base=2, cap=300)
    with pytest.raises(ContractError, match=r"Retry.cap: found 0:00:00"):
        Retry(cap=timedelta(0))


def test_the_upper_end_of_a_delay_doubles_up_to_the_cap() -> None:
    retry = Retry(max_attempts=9, base=2, cap=20)
    assert [round(seconds(retry.delay(n, None, Highest()))) for n in range(6)] == [2, 4, 8, 16, 20, 20]


def test_a_delay_is_jittered_down_to_nothing() -> None:
    assert Retry(max_attempts=9).delay(5, None, Lowest()) == timedelta(0)


def test_without_jitter_every_delay_is_its_upper_end() -> None:
    retry = Retry(max_attempts=9, base=3, cap=10, jitter=False)
    assert [seconds(retry.delay(n, None, Lowest())) for n in range(4)] == [3, 6, 10, 10]


@pytest.mark.parametrize("n", [64, 1023, 1024, 10**6, 10**400])
def test_a_huge_retry_number_waits_the_cap(n: int) -> None:
    retry = Retry(max_attempts=None, within=timedelta(days=1), base=1e-3, cap=60, jitter=False)
    assert retry.delay(n, None, Lowest()) == timedelta(seconds=60)


def test_a_negative_retry_number_is_the_first() -> None:
    assert Retry(max_attempts=2, base=2, jitter=False).delay(-5, None, Lowest()) == timedelta(seconds=2)


@pytest.mark.parametrize("jitter", [True, False])
def test_a_hint_of_the_server_is_a_floor(jitter: bool) -> None:
    retry = Retry(max_attempts=9, base=2, cap=300, jitter=jitter)
    assert retry.delay(0, timedelta(seconds=30), Lowest()) == timedelta(seconds=30)


def test_clients_that_were_given_one_hint_do_not_come_back_together() -> None:
    retry = Retry(max_attempts=9, base=16, cap=300)
    delays = {retry.delay(0, timedelta(seconds=30), Random(seed)) for seed in range(20)}
    assert len(delays) == 20
    assert all(timedelta(seconds=30) <= delay <= timedelta(seconds=46) for delay in delays)


@pytest.mark.parametrize("jitter", [True, False])
def test_a_hint_beyond_the_cap_is_the_cap(jitter: bool) -> None:
    retry = Retry(max_attempts=9, base=2, cap=20, jitter=jitter)
    assert retry.delay(0, timedelta(days=365), Highest()) == timedelta(seconds=20)


def test_a_hint_in_the_past_is_no_hint() -> None:
    assert Retry(max_attempts=9).delay(0, timedelta(seconds=-5), Lowest()) == timedelta(0)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"max_attempts": None}, "within"),
        ({"base": 0}, "base"),
        ({"base": -1}, "base"),
        ({"base": float("nan")}, "base"),
        ({"base": float("inf")}, "base"),
        ({"base": True}, "base"),
        ({"base": "2"}, "base"),
        ({"base": timedelta(0)}, "base"),
        ({"base": 301}, "cap"),
        ({"cap": 0}, "cap"),
        ({"cap": 1e12}, "cap"),
        ({"cap": float("nan")}, "cap"),
        ({"within": timedelta(0)}, "within"),
        ({"within": timedelta(seconds=-1)}, "within"),
        ({"within": 3600}, "timedelta"),
        ({"max_crashes": 0}, "max_crashes"),
        ({"max_crashes": None}, "max_crashes"),
        ({"jitter": 1}, "jitter"),
        ({"only": None}, "only"),
        ({"on": ConnectionError}, "on"),
        ({"on": "requests.Timeout"}, "on"),
        ({"on": ("not a name",)}, "not a name"),
        ({"on": (ConnectionError(),)}, "on"),
        ({"on": (int,)}, "int"),
        ({"never": (None,)}, "never"),
        ({"on": (OSError,), "never": (OSError,)}, "OSError"),
        ({"on": ("a.B",), "throttled": ("a.B",)}, "a.B"),
    ],
)
def test_nonsense_is_refused_where_it_is_written(given: dict[str, object], named: str) -> None:
    with pytest.raises(ContractError) as caught:
        Retry(**given)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith("Retry.")
    assert named in message
    assert "found" in message
    assert "expected" in message
    assert "To repair" in message


def test_a_refusal_does_not_print_a_huge_value() -> None:
    with pytest.raises(ContractError) as caught:
        Retry(base="x" * 10_000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 400


def test_by_default_a_failure_is_final_and_the_third_crash_is() -> None:
    retry = Retry()
    assert (retry.max_attempts, retry.max_crashes, retry.within) == (1, 3, None)
    assert (retry.base, retry.cap, retry.jitter, retry.only) == (2, 300, True, False)


def test_the_ends_of_what_makes_sense_make_sense() -> None:
    assert Retry(base=9, cap=9, max_crashes=1).max_crashes == 1
    assert Retry(cap=3650 * 86400, within=timedelta(days=3650)).within == timedelta(days=3650)


def test_a_refusal_names_what_was_found() -> None:
    for found, shown in (
        (ConnectionError(), "a value of type ConnectionError"),
        (int, "the class int"),
        (None, "None"),
    ):
        with pytest.raises(ContractError, match=f"found {shown},"):
            Retry(on=(found,))  # type: ignore[arg-type]


def test_a_list_of_failures_is_taken_as_a_tuple() -> None:
    assert Retry(on=[OSError, "a.B"]).on == (OSError, "a.B")  # type: ignore[arg-type]


def test_a_retry_is_a_value() -> None:
    retry = Retry(max_attempts=3, on=(OSError,))
    assert retry == Retry(max_attempts=3, on=(OSError,))
    assert hash(retry) == hash(replace(retry))
    with pytest.raises(FrozenInstanceError):
        retry.base = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("retry", "declared"),
    [
        (Retry(), False),
        (Retry(max_attempts=2), True),
        (Retry(max_attempts=None, within=timedelta(hours=1)), True),
    ],
)
def test_one_attempt_in_all_is_no_retry(retry: Retry, declared: bool) -> None:
    assert retry.declared is declared
