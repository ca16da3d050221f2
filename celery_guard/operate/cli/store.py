"""``guard store``: the tables of the store."""

from __future__ import annotations

import click

from .target import Target, pass_target

__all__ = ["store"]


@click.group()
def store() -> None:
    """The store's tables."""


@store.command()
@pass_target
def upgrade(target: Target) -> None:
    """Make the tables, or bring them to this version."""
    target.store.upgrade()
    target.store.check()
    target.terminal.say(f"The tables in {target.settings.shown_store} are those of this version.")


@store.command()
@pass_target
def check(target: Target) -> None:
    """Is it reachable, with the tables of this version?"""
    target.store.check()
    target.terminal.say(f"The tables in {target.settings.shown_store} are those of this version.")


@store.command()
@pass_target
def sql(target: Target) -> None:
    """Print the upgrade, for people who run their own."""
    click.echo(target.store.upgrade_sql().rstrip())
