"""Completion in a shell: the script is printed, and what it calls answers with the words."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from celery_guard.operate.cli.main import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed_without_an_app(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell], prog_name="celery-guard")
    assert done.exit_code == 0
    assert f"_CELERY_GUARD_COMPLETE={shell}_complete" in done.output


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("celery-guard jo", "jobs"), ("celery-guard jobs wa", "watch"), ("celery-guard jobs list --sta", "--state")],
)
def test_words_and_options_are_completed(typed: str, offered: str) -> None:
    environment = {
        "_CELERY_GUARD_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1),
    }  # fmt: skip
    done = CliRunner().invoke(
        main, [], prog_name="celery-guard", complete_var="_CELERY_GUARD_COMPLETE", env=environment
    )
    assert done.output.splitlines() == [f"plain,{offered}"]
