"""The settings of a guard: one frozen model, read once, handed down.

Three places, the first that says something wins: arguments of ``Guard(...)``, Celery's configuration
(``app.conf.guard_lease``), the environment (``CELERY_GUARD_LEASE``). A name that does not exist is refused in all three,
so that a slip of the pen is not a setting that never took effect.

The text of each field is the text that the reference, the checker and the runbook print.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from .errors import SettingError
from .setting_names import ENVIRONMENT_PREFIX, NAMES, refuse_unknown

__all__ = ["Settings", "masked", "read_settings"]

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MEASURE = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&]*(?:pass|pwd|secret|token)[^=&]*=)[^&#]*")


def _read_duration(value: Any) -> Any:
    if isinstance(value, str) and (found := _MEASURE.fullmatch(value.strip())):
        value = float(found[1]) * _UNITS[found[2] or "s"]
    if isinstance(value, bool):
        raise ValueError("True and False are not durations")
    if isinstance(value, (int, float)):
        try:
            return timedelta(seconds=value)
        except OverflowError as error:
            raise ValueError("no duration is that long") from error
    return value


def _read_number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("True and False are not numbers")
    return value


def _read_keys(value: Any) -> Any:
    """Keys in one text; a colon, which no key has, makes it the place of a function."""
    if isinstance(value, str) and ":" not in value:
        value = [key.strip() for key in value.split(",") if key.strip()]
    if isinstance(value, (list, tuple)) and not value:
        raise ValueError("there is no key in it")
    return value


_Positive = Annotated[timedelta, BeforeValidator(_read_duration), Field(gt=timedelta(0), le=timedelta(days=3650))]
_Count = Annotated[int, BeforeValidator(_read_number), Field(ge=1, le=1_000_000)]


def _seconds(seconds: float, text: str) -> Any:
    return Field(default=timedelta(seconds=seconds), description=text)


def _days(days: float, text: str) -> Any:
    return Field(default=timedelta(days=days), description=text)


class Settings(BaseModel):
    """What an operator may turn. Durations are timedeltas; a plain number is seconds, a text may carry ms, s, m, h or d."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    store: str = Field(
        repr=False,
        description="Where jobs are remembered, as a URL: postgresql+psycopg://…, mysql+pymysql://…, sqlite:///…, redis://…?name=…; "
        "django://default for a database of Django's, which is the default where celery_guard.integrations.django is installed. "
        "The password in it is never printed.",
    )
    lease: _Positive = _seconds(
        30,
        "How long an attempt may be silent before another may take its job. It is renewed at a third of it, so a body may run "
        "for as long as it likes. Shorter: crashed jobs come back sooner. Longer: slow databases and frozen processes do not "
        "lose jobs they still run.",
    )
    drain: _Positive = _seconds(30, "How long a worker or relay that is told to stop may take to finish what it holds.")

    relay: bool = Field(
        default=True,
        description="Run a relay inside workers. With False, run it yourself: `celery guard relay`. Without any relay accepted "
        "jobs wait.",
    )
    relay_batch: _Count = Field(default=500, description="How many due jobs a relay takes at once.")
    relay_hold: _Positive = _seconds(
        30,
        "How long a relay may keep the jobs it took before others may take them: the delay if it dies in the middle.",
    )
    poll: _Positive = _seconds(1, "How long an idle relay waits at most before it looks again for jobs that are due.")
    notify: bool = Field(
        default=True,
        description="Wake relays that rest through the database where it can (NOTIFY on PostgreSQL, a list on Redis). Off, they look again after "
        "a while.",
    )
    publish_attempts: _Count = Field(
        default=10,
        description="How often a message that the broker refuses is offered before its job is dead (unpublishable). "
        "A broker that is down does not count.",
    )
    suspect_after: _Positive = _seconds(
        60,
        "How long a published job may go unclaimed before the sweep asks whether its message was lost. Doubled for each "
        "publication.",
    )
    max_publications: _Count = Field(
        default=8, description="How often a job that nobody claims is published before it is dead (never_claimed)."
    )

    key_secret: Annotated[SecretStr, Field(min_length=16)] | None = Field(
        default=None,
        repr=False,
        description="The secret that keys and fingerprints of tasks with Contract.sensitive are hashed with, 16 characters or more, the same for all "
        "publishers. After a change such calls are not known as duplicates of those before it. It is never printed.",
    )
    encryption_keys: Annotated[tuple[SecretStr, ...] | str | Callable[..., Any] | None, BeforeValidator(_read_keys)] = (
        Field(
            default=None,
            repr=False,
            description="Keys for what is encrypted: the first encrypts, every one decrypts. A list (in the environment separated by commas), a "
            "function that returns one, or where it is, as `shop.secrets:keys`; it is called once a process. Needs the extra `encryption`; "
            "`celery-guard keys new` makes a key. They are never printed.",
        )
    )
    encrypt: bool = Field(
        default=False,
        description="Encrypt the messages and results of guarded jobs, and what the failures of tasks with Contract.sensitive say. Give "
        "encryption_keys to every worker, relay and publisher first.",
    )
    log_format: Literal["celery", "json"] = Field(
        default="celery",
        description="How workers and beats format what they log: as Celery is told (worker_log_format), or as JSON, one object a line, with the "
        "job's fields (needs celery-guard[json]).",
    )
    telemetry_flush: _Positive = _seconds(
        2,
        "How long a process that ends (a pool's child, a relay) waits at most for its last spans to be exported. Longer: fewer spans are lost "
        "to a slow collector. Shorter: a collector that is gone holds up less.",
    )

    leaving: bool = Field(
        default=False,
        description="The guard is being taken out. Calls go out as Celery's own messages, without a row, and such messages are run "
        "without one; jobs that have a row are run to their end. Set it for publishers and workers, then ask `celery guard leave`.",
    )

    metrics: str | None = Field(
        default=None,
        description="Where a worker serves metrics for Prometheus: a port on 127.0.0.1, or host:port. They are the whole store's, so one "
        "worker, or `celery guard metrics`, is enough. Needs the extra `prometheus`. A worker that cannot bind the address does not start.",
    )

    payload_limit: Annotated[ByteSize, BeforeValidator(_read_number), Field(ge=1024)] = Field(
        default=ByteSize(1024 * 1024),
        description="Bytes that one message may have as it travels, headers and base64 growth included; larger ones are "
        "refused at enqueue. A text may carry a unit: 256KiB, 1MiB.",
    )

    hold_version: _Positive = _days(
        1,
        "How long a job whose message is newer than the workers that met it, or encrypted with a key that they do not have, is offered again "
        "before it is dead (held_version, held_encryption): the time a roll-out, or its repair after a rollback, may take.",
    )

    crash_base: _Positive = _seconds(
        2, "The upper end of the first delay after a process died under a job; doubled for each crash."
    )
    crash_cap: _Positive = _seconds(60, "No delay after a crash is longer.")
    max_interruptions: _Count = Field(
        default=100,
        description="How often in a row a job may be interrupted by what has nothing to do with it (a worker that is told to stop, a key "
        "that is being taken when the job's end is written) before it is dead (interrupted, held_key). Such an attempt is not counted, and the "
        "first few of them start again at once; the delays after that grow to five minutes, so that 100 take hours of nothing else.",
    )
    sweep_every: _Positive = _seconds(5, "How often lapsed leases, suspects and old rows are looked for.")
    tell_within: _Positive = _seconds(
        60, "How long an attempt that settled its job has to report to Celery before the sweep has it reported again."
    )
    keep: _Positive = _days(
        7,
        "How long ended jobs are kept. Within this time a duplicate is given the stored result; after it the key is free.",
    )
    keep_dead: _Positive = _days(
        90, "How long dead letters, and messages in quarantine, are kept for a person to repair."
    )
    keep_audit: _Positive = _days(400, "How long the audit remembers what operators did: a year, and time to read it.")

    authorize: str | Callable[..., bool] | None = Field(
        default=None,
        description="Who may do what: a function of (actor, action, target) that says yes or no, or where it is, as `shop.rights:authorize`. "
        "Without it the three roles decide: a viewer looks, an operator repairs, an admin also reveals, edits and purges. A tenant's actor "
        "stays within the tenant, whatever the function says.",
    )
    confirm_above: _Count = Field(
        default=100, description="An operator's action on more jobs than this is refused until the number is confirmed."
    )

    @field_validator("store")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if not _URL.match(value):
            raise ValueError("it is no URL such as postgresql+psycopg:///shop")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if self.crash_base > self.crash_cap:
            raise ValueError(f"crash_base ({self.crash_base}) is over crash_cap ({self.crash_cap})")
        return self

    @model_validator(mode="after")
    def _has_keys(self) -> Settings:
        if self.encrypt and self.encryption_keys is None:
            raise ValueError("encrypt is on, and encryption_keys is not set: name at least one key")
        return self

    @property
    def shown_store(self) -> str:
        """The store's URL without its password."""
        return masked(self.store)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Fields as they may be printed and logged."""
        yield "store", self.shown_store
        yield from super().__repr_args__()


def masked(url: str) -> str:
    """The URL with every password in it replaced by ``***``."""
    scheme, separator, rest = url.partition("://")
    question = rest.find("?")
    place, query = (rest, "") if question < 0 else (rest[:question], rest[question:])
    user, at, host = place.rpartition("@")
    if at and ":" in user:
        user = user.partition(":")[0] + ":***"
    return scheme + separator + user + at + host + _SECRET_PARAMETER.sub(r"\1***", query)


def read_settings(arguments: Mapping[str, Any], conf: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Read the settings: an argument wins over ``conf`` (names without prefix), ``conf`` over ``CELERY_GUARD_*``.

    None says nothing, in arguments and ``conf``.

    Raises:
        SettingError: a name is unknown, a value makes no sense, or ``store`` is missing; says where it came from.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, value, origin in _said(arguments, conf, environ):
        refuse_unknown(name, origin)
        values[name] = value
        origins[name] = origin
    if "store" not in values:
        raise SettingError(
            "store: found nothing, expected the URL of the database that remembers jobs. To repair: Guard(app, store='…'), "
            f"app.conf.guard_store, or {ENVIRONMENT_PREFIX}STORE."
        )
    try:
        return Settings(**values)
    except ValidationError as error:
        message = _explain(error, values, origins)
    # Outside the handler: pydantic's own text shows the values, and the store's has a password in it.
    raise SettingError(message)


def _said(
    arguments: Mapping[str, Any], conf: Mapping[str, Any], environ: Mapping[str, str]
) -> Iterator[tuple[str, Any, str]]:
    """Everything that was said, the weakest voice first."""
    for variable, value in environ.items():
        if variable.startswith(ENVIRONMENT_PREFIX):
            yield variable[len(ENVIRONMENT_PREFIX) :].lower(), value, f"the environment variable {variable}"
    for name, value in conf.items():
        if value is not None or name not in NAMES:
            yield name, value, f"app.conf.guard_{name}"
    for name, value in arguments.items():
        if value is not None or name not in NAMES:
            yield name, value, f"Guard({name}=…)"


_DURATIONS = "expected seconds, or a number with a unit: 500ms, 20s, 5m, 2h, 7d"


def _explain(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    lines = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        name = str(problem["loc"][0]) if problem["loc"] else ""
        said = f"{name} (from {origins[name]}): found {_shown(name, values[name])}; " if name else ""
        no_duration = problem["type"] == "time_delta_parsing"
        lines.append(said + (_DURATIONS if no_duration else problem["msg"].removeprefix("Value error, ")))
    return "; ".join(lines) + "."


def _shown(name: str, value: Any) -> str:
    if name in ("store", "key_secret", "encryption_keys"):
        return "a value that is not printed"
    text = repr(value) if isinstance(value, (str, int, float, timedelta)) else type(value).__qualname__
    return text if len(text) <= 80 else f"{text[:77]}..."
