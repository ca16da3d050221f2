"""The name of a call: every spelling of it is one name, and nothing else is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from celery_guard.contract import Contract
from celery_guard.contract.key import Identity, check_key, identify
from celery_guard.errors import ContractError, EnqueueError, PayloadError

Body = Callable[..., Any]


def sync(name: str, n: int = 2) -> None: ...


def charge(order_id: int, tenant: str | None = None) -> None: ...


def ship(order: dict[str, Any], *tags: str, **options: Any) -> None: ...


def named(contract: Contract, body: Body | None, *args: Any, **kwargs: Any) -> Identity:
    signature = None if body is None else inspect.signature(body)
    return identify(contract, "shop.task", signature, args, kwargs)


def key(contract: Contract, body: Body | None, *args: Any, **kwargs: Any) -> str:
    found = named(contract, body, *args, **kwargs).key
    assert found is not None
    return found


BOTH = Contract(key=("name", "n"))


def test_dup_4_every_spelling_of_a_call_is_one_key() -> None:
    spellings = [
        named(BOTH, sync, "a", 2),
        named(BOTH, sync, name="a", n=2),
        named(BOTH, sync, n=2, name="a"),
        named(BOTH, sync, "a", n=2),
        named(BOTH, sync, "a"),
        named(BOTH, sync, name="a"),
    ]
    assert len(set(spellings)) == 1


def test_dup_4_the_order_of_a_mapping_and_tuple_or_list_make_no_other_call() -> None:
    contract = Contract(key="name")
    assert key(contract, sync, {"a": 1, "b": (2,)}) == key(contract, sync, {"b": [2], "a": 1})


@pytest.mark.parametrize("values", [(1, True, "1", 1.0, Decimal(1), b"1", [1], {"1": 1}), ("\u00e9", "e\u0301")])
def test_dup_4_values_that_are_not_the_same_are_other_keys(values: tuple[Any, ...]) -> None:
    contract = Contract(key="name")
    assert len({key(contract, sync, value) for value in values}) == len(values)


def test_another_task_or_tenant_is_another_key() -> None:
    contract = Contract(key="order_id")
    signature = inspect.signature(charge)
    found = {
        identify(contract, "shop.charge", signature, (7, "acme"), {}).key,
        identify(contract, "shop.refund", signature, (7, "acme"), {}).key,
        identify(contract, "shop.charge", signature, (7, "umbrella"), {}).key,
        identify(contract, "shop.charge", signature, (7,), {}).key,
    }
    assert len(found) == 4


def test_another_choice_of_names_is_another_key() -> None:
    assert key(Contract(key="name"), sync, "a") != key(BOTH, sync, "a")
    assert key(Contract(key="a"), None, a=1, b=1) != key(Contract(key="b"), None, a=1, b=1)


def test_a_key_and_a_fingerprint_are_64_hexadecimal_digits() -> None:
    found = named(BOTH, sync, "a")
    assert found.fingerprint is not None
    assert found.key is not None
    assert len(bytes.fromhex(found.key)) == len(bytes.fromhex(found.fingerprint)) == 32
    assert found.key == found.key.lower()


def test_a_key_does_not_change_between_versions() -> None:
    """Keys are kept for days: one that changed with an upgrade would let every duplicate through."""
    found = identify(Contract(key=("name", "n")), "shop.sync", inspect.signature(sync), ("é", 2), {})
    assert found.key == "45ff594fb8ce40e534001e11916675259cc827894f877ee38a4becd2c3271621"
    assert found.fingerprint == "0cf2ce9ccc318992812b2e17b80df039330280906c64a1f747aff1f2fd9b9b6b"
    values: list[Any] = [None, True, 1, 2**2000, 0.1, "\ud800", b"\x00", Decimal("1.50"), UUID(int=3), {1: "a"}]
    values.append(datetime(2024, 5, 1, tzinfo=timezone.utc))
    assert (
        identify(Contract(key="name"), "shop.sync", inspect.signature(sync), (values,), {}).key
        == "a63ab051c1ce4b579593f0b7d343f3d4532d80f9f20197d7450a6186cdd30d8e"
    )


# -- what names a call ----------------------------------------------------------------------------------------------------


def test_a_path_reaches_into_a_mapping() -> None:
    contract = Contract(key="order.customer.id")
    assert key(contract, ship, {"customer": {"id": 7, "name": "a"}}) == key(contract, ship, {"customer": {"id": 7}})
    assert key(contract, ship, {"customer": {"id": 8}}) != key(contract, ship, {"customer": {"id": 7}})


@pytest.mark.parametrize("order", [{}, {"customer": 3}, {"customer": None}, {"customer": {}}, [1], None])
def test_a_path_that_leads_nowhere_is_refused(order: Any) -> None:
    with pytest.raises(EnqueueError, match=r"shop\.task: .*'order\.customer\.id'.*Nothing was enqueued"):
        named(Contract(key="order.customer.id"), ship, order)


def test_what_a_double_star_takes_can_be_named() -> None:
    contract = Contract(key=("order", "express"))
    assert key(contract, ship, 1, express=True) != key(contract, ship, 1, express=False)
    with pytest.raises(EnqueueError, match="express"):
        named(contract, ship, 1)


def test_a_function_may_name_a_call() -> None:
    contract = Contract(key=lambda name, n=2: [name.lower(), n])
    assert key(contract, sync, "A") == key(contract, sync, "a", 2)
    assert key(contract, sync, "A") != key(contract, sync, "b")


def test_a_function_may_say_that_a_call_has_no_key() -> None:
    contract = Contract(key=lambda name, n=2: None)
    assert named(contract, sync, "a").key is None


def test_what_a_function_raises_goes_up() -> None:
    def broken(name: str, n: int = 2) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        named(Contract(key=broken), sync, "a")


def test_a_value_without_a_text_is_refused() -> None:
    with pytest.raises(PayloadError):
        named(Contract(key="name"), sync, object())
    with pytest.raises(PayloadError, match="the call\\['n'\\]"):
        named(Contract(key="name"), sync, "a", object())


def test_arguments_that_do_not_fit_are_refused_as_by_a_call() -> None:
    with pytest.raises(TypeError):
        named(BOTH, sync)
    with pytest.raises(TypeError):
        named(BOTH, sync, "a", 2, 3)


def test_a_sender_that_does_not_know_the_task_names_its_arguments() -> None:
    contract = Contract(key="order_id")
    assert key(contract, None, order_id=7) != key(contract, None, order_id=8)
    with pytest.raises(EnqueueError, match="pass it by name"):
        named(contract, None, 7)


# -- the fingerprint ------------------------------------------------------------------------------------------------------


def test_dup_4_the_same_key_with_other_arguments_is_another_fingerprint() -> None:
    contract = Contract(key="name")
    one, other = named(contract, sync, "a", 1), named(contract, sync, "a", 2)
    assert one.key == other.key
    assert one.fingerprint != other.fingerprint


def test_only_what_must_match_is_in_the_fingerprint() -> None:
    contract = Contract(key="order", match=("options.amount",))

    def body(order: int, options: dict[str, Any]) -> None: ...

    one = named(contract, body, 1, {"amount": 5, "trace": "a"})
    assert one == named(contract, body, 1, {"amount": 5, "trace": "b"})
    assert one.fingerprint != named(contract, body, 1, {"amount": 6, "trace": "a"}).fingerprint


def test_star_arguments_are_in_the_fingerprint() -> None:
    contract = Contract(key="order")
    found = {
        named(contract, ship, 1).fingerprint,
        named(contract, ship, 1, "tag").fingerprint,
        named(contract, ship, 1, tag=1).fingerprint,
        named(contract, ship, 1, tags=("tag",)).fingerprint,
    }
    assert len(found) == 4


NOTHING = object()


def sentinel(order: int, note: Any = NOTHING) -> None: ...


def test_a_default_that_no_message_carries_is_in_no_fingerprint() -> None:
    contract = Contract(key="order")
    assert named(contract, sentinel, 1).fingerprint == named(contract, sentinel, order=1).fingerprint
    assert named(contract, sentinel, 1).fingerprint != named(contract, sentinel, 1, "a").fingerprint
    with pytest.raises(PayloadError):
        named(contract, sentinel, 1, NOTHING)


def test_without_a_key_two_payloads_under_one_id_are_still_told_apart() -> None:
    one = named(Contract(), sync, "a", 2)
    assert (one.key, one.shown) == (None, "")
    assert one.fingerprint is not None
    assert one == named(Contract(), sync, name="a") == named(Contract(), sync, n=2, name="a")
    assert one.fingerprint != named(Contract(), sync, "a", 3).fingerprint
    assert one.fingerprint != named(Contract(), None, "a", 2).fingerprint
    assert named(Contract(), sync, {"a": 1, "b": 2}) == named(Contract(), sync, {"b": 2, "a": 1})
    moment = datetime(2024, 5, 1, tzinfo=timezone.utc)
    assert named(Contract(), sync, moment).fingerprint == named(Contract(), sync, name=moment).fingerprint


@pytest.mark.parametrize("args", [({1, 2},), (object(),), ({1: 1, "1": 2},), (1, 2, 3, 4), ()])
def test_without_a_key_nothing_is_refused(args: tuple[Any, ...]) -> None:
    assert named(Contract(), sync, *args).key is None


def test_without_a_key_a_circle_has_no_fingerprint() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert named(Contract(), sync, circle).fingerprint is None


# -- the tenant -----------------------------------------------------------------------------------------------------------


def test_the_argument_named_tenant_is_the_tenant() -> None:
    assert named(Contract(), charge, 7, "acme").tenant == "acme"
    assert named(Contract(), charge, 7, tenant="acme").tenant == "acme"
    assert named(Contract(), charge, 7).tenant is None
    assert named(Contract(), sync, "a").tenant is None
    assert named(Contract(), None, tenant="acme").tenant == "acme"
    assert named(Contract(), ship, {}, tenant="acme").tenant == "acme"


def test_the_contract_may_name_another_or_compute_it() -> None:
    assert named(Contract(tenant="name"), sync, "acme").tenant == "acme"
    assert named(Contract(tenant="order.shop"), ship, {"shop": "acme"}).tenant == "acme"
    assert named(Contract(tenant=lambda name, n=2: f"{name}-{n}"), sync, "acme").tenant == "acme-2"


@pytest.mark.parametrize(
    ("value", "text"),
    [(7, "7"), ("a" * 255, "a" * 255), (UUID(int=1), str(UUID(int=1))), ("Größe & Söhne", "Größe & Söhne")],
)
def test_a_tenant_is_kept_as_text(value: Any, text: str) -> None:
    assert named(Contract(), charge, 7, value).tenant == text


@pytest.mark.parametrize("value", ["", "a\x00", "\ud800", "a\nb", "a" * 256, True, 1.5, ["acme"], b"acme", {"id": 1}])
def test_a_tenant_that_is_no_short_text_is_refused(value: Any) -> None:
    with pytest.raises(EnqueueError, match=r"shop\.task: the tenant"):
        named(Contract(), charge, 7, value)


# -- what people see ------------------------------------------------------------------------------------------------------


def test_a_key_is_shown_as_its_values() -> None:
    assert named(BOTH, sync, "a").shown == 'name="a", n=2'
    assert named(Contract(key=lambda name: [name]), sync, "a").shown == 'key=["a"]'
    shown = named(Contract(key="name"), sync, "\x00\ud800" + "x" * 10_000).shown
    assert len(shown) <= 200
    assert shown.isprintable()


# -- at declaration -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "contract",
    [
        Contract(key="orderid"),
        Contract(key=("order_id", "amount")),
        Contract(key="order.id"),
        Contract(key="order_id", match=("amount",)),
        Contract(tenant="customer"),
    ],
)
def test_a_name_that_is_no_argument_is_refused_with_those_that_are(contract: Contract) -> None:
    with pytest.raises(ContractError, match=r"^shop\.charge: Contract\..*Its arguments: order_id, tenant\."):
        check_key(contract, inspect.signature(charge), "shop.charge")


def test_a_task_without_arguments_has_no_names() -> None:
    with pytest.raises(ContractError, match="Its arguments: none"):
        check_key(Contract(key="a"), inspect.signature(lambda: None), "shop.charge")


@pytest.mark.parametrize(
    "contract",
    [
        Contract(),
        Contract(key="order_id", match=("tenant",), tenant="tenant"),
        Contract(key=lambda: 1, tenant=lambda: "a"),
    ],
)
def test_names_that_exist_are_taken(contract: Contract) -> None:
    check_key(contract, inspect.signature(charge), "shop.charge")


def test_a_task_that_takes_any_argument_is_taken_at_its_word() -> None:
    check_key(Contract(key="anything.at.all"), inspect.signature(ship), "shop.ship")
