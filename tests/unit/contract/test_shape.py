"""Arguments that travel by name, and payloads among them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Optional

import pytest

from celery_guard import ContractError, Payload, PayloadError, PayloadVersionError, upcast
from celery_guard.contract.shape import Shape, shape_of


class Order(Payload, version=2):
    number: int

    @upcast(1)
    def renamed(data: Any) -> Any:
        return {"number": data["no"]}


def shape(body: Callable[..., Any], *, named: bool = False) -> Shape:
    return shape_of("t", body, inspect.signature(body), named=named)


def ship(order: Order, how: str = "post", **more: Any) -> None: ...


def hint(order: Optional[Order], other: Order | None = None) -> None: ...  # noqa: UP045 - as people write it


def plain(a: int, b: int = 2, *rest: int) -> None: ...


def unknown(order: NobodyKnows) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def test_a_task_without_a_payload_keeps_the_arguments_as_they_were_given() -> None:
    wired = shape(plain).wire((1, 2), {})
    assert (wired.args, wired.kwargs, wired.versions) == ((1, 2), {}, {})


def test_a_payload_brings_names_for_all_and_its_version() -> None:
    wired = shape(ship).wire((Order(number=7), "air"), {"colour": "red"})
    assert (wired.args, wired.kwargs) == ((), {"order": {"number": 7}, "how": "air", "colour": "red"})
    assert (wired.versions, wired.payloads) == ({"order": 2}, {"order": Order(number=7)})


def test_what_was_not_given_is_not_sent_so_that_the_workers_default_holds() -> None:
    assert shape(ship).wire((), {"order": Order(number=7)}).kwargs == {"order": {"number": 7}}


def test_a_mapping_is_read_as_the_model_by_its_sender() -> None:
    assert shape(ship).wire((), {"order": {"number": "7"}}).kwargs == {"order": {"number": 7}}
    with pytest.raises(PayloadError, match="number: Field required"):
        shape(ship).wire((), {"order": {"no": 7}})
    with pytest.raises(PayloadError, match="expected Order"):
        shape(ship).wire((7,), {})


def test_what_one_task_hands_to_the_next_is_judged_by_the_next() -> None:
    wired = shape(ship).wire(({"no": 7},), {}, by_celery=True)
    assert (wired.kwargs, wired.versions) == ({"order": {"no": 7}}, {"order": 2})
    assert shape(ship).wire((1, 2, 3, 4), {}, by_celery=True).args == (1, 2, 3, 4)


def test_optional_payloads_are_payloads() -> None:
    wired = shape(hint).wire((None, Order(number=1)), {})
    assert (wired.kwargs, wired.versions) == ({"order": None, "other": {"number": 1}}, {"other": 2})


def test_a_message_is_opened_by_its_versions() -> None:
    args, kwargs, payloads = shape(ship).open((), {"order": {"no": 7}, "how": "air"}, {"order": 1})
    assert (args, kwargs, payloads) == (
        (), {"order": Order(number=7), "how": "air"}, {"order": Order(number=7)}
    )  # fmt: skip


def test_a_payload_of_a_name_that_is_not_known_is_newer() -> None:
    with pytest.raises(PayloadVersionError, match="none of this name"):
        shape(plain).open((), {"a": {}}, {"a": 1})


def test_a_payload_for_a_parameter_that_does_not_take_one_is_refused() -> None:
    for body, args, kwargs in ((plain, (Order(number=1),), {}), (unknown, (), {"order": Order(number=1)})):
        with pytest.raises(PayloadError, match="does not say that it takes one"):
            shape(body).wire(args, kwargs)


def test_arguments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TypeError, match=r"t: missing a required argument: 'order'"):
        shape(ship).wire((), {"how": "air"})


def test_a_parameter_without_a_name_cannot_travel_by_name() -> None:
    with pytest.raises(ContractError, match=r"\*rest"):
        shape(plain, named=True)

    def placed(order: Order, /) -> None: ...

    with pytest.raises(ContractError, match="payload model"):
        shape(placed)


def test_arguments_given_anew_by_place_take_the_place_of_their_names() -> None:
    assert shape(ship).replaced((1,), {"order": 2, "how": "air"}) == ((), {"order": 1, "how": "air"})
    assert shape(plain).replaced((1,), {"b": 2}) == ((1,), {"b": 2})
