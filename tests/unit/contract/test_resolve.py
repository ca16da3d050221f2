"""How a contract and Celery's options become one."""

from __future__ import annotations

import inspect
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from celery_guard.contract import Contract, Retry, Timing
from celery_guard.contract.classify import classify, retryable
from celery_guard.contract.contract import Effective, ReadOptions
from celery_guard.contract.resolve import UNBOUNDED_WITHIN, resolve
from celery_guard.errors import ContractError


def charge(order_id: int, tenant: str, currency: str = "EUR") -> None: ...


SIGNATURE = inspect.signature(charge)


def effective(contract: Contract | None = None, **options: Any) -> Effective:
    return resolve(contract, ReadOptions(**options), SIGNATURE, "shop.charge")


def is_retried(error: BaseException, found: Effective) -> bool:
    return retryable(classify(error, found.retry).failure_class, found.retry)


# -- nothing declared ---------------------------------------------------------------------------------------------------


def test_without_a_declaration_a_failure_is_final_as_in_plain_celery() -> None:
    found = effective()
    assert found.retry.max_attempts == 1
    assert not found.retry_declared
    assert not is_retried(ConnectionError(), found)


def test_a_default_of_celery_bounds_the_bodys_own_retries_and_declares_nothing() -> None:
    found = effective()
    assert found.explicit_retries == 3
    assert found.retry.delay(0, None, Random()) == timedelta(seconds=180)


def test_max_retries_alone_bounds_the_bodys_own_retries_and_is_no_policy() -> None:
    found = effective(max_retries=5, default_retry_delay=7)
    assert found.explicit_retries == 5
    assert found.retry.max_attempts == 1
    assert found.retry.delay(3, None, Random()) == timedelta(seconds=7)


def test_retries_without_end_end_after_a_week() -> None:
    found = effective(max_retries=None)
    assert found.explicit_retries is None
    assert found.retry.within == UNBOUNDED_WITHIN == timedelta(days=7)


def test_nothing_but_the_name_has_to_be_said() -> None:
    assert Effective(task="shop.charge") == Effective(
        task="shop.charge", retry=Retry(), timing=Timing(), best_effort=False, explicit_retries=3, retry_declared=False
    )


def test_a_crash_runs_again_whatever_was_declared() -> None:
    assert effective(reject_on_worker_lost=False).retry.max_crashes == 3


# -- autoretry_for ------------------------------------------------------------------------------------------------------


def test_autoretry_repeats_what_it_names_and_nothing_else() -> None:
    found = effective(autoretry_for=(ConnectionError,))
    assert found.retry_declared
    assert is_retried(ConnectionResetError(), found)
    assert not is_retried(TimeoutError(), found)
    assert not is_retried(RuntimeError(), found)


def test_autoretry_of_every_exception_repeats_programming_errors_too() -> None:
    found = effective(autoretry_for=(Exception,))
    assert is_retried(ValueError(), found)
    assert is_retried(RuntimeError(), found)


def test_retry_1_three_retries_after_the_first_attempt_are_four_attempts() -> None:
    assert effective(autoretry_for=(ValueError,)).retry.max_attempts == 4
    assert effective(autoretry_for=(ValueError,), max_retries=3).retry.max_attempts == 4
    assert effective(autoretry_for=(ValueError,), max_retries=0).retry.max_attempts == 1
    assert effective(autoretry_for=(ValueError,), retry_kwargs={"max_retries": 5}).retry.max_attempts == 6


def test_a_missing_number_in_retry_kwargs_is_the_tasks_own() -> None:
    found = effective(autoretry_for=(ValueError,), max_retries=7, retry_kwargs={"max_retries": None})
    assert found.retry.max_attempts == 8


def test_autoretry_without_end_ends_after_a_week() -> None:
    found = effective(autoretry_for=(ValueError,), max_retries=None)
    assert found.retry.max_attempts is None
    assert found.retry.within == UNBOUNDED_WITHIN


def test_time_bounds_what_numbers_do_not() -> None:
    assert effective(autoretry_for=(ValueError,)).retry.within is None
    mixed = effective(autoretry_for=(ValueError,), max_retries=None, retry_kwargs={"max_retries": 5})
    assert (mixed.retry.max_attempts, mixed.explicit_retries, mixed.retry.within) == (6, None, UNBOUNDED_WITHIN)


def test_what_is_named_as_not_to_be_repeated_wins_as_in_celery() -> None:
    found = effective(autoretry_for=(ConnectionError, TimeoutError), dont_autoretry_for=(ConnectionError,))
    assert not is_retried(ConnectionResetError(), found)
    assert is_retried(TimeoutError(), found)
    wider = effective(autoretry_for=(ConnectionError,), dont_autoretry_for=(OSError,))
    assert not is_retried(ConnectionError(), wider)


def delays(found: Effective) -> list[float]:
    class Highest(Random):
        def random(self) -> float:
            return 1.0

    return [found.retry.delay(n, None, Highest()).total_seconds() for n in range(5)]


def test_without_backoff_the_delay_is_fixed() -> None:
    assert delays(effective(autoretry_for=(ValueError,))) == [180] * 5
    assert delays(effective(autoretry_for=(ValueError,), default_retry_delay=5)) == [5] * 5
    assert delays(effective(autoretry_for=(ValueError,), retry_kwargs={"countdown": 9})) == [9] * 5
    assert delays(effective(autoretry_for=(ValueError,), retry_backoff=False)) == [180] * 5


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"retry_backoff": True}, [1, 2, 4, 8, 16]),
        ({"retry_backoff": 3}, [3, 6, 12, 24, 48]),
        ({"retry_backoff": 2.9}, [2, 4, 8, 16, 32]),
        ({"retry_backoff": 0.25}, [1, 2, 4, 8, 16]),
        ({"retry_backoff": 3, "retry_backoff_max": 10}, [3, 6, 10, 10, 10]),
        ({"retry_backoff": 30, "retry_backoff_max": 10}, [10, 10, 10, 10, 10]),
        ({"retry_backoff": 2, "default_retry_delay": 99}, [2, 4, 8, 16, 32]),
    ],
)
def test_backoff_is_celerys(options: dict[str, Any], expected: list[float]) -> None:
    assert delays(effective(autoretry_for=(ValueError,), **options)) == expected


def test_backoff_is_jittered_unless_it_was_turned_off() -> None:
    assert not effective(autoretry_for=(ValueError,)).retry.jitter
    assert effective(autoretry_for=(ValueError,), retry_backoff=True, retry_jitter=True).retry.jitter
    assert effective(autoretry_for=(ValueError,), retry_backoff=True).retry.jitter
    assert not effective(autoretry_for=(ValueError,), retry_backoff=True, retry_jitter=False).retry.jitter


def test_celerys_own_cap_is_ten_minutes() -> None:
    assert effective(autoretry_for=(ValueError,), retry_backoff=True).retry.cap == 600


def test_a_delay_of_nothing_is_next_to_nothing() -> None:
    assert delays(effective(autoretry_for=(ValueError,), default_retry_delay=0))[0] < 0.01
    assert delays(effective(default_retry_delay=0))[0] < 0.01


# -- times --------------------------------------------------------------------------------------------------------------


def test_celerys_times_are_read() -> None:
    timing = effective(time_limit=30, soft_time_limit=25.5, expires=3600).timing
    assert timing == Timing(attempt=30, soft=25.5, deadline=timedelta(hours=1))
    assert effective(expires=timedelta(minutes=1)).timing.deadline == timedelta(minutes=1)


def test_an_option_that_says_none_says_nothing() -> None:
    assert effective(time_limit=None, soft_time_limit=None, expires=None).timing == Timing()


def test_contract_and_options_fill_each_other_in() -> None:
    contract = Contract(timing=Timing(attempt=30, grace=3))
    assert effective(contract, soft_time_limit=20).timing == Timing(attempt=30, grace=3, soft=20)


@pytest.mark.parametrize(
    ("contract", "options"),
    [
        (Contract(timing=Timing(attempt=30)), {"soft_time_limit": 40}),
        (None, {"time_limit": 0}),
        (None, {"time_limit": True}),
        (None, {"expires": -1}),
        (None, {"expires": "tomorrow"}),
        (None, {"soft_time_limit": float("nan")}),
        (None, {"max_retries": -1}),
        (None, {"max_retries": True}),
        (None, {"max_retries": 2.5}),
        (None, {"autoretry_for": (OSError,), "retry_backoff": -2}),
        (None, {"autoretry_for": (OSError,), "retry_backoff": "2"}),
        (None, {"autoretry_for": (OSError,), "retry_kwargs": 5}),
        (None, {"autoretry_for": (OSError,), "retry_kwargs": {"max_retries": "3"}}),
        (None, {"autoretry_for": ("OSError or so",)}),
        (None, {"default_retry_delay": -1}),
    ],
)
def test_nonsense_in_options_is_refused_by_the_name_of_the_task(
    contract: Contract | None, options: dict[str, Any]
) -> None:
    with pytest.raises(ContractError, match=r"^shop\.charge: .*found .*expected"):
        effective(contract, **options)


# -- both ---------------------------------------------------------------------------------------------------------------


def test_a_contract_wins_over_the_defaults_of_celery() -> None:
    found = effective(Contract(owner="payments", key="order_id", retry=Retry(max_attempts=6), best_effort=True))
    assert (found.task, found.owner, found.key, found.best_effort) == ("shop.charge", "payments", "order_id", True)
    assert found.retry == Retry(max_attempts=6)
    assert found.explicit_retries == 5
    assert found.retry_declared


def test_a_contract_bounded_by_time_alone_does_not_count_the_bodys_retries() -> None:
    found = effective(Contract(retry=Retry(max_attempts=None, within=timedelta(hours=1))))
    assert found.explicit_retries is None


def test_a_contract_that_says_one_attempt_allows_no_retry_of_the_bodys_own() -> None:
    assert effective(Contract(retry=Retry())).explicit_retries == 0


@pytest.mark.parametrize(
    ("retry", "options"),
    [
        (Retry(max_attempts=3), {"max_retries": 2}),
        (Retry(max_attempts=None, within=timedelta(days=1)), {"max_retries": None}),
        (
            Retry(max_attempts=3, on=(OSError,)),
            {"autoretry_for": (ConnectionError,), "retry_kwargs": {"max_retries": 2}},
        ),
        (Retry(max_attempts=3, on=("builtins.OSError",)), {"autoretry_for": (OSError,)}),
        (Retry(max_attempts=3, never=(OSError,)), {"dont_autoretry_for": (OSError,)}),
        (Retry(max_attempts=3, base=1, cap=60), {"retry_backoff": True, "retry_backoff_max": 60, "retry_jitter": True}),
        (Retry(max_attempts=3, base=9, cap=9, jitter=False), {"default_retry_delay": 9}),
        (Retry(max_attempts=3), {"retry_backoff": False}),
        (Retry(max_attempts=3), {"reject_on_worker_lost": True}),
    ],
)
def test_options_that_say_the_same_are_no_conflict(retry: Retry, options: dict[str, Any]) -> None:
    assert effective(Contract(retry=retry), **options).retry == retry


@pytest.mark.parametrize(
    ("contract", "options", "named"),
    [
        (Contract(retry=Retry(max_attempts=6)), {"max_retries": 2}, "max_retries=2"),
        (Contract(retry=Retry(max_attempts=6)), {"max_retries": None}, "max_retries=None"),
        (Contract(retry=Retry(max_attempts=None, within=timedelta(1))), {"max_retries": 2}, "max_retries=2"),
        (Contract(retry=Retry(max_attempts=6)), {"retry_kwargs": {"max_retries": 2}}, "retry_kwargs"),
        (Contract(retry=Retry(max_attempts=6)), {"autoretry_for": (OSError,)}, "autoretry_for names the class OSError"),
        (Contract(retry=Retry(max_attempts=6, on=(OSError,))), {"autoretry_for": (Exception,)}, "Exception"),
        (Contract(retry=Retry(max_attempts=6)), {"dont_autoretry_for": (KeyError,)}, "dont_autoretry_for"),
        (Contract(retry=Retry(max_attempts=6)), {"retry_backoff": 5}, "retry_backoff=5"),
        (Contract(retry=Retry(max_attempts=6)), {"retry_backoff_max": 5}, "retry_backoff_max=5"),
        (Contract(retry=Retry(max_attempts=6)), {"retry_jitter": False}, "retry_jitter=False"),
        (Contract(retry=Retry(max_attempts=6)), {"default_retry_delay": 5}, "default_retry_delay=5"),
        (Contract(retry=Retry(max_attempts=6)), {"retry_kwargs": {"countdown": 5}}, "countdown"),
        (Contract(retry=Retry(base=9, cap=9)), {"default_retry_delay": 9}, "default_retry_delay=9"),
        (Contract(retry=Retry(base=9, jitter=False)), {"default_retry_delay": 9}, "default_retry_delay=9"),
        (Contract(retry=Retry(max_crashes=1)), {"reject_on_worker_lost": True}, "reject_on_worker_lost"),
        (Contract(timing=Timing(attempt=30)), {"time_limit": 31}, "time_limit=31"),
        (Contract(timing=Timing(soft=30)), {"soft_time_limit": 31}, "soft_time_limit=31"),
        (Contract(timing=Timing(deadline=timedelta(hours=1))), {"expires": 60}, "expires=60"),
    ],
)
def test_a_conflict_is_said_aloud(contract: Contract, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ContractError, match=r"^shop\.charge: Celery's option") as caught:
        effective(contract, **options)
    assert named in str(caught.value)
    assert "To repair" in str(caught.value)


def test_a_conflict_says_what_each_side_means() -> None:
    with pytest.raises(ContractError) as caught:
        effective(Contract(retry=Retry(max_attempts=6)), max_retries=2)
    assert str(caught.value) == (
        "shop.charge: Celery's option max_retries=2 (3 attempts in all) and the contract's Retry(max_attempts=6) say "
        "different things about one task. To repair: keep the contract and remove the option."
    )
    with pytest.raises(ContractError, match=r"Retry\(without a number\)"):
        effective(Contract(retry=Retry(max_attempts=None, within=timedelta(1))), max_retries=2)
    with pytest.raises(ContractError, match=r"max_retries=None \(without end\)"):
        effective(Contract(retry=Retry(max_attempts=6)), max_retries=None)
    with pytest.raises(
        ContractError, match="autoretry_for names the class OSError and the contract's Retry, whose `on`"
    ):
        effective(Contract(retry=Retry(max_attempts=6)), autoretry_for=(OSError,))
    with pytest.raises(ContractError, match=r"dont_autoretry_for names the class OSError .* whose `never`"):
        effective(Contract(retry=Retry(max_attempts=6)), dont_autoretry_for=(OSError,))


def test_limits_that_contradict_the_contracts_are_named_as_the_options_they_are() -> None:
    with pytest.raises(ContractError, match="soft_time_limit: found 0:00:30, expected less than time_limit"):
        effective(Contract(timing=Timing(attempt=30)), soft_time_limit=30)


@pytest.mark.parametrize("soft", [30, 31])
def test_celerys_own_limits_that_contradict_each_other_are_left_to_celery(soft: int) -> None:
    assert effective(time_limit=30, soft_time_limit=soft).timing == Timing(attempt=30)


@pytest.mark.parametrize(
    "contract", [Contract(key="orderid"), Contract(key="order_id", match=("nothing",)), Contract(tenant="customer")]
)
def test_a_name_that_is_no_argument_is_refused_with_those_that_are(contract: Contract) -> None:
    with pytest.raises(ContractError, match=r"^shop\.charge: .*order_id, tenant, currency"):
        effective(contract)


def test_a_task_whose_signature_cannot_be_read_is_taken_at_its_word() -> None:
    assert resolve(Contract(key="anything"), ReadOptions(), None, "shop.charge").key == "anything"
