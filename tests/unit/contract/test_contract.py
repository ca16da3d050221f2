"""What a Contract refuses before any task has it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from celery_guard.contract import Contract, Retry, Timing
from celery_guard.contract.contract import Effective, ReadOptions
from celery_guard.errors import ContractError


def test_nothing_has_to_be_said() -> None:
    contract = Contract()
    assert (contract.owner, contract.key, contract.retry, contract.timing, contract.best_effort) == (
        None,
        None,
        None,
        None,
        False,
    )


@pytest.mark.parametrize("key", ["order_id", "order.id", ("order_id", "line.number"), lambda order_id: order_id])
def test_a_key_is_a_name_a_path_several_or_a_function(key: object) -> None:
    assert Contract(key=key).key == key  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"owner": ""}, "owner"),
        ({"owner": "  "}, "owner"),
        ({"owner": 3}, "owner"),
        ({"key": ""}, "key"),
        ({"key": "order."}, "key"),
        ({"key": ".id"}, "key"),
        ({"key": ()}, "key"),
        ({"key": ("a", "a")}, "key"),
        ({"key": ("a", 3)}, "key"),
        ({"key": ["a", "b"]}, "key"),
        ({"key": 7}, "key"),
        ({"key": "a", "match": "a"}, "match"),
        ({"key": "a", "match": ()}, "match"),
        ({"match": ("a",)}, "match"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": ("a",)}, "tenant"),
        ({"retry": 3}, "retry"),
        ({"retry": Timing()}, "retry"),
        ({"timing": 30}, "timing"),
        ({"timing": Retry()}, "timing"),
        ({"best_effort": 1}, "best_effort"),
    ],
)
def test_nonsense_is_refused_where_it_is_written(given: dict[str, object], named: str) -> None:
    with pytest.raises(ContractError) as caught:
        Contract(**given)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(f"Contract.{named}")
    assert "expected" in message


def test_a_contract_is_a_value_and_its_parts_have_names() -> None:
    contract = Contract(key="a")
    with pytest.raises(FrozenInstanceError):
        contract.key = "b"  # type: ignore[misc]
    kinds: list[Any] = [Contract, Effective, ReadOptions]
    for kind in kinds:
        with pytest.raises(TypeError):
            kind("shop.charge")
    with pytest.raises(FrozenInstanceError):
        Effective(task="a").task = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        ReadOptions().max_retries = 1  # type: ignore[misc]
