"""Where settings are read, what is refused, and that no password is printed."""

from __future__ import annotations

import re
import traceback
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from celery_guard.errors import SettingError
from celery_guard.setting_names import NAMES
from celery_guard.settings import Settings, masked, read_settings

STORE = "postgresql+psycopg://shop:s3cret@db/shop"


def read(environ: dict[str, str] | None = None, conf: dict[str, Any] | None = None, **arguments: Any) -> Settings:
    return read_settings({"store": STORE, **arguments}, conf or {}, environ or {})


def refusal(environ: dict[str, str] | None = None, conf: dict[str, Any] | None = None, **arguments: Any) -> str:
    with pytest.raises(SettingError) as caught:
        read(environ, conf, **arguments)
    return str(caught.value)


def test_only_the_store_has_to_be_said() -> None:
    seconds = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in read().model_dump().items()
    }
    expected = {
        "store": STORE,
        "lease": 30,
        "drain": 30,
        "relay": True,
        "relay_batch": 500,
        "relay_hold": 30,
        "poll": 1,
        "notify": True,
        "publish_attempts": 10,
        "suspect_after": 60,
        "max_publications": 8,
        "payload_limit": 2**20,
        "crash_base": 2,
        "crash_cap": 60,
        "sweep_every": 5,
        "tell_within": 60,
        "keep": 7 * 86400,
        "keep_dead": 90 * 86400,
    }
    assert {name: seconds[name] for name in expected} == expected
    with pytest.raises(SettingError, match=r"store: found nothing.*CELERY_GUARD_STORE"):
        read_settings({}, {}, {})


def test_every_field_has_a_text_for_the_reference() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name
        assert len(field.description) > 30, name


def test_every_default_is_a_value_that_could_be_set() -> None:
    defaults = read().model_dump()
    assert Settings(**defaults) == read()


# -- where it is said -----------------------------------------------------------------------------------------------------


def test_an_argument_wins_over_the_configuration_and_that_over_the_environment() -> None:
    environ = {"CELERY_GUARD_LEASE": "1", "CELERY_GUARD_POLL": "1", "CELERY_GUARD_DRAIN": "1"}
    settings = read(environ, {"lease": 2, "poll": 2}, lease=3)
    assert (settings.lease, settings.poll, settings.drain) == tuple(timedelta(seconds=n) for n in (3, 2, 1))


def test_none_says_nothing() -> None:
    assert read({"CELERY_GUARD_LEASE": "1"}, {"lease": None}, lease=None).lease == timedelta(seconds=1)
    assert read_settings({"store": None}, {"store": None}, {"CELERY_GUARD_STORE": STORE}).store == STORE


def test_other_variables_of_the_environment_are_nobodys_business() -> None:
    assert read({"PATH": "x", "CELERY_BROKER": "x", "XCELERY_GUARD_LEASE": "x"}) == read()


@pytest.mark.parametrize(
    ("environ", "conf", "arguments", "origin"),
    [
        ({"CELERY_GUARD_LEESE": "1"}, {}, {}, "the environment variable CELERY_GUARD_LEESE"),
        ({}, {"leese": 1}, {}, "app.conf.guard_leese"),
        ({}, {"leese": None}, {}, "app.conf.guard_leese"),
        ({}, {}, {"leese": 1}, "Guard(leese=…)"),
    ],
)
def test_an_unknown_name_is_refused_with_the_one_that_was_meant(
    environ: dict[str, str], conf: dict[str, Any], arguments: dict[str, Any], origin: str
) -> None:
    message = refusal(environ, conf, **arguments)
    assert "no setting 'leese'" in message
    assert origin in message
    assert "did you mean 'lease'?" in message


def test_a_name_like_no_other_is_refused_with_all_that_exist() -> None:
    message = refusal({"CELERY_GUARD_XYZZY_Q": ""})
    assert all(name in message for name in Settings.model_fields)


# -- values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, timedelta(seconds=5)),
        (0.25, timedelta(milliseconds=250)),
        (timedelta(minutes=1), timedelta(minutes=1)),
        ("5", timedelta(seconds=5)),
        ("0.5", timedelta(milliseconds=500)),
        ("250ms", timedelta(milliseconds=250)),
        ("5s", timedelta(seconds=5)),
        ("2m", timedelta(minutes=2)),
        (" 2 h ", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
        ("PT30S", timedelta(seconds=30)),
        ("00:01:30", timedelta(seconds=90)),
    ],
)
def test_a_duration_is_seconds_unless_it_has_a_unit(value: Any, expected: timedelta) -> None:
    assert read(lease=value).lease == expected


@pytest.mark.parametrize(("value", "expected"), [(2048, 2048), ("2048", 2048), ("256KiB", 256 * 1024), ("1MiB", 2**20)])
def test_a_size_is_bytes_unless_it_has_a_unit(value: Any, expected: int) -> None:
    assert read(payload_limit=value).payload_limit == expected


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("no", False), ("true", True), ("off", False), (False, False)]
)
def test_a_switch_is_read_as_people_write_it(value: Any, expected: bool) -> None:
    assert read(relay=value).relay is expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lease", 0),
        ("lease", -1),
        ("lease", "soon"),
        ("lease", ""),
        ("lease", True),
        ("lease", float("nan")),
        ("lease", float("inf")),
        ("lease", 1e300),
        ("lease", "1e3 fortnights"),
        ("lease", "9" * 400 + "d"),
        ("lease", []),
        ("keep", timedelta(days=100_000)),
        ("relay", "perhaps"),
        ("relay", 7),
        ("notify", ""),
        ("relay_batch", 0),
        ("relay_batch", -5),
        ("relay_batch", 1.5),
        ("relay_batch", True),
        ("relay_batch", "many"),
        ("publish_attempts", 10**9),
        ("max_publications", 0),
        ("payload_limit", 0),
        ("payload_limit", True),
        ("payload_limit", "1 pony"),
        ("payload_limit", float("nan")),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_where_it_came_from(name: str, value: Any) -> None:
    message = refusal(None, {name: value})
    assert message.startswith(f"{name} (from app.conf.guard_{name}): found ")
    if isinstance(value, str):
        environment = refusal({f"CELERY_GUARD_{name.upper()}": value})
        assert f"from the environment variable CELERY_GUARD_{name.upper()}" in environment


def test_every_wrong_value_is_named_at_once() -> None:
    message = refusal({"CELERY_GUARD_POLL": "x"}, {"keep": -1}, lease=0)
    assert all(part in message for part in ("CELERY_GUARD_POLL", "app.conf.guard_keep", "Guard(lease=…)"))


def test_a_refusal_shows_what_was_found_and_what_is_expected() -> None:
    assert "found 'soon'; " in refusal(lease="soon")
    assert "found 0; " in refusal(relay_batch=0)
    assert "found list; " in refusal(relay=[])
    assert "greater than or equal to 1" in refusal(relay_batch=0)


def test_the_ends_of_what_makes_sense_make_sense() -> None:
    settings = read(
        payload_limit=1024, relay_batch=1, keep="3650d", crash_base=60, crash_cap=60, publish_attempts=10**6
    )
    assert (settings.payload_limit, settings.relay_batch, settings.keep) == (1024, 1, timedelta(days=3650))


def test_values_that_contradict_each_other_are_refused() -> None:
    assert "crash_base (0:01:40) is over crash_cap (0:01:00)" in refusal(crash_base=100)


# -- the store ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["shop", "", "/var/lib/shop.db", "://x", 7, ["sqlite:///x"]])
def test_a_store_that_is_no_url_is_refused(store: Any) -> None:
    message = refusal(store=store)
    assert message.startswith("store (from Guard(store=…)): found a value that is not printed; ")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://shop:s3cret@db/shop", "postgresql://shop:***@db/shop"),
        ("postgresql://shop:s3:c@r/e@t@db:5432/shop", "postgresql://shop:***@db:5432/shop"),
        ("postgresql://:s3cret@db/shop", "postgresql://:***@db/shop"),
        ("postgresql://shop@db/shop", "postgresql://shop@db/shop"),
        ("postgresql:///shop?user=a&password=s3cret", "postgresql:///shop?user=a&password=***"),
        ("mysql://h/x?ssl=1&sslpassword=s3cret#a", "mysql://h/x?ssl=1&sslpassword=***#a"),
        ("redis://h/0?PASSWD=s3cret&db=1", "redis://h/0?PASSWD=***&db=1"),
        ("sqlite:///shop.db", "sqlite:///shop.db"),
        ("sqlite://", "sqlite://"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert masked(url) == shown
    assert read(store=url).shown_store == shown


def test_no_password_is_printed_with_the_settings() -> None:
    settings = read()
    for text in (repr(settings), str(settings), f"{settings}"):
        assert "s3cret" not in text
        assert "shop:***@db" in text
        assert "lease=" in text


@pytest.mark.parametrize("store", ["shop:s3cret@db", "s3cret", ["s3cret"]])
def test_no_password_is_printed_with_a_refusal(store: Any) -> None:
    with pytest.raises(SettingError) as caught:
        read(store=store, lease=-1)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(ValidationError) as direct:
        Settings(store=store)
    assert "s3cret" not in str(direct.value)


def test_settings_do_not_change() -> None:
    settings = read()
    with pytest.raises(ValidationError, match="frozen"):
        settings.lease = timedelta(1)
    unknown: dict[str, Any] = {"store": STORE, "leese": 1}
    with pytest.raises(ValidationError, match="leese"):
        Settings(**unknown)


def test_a_refusal_does_not_print_a_huge_value() -> None:
    assert len(refusal(lease="x" * 100_000)) < 500


def test_names_are_words_of_the_environment() -> None:
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", name) for name in Settings.model_fields)


def test_the_names_are_those_of_the_settings() -> None:
    assert list(Settings.model_fields) == list(NAMES)
