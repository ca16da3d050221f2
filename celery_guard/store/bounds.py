"""Bounds that every store keeps and nobody sets: how long what few ask for is kept, and how often a thing is looked at in one go.

What an operator may turn is a setting (:mod:`celery_guard.settings`), and comes in with the call.
"""

from __future__ import annotations

from datetime import timedelta

__all__ = [
    "DOUBLINGS",
    "KEEP_CANCELLED",
    "KEEP_CARRIED",
    "KEEP_HANDLED",
    "KEEP_REFUSED",
    "SILENT",
    "SLOTS",
    "TAKE_ROUNDS",
]

#: A job that was cancelled while it waited.
KEEP_CANCELLED = timedelta(days=7)

#: A message of a task without a guard, once it was published: for people who look.
KEEP_CARRIED = timedelta(hours=1)

#: A message in quarantine that a person has released or discarded.
KEEP_HANDLED = timedelta(days=30)

#: What follows a job and could not be accepted: a dead letter.
KEEP_REFUSED = timedelta(days=90)

#: A slot or process that has said nothing for so long is forgotten.
SILENT = timedelta(days=1)

#: How many relays work on one store at the same time; the others wait for a slot.
SLOTS = 2

#: What is published again and again is looked at ever later, up to 2 to this power.
DOUBLINGS = 10

#: Rounds of one take, where followers fill the first ones.
TAKE_ROUNDS = 10
