"""Which values of a call are sensitive, and texts without them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from celery_guard import Contract, ContractError
from celery_guard.contract.contract import ReadOptions
from celery_guard.contract.key import identify
from celery_guard.contract.resolve import resolve
from celery_guard.contract.sensitive import Hidden, hidden_in, masked_call
from celery_guard.job.text import cut, cut_middle

SECRET = "4111-1111-1111-1111"


def charge(order: int, card: str, customer: Any = None, *more: Any, **options: Any) -> None: ...


SIGNATURE = inspect.signature(charge)


@pytest.mark.parametrize(
    ("path", "args", "kwargs"),
    [
        ("card", (7, SECRET), {}),
        ("card", (), {"order": 7, "card": SECRET}),
        ("customer.email", (7, "x"), {"customer": {"email": SECRET}}),
        ("customer.cards.number", (7, "x", {"cards": [{"number": SECRET}, {"number": "1"}]}), {}),
        ("customer", (7, "x", {"deep": [{"er": (SECRET,)}]}), {}),
        ("extra", (7, "x"), {"extra": SECRET}),
    ],
)
def test_a_value_is_found_wherever_its_field_is(path: str, args: Any, kwargs: Any) -> None:
    hidden = hidden_in((path,), SIGNATURE, args, kwargs)
    assert hidden.text(f"no such card: {SECRET}!") == "no such card: ***!"
    shown = masked_call((path,), SIGNATURE, args, kwargs)
    assert SECRET not in str(shown)
    assert "***" in str(shown)


def test_what_is_not_named_is_left_as_it_is() -> None:
    call = ((7, "card"), {"customer": {"email": SECRET, "name": "Ada"}})
    assert masked_call(("customer.email",), SIGNATURE, *call) == (
        [7, "card"],
        {"customer": {"email": "***", "name": "Ada"}},
    )


@pytest.mark.parametrize("value", ['O\'Neil "x"', "Grüße\n", 4111111111, 12.75, b"secret"])
def test_a_value_is_found_as_it_is_printed_and_as_repr_and_json_write_it(value: Any) -> None:
    import json

    hidden = Hidden([value])
    for text in (f"{value}", repr(value), json.dumps(value) if not isinstance(value, bytes) else "secret"):
        assert hidden.text(f"<{text}>").strip("<>'\"b") == "***", text


def test_a_value_that_a_cut_went_through_is_masked_up_to_the_cut() -> None:
    hidden = Hidden([SECRET])
    for length in range(20, 60):
        text, _ = cut(f"{'x' * 20}{SECRET}{'y' * 60}", length)
        assert "411" not in hidden.text(text)
    for length in range(90, 200, 2):
        text, _ = cut_middle(SECRET * 40, length)
        assert "411" not in hidden.text(text).replace("***", "")


def test_values_that_are_everywhere_are_not_looked_for() -> None:
    assert Hidden(["", "a", 7]).text("a 7") == "a 7"


def test_keys_and_fingerprints_of_sensitive_calls_are_keyed_by_the_secret() -> None:
    contract = Contract(key="card", sensitive=("card",))
    plain, one, other = (
        identify(contract, "t", SIGNATURE, (7, SECRET), {}, secret=secret) for secret in (None, b"a" * 16, b"b" * 16)
    )
    assert len({plain.key, one.key, other.key}) == len({plain.fingerprint, one.fingerprint, other.fingerprint}) == 3
    assert one == identify(contract, "t", SIGNATURE, (), {"order": 7, "card": SECRET}, secret=b"a" * 16)
    assert SECRET not in one.shown
    loose = [
        identify(Contract(), "t", SIGNATURE, (7, SECRET), {}, secret=secret).fingerprint for secret in (None, b"x")
    ]
    assert loose[0] != loose[1]


def test_a_contract_names_sensitive_arguments_that_the_task_has() -> None:
    def task(order: int) -> None: ...

    with pytest.raises(ContractError, match=r"Contract.sensitive names 'card.number', which is no argument"):
        resolve(Contract(sensitive=("card.number",)), ReadOptions(), inspect.signature(task), "t")
    with pytest.raises(ContractError, match=r"Contract.sensitive"):
        Contract(sensitive="card")  # type: ignore[arg-type]
