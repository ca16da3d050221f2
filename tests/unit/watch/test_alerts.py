"""The alerts and the dashboard, as files that Prometheus and Grafana take, and that CI can compare."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from click.testing import Result

from celery_guard import Contract, GuardedTask
from celery_guard.integrations.celery.metrics import make_registry
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.watch.alerts import RULES, rules_for, written
from celery_guard.watch.dashboard import PANELS

ROOT = Path(__file__).parents[3]


def schedule(last: str, expected: str, labels: str = "") -> dict[str, str]:
    """When a schedule last succeeded, and since when it must have run."""
    names = ("schedule_last_success_timestamp_seconds", "schedule_expected_since_timestamp_seconds")
    return {f'{name}{{schedule="nightly"{labels}}}': of for name, of in zip(names, (last, expected), strict=True)}


#: What Prometheus is told, minute by minute, and the one alert that must fire of it after half an hour.
CASES = {
    "GuardStoreDown": ({"store_up": "0x60"}, {}),
    "GuardMetricsMissing": ({"relays_alive": "1x60"}, {}),
    "GuardNoRelay": ({"store_up": "1x60", "relays_alive": "0x60"}, {}),
    "GuardRelayBehind": ({"store_up": "1x60", "relay_lag_seconds": "0+60x60"}, {}),
    "GuardOldestPending": (
        {"store_up": "1x60", 'oldest_job_age_seconds{state="pending",queue="mail"}': "0+60x60"},
        {"queue": "mail"},
    ),
    "GuardUnclaimed": (
        {"store_up": "1x60", 'oldest_job_age_seconds{state="sent",queue="mail"}': "0+60x60"},
        {"queue": "mail"},
    ),
    "GuardDeadLetters": ({"store_up": "1x60", 'dead_letters{owner="payments"}': "0x10 3x50"}, {"owner": "payments"}),
    "GuardCrashLoop": ({"store_up": "1x60", 'attempts_crashed_total{task="pay"}': "0+1x60"}, {"task": "pay"}),
    "GuardLateRenewals": ({"store_up": "1x60", 'leases_renewed_late_total{task="pay"}': "0+1x60"}, {}),
    "GuardDuplicateStorm": (
        {
            "store_up": "1x60", 'attempts_started_total{task="pay"}': "0+5x60",
            'duplicates_total{task="pay",at="delivery"}': "0+30x60",
        },
        {"task": "pay"},
    ),
    "GuardKeyConflicts": ({"store_up": "1x60", 'conflicts_total{task="pay"}': "0+1x60"}, {"task": "pay"}),
    "GuardScheduleLate": (schedule("10x90", "20x90"), {"schedule": "nightly"}),
    "GuardReplayWaits": ({"store_up": "1x60", 'open_replays{state="stopped"}': "0x10 1x50"}, {"state": "stopped"}),
}  # fmt: skip

#: Those that look an hour back.
AT = {"GuardScheduleLate": "70m"}

#: A busy store of which nothing is wrong.
WELL = {
    "store_up": "1x60", "relays_alive": "2x60", "relay_lag_seconds": "3x60", 'dead_letters{owner="payments"}': "0x60",
    'oldest_job_age_seconds{state="pending",queue="mail"}': "4x60", 'attempts_crashed_total{task="pay"}': "7x60",
    'oldest_job_age_seconds{state="sent",queue="mail"}': "60x60", 'attempts_started_total{task="pay"}': "0+500x60",
    'duplicates_total{task="pay",at="enqueue"}': "0+50x60", 'conflicts_total{task="pay"}': "2x60",
    'open_replays{state="running"}': "1x60", 'open_replays{state="stopped"}': "0x60", **schedule("30x90", "20x90"),
}  # fmt: skip


def promtool(folder: Path, *words: str) -> str:
    """Run promtool (Debian's package prometheus); skips, and fails in CI, where there is none."""
    program = shutil.which("promtool")
    if program is None:
        missing = "needs promtool, which is in the package prometheus"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def case(
    name: str, series: dict[str, str], labels: dict[str, str], fires: bool, at: str = "30m", every: str = "1m"
) -> dict[str, Any]:
    """A test of promtool's: these series, and whether the alert fires of them."""
    [rule] = [rule for rule in rules_for(["payments"]) if rule.name == name and rule.labels.get("owner") != "nobody"]
    fired = {
        "exp_labels": {"severity": rule.severity, **labels},
        "exp_annotations": None,
    }
    return {
        "name": name,
        "interval": every,
        "input_series": [{"series": f"celery_guard_{one}", "values": values} for one, values in series.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": name, "exp_alerts": [fired] if fires else []}],
    }


def test_prometheus_takes_the_rules(run: Callable[..., Result], tmp_path: Path) -> None:
    assert run("alerts", str(tmp_path / "rules.yml")).exit_code == 0
    assert f"SUCCESS: {len(RULES) + 2} rules found" in promtool(tmp_path, "check", "rules", "rules.yml")


def judge(folder: Path, tests: list[dict[str, Any]], every: str = "1m") -> None:
    """Have promtool run the tests. What an alert says is no part of them."""
    plain = re.sub(r"        annotations:\n(?:          .*\n)+", "", written(rules_for(["payments"]), ""))
    (folder / "rules.yml").write_text(plain)
    (folder / "tests.yml").write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": every, "tests": tests})
    )
    assert "SUCCESS" in promtool(folder, "test", "rules", "tests.yml")


def test_each_alert_fires_of_what_it_is_for_and_none_of_a_store_that_is_well(tmp_path: Path) -> None:
    assert {rule.name for rule in rules_for([])} == set(CASES)
    judge(
        tmp_path,
        [case(name, series, labels, True, AT.get(name, "30m")) for name, (series, labels) in CASES.items()]
        + [case(name, WELL, {}, False, AT.get(name, "30m")) for name in CASES],
    )


#: An hour into the test the schedule is to run.
AT_ONE = "50x59 3600x300"


@pytest.mark.parametrize(
    ("series", "at", "fires"),
    [
        (schedule("60x300", AT_ONE), "150m", True),
        (schedule("60x300", AT_ONE), "110m", False),
        (schedule("60x61 3700x300", AT_ONE), "150m", False),
        (schedule("0x300", AT_ONE), "150m", True),
        (schedule("0x300", "50x300"), "150m", False),
        (
            schedule("60x99", "50x59 3600x40", ',instance="old"')
            | schedule("_x100 60x200", "_x100 3600x200", ',instance="new"'),
            "150m",
            True,
        ),
    ],
    ids=["late", "not for long", "in time", "never", "never, and not yet to run", "metrics are served elsewhere since"],
)
def test_a_schedule_is_late_an_hour_after_it_was_to_run(
    tmp_path: Path, series: dict[str, str], at: str, fires: bool
) -> None:
    judge(tmp_path, [case("GuardScheduleLate", series, {"schedule": "nightly"}, fires, at)])


def test_a_schedule_that_ran_once_is_late_for_as_long_as_it_does_not_run_again(tmp_path: Path) -> None:
    weeks, labels = "50x9 3600x3000", {"schedule": "nightly"}
    ran = case("GuardScheduleLate", schedule("60x3000", weeks), labels, True, "190h", "4m")
    never = case("GuardScheduleLate", schedule("0x3000", weeks), labels, False, "190h", "4m")
    judge(tmp_path, [ran, never], "1h")


def test_every_alert_has_its_section_in_the_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/runbook/alerts.md").read_text(), re.M)
    assert sorted(headings) == sorted(rule.section for rule in rules_for([]))


def test_the_rules_are_stale_when_a_contract_has_another_owner(
    app: Celery, run: Callable[..., Result], tmp_path: Path
) -> None:
    file = str(tmp_path / "rules.yml")
    assert run("alerts", file, "--check").exit_code == 1
    run("alerts", file)
    assert run("alerts", file, "--check").exit_code == 0
    assert 'owner: "payments"' in Path(file).read_text()

    def refund() -> None: ...

    app.task(refund, name="shop.refund", base=GuardedTask, shared=False, contract=Contract(owner="refunds"))
    stale = run("alerts", file, "--check")
    assert (stale.exit_code, "is stale" in stale.output) == (1, True)
    run("alerts", file)
    assert run("alerts", file, "--check").exit_code == 0


def test_the_dashboard_is_stale_when_it_was_changed(run: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "board.json"
    run("dashboard", str(file))
    assert run("dashboard", str(file), "--check").exit_code == 0
    file.write_text(file.read_text().replace("relay_lag", "lag"))
    assert run("dashboard", str(file), "--check").exit_code == 1


def test_the_picture_in_the_how_to_has_every_panel() -> None:
    drawn = re.findall(r'font-size="13">(.*?)</text>', (ROOT / "docs/howto/monitor.svg").read_text())
    assert [unescape(title) for title in drawn] == [panel.title for panel in PANELS]


def test_every_picture_and_every_rule_asks_for_metrics_that_there_are(app: Celery, run: Callable[..., Result]) -> None:
    families = {family.name for family in make_registry(runtime_of(app)).collect()}
    endings = ("_total", "_bucket", "_count", "_sum")
    panels = json.loads(run("dashboard", "-").output)["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(panels) == len(PANELS)
    names = set(re.findall(r"celery_guard_\w+", " ".join(asked) + run("alerts", "-").output))
    assert names
    for name in names:
        plain = next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)
        assert plain in families, name
