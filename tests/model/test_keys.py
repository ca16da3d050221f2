"""Jobs of one key, in every order: one outcome, and a follower's is its holder's."""

from __future__ import annotations

import pytest

from .keys import BREAKS, Keys, Wrong, explore


@pytest.mark.parametrize("replays", [0, 1])
def test_no_order_of_calls_of_one_key_breaks_a_promise(replays: int) -> None:
    states, found = explore(Keys(replays=replays))
    print(f"keys, {replays} replays: {states} states")
    assert found is None, str(found)
    assert states > (400, 4_000)[replays], "less was looked at than is said in docs/explanation/model.md"


@pytest.mark.parametrize("wrong", Wrong, ids=lambda wrong: wrong.name.lower())
def test_a_rule_of_keys_that_is_left_out_is_missed(wrong: Wrong) -> None:
    _, found = explore(Keys(wrong, replays=int(wrong is Wrong.REPLAY_TAKES_KEY)))
    assert found is not None
    print(found)
    assert found.promise == BREAKS[wrong]
