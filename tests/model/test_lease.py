"""The lease, the fence and the telling, in every order of every step: no promise breaks; and each of the rules is needed."""

from __future__ import annotations

import pytest

from .checker import explore
from .variants import LOOKED_AT, VARIANTS, Variant
from .world import World


@pytest.mark.parametrize("name", LOOKED_AT)
def test_no_order_of_steps_and_faults_breaks_a_promise(name: str) -> None:
    result = explore(World(LOOKED_AT[name]))
    print(f"{name}: {result.states} states, {result.steps} steps, {result.depth} deep")
    assert result.found is None, str(result.found)
    assert result.states > 50_000, "less was looked at than is said in docs/explanation/model.md"


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.wrong.name.lower())
def test_a_rule_that_is_left_out_is_missed(variant: Variant) -> None:
    found = explore(World(variant.limits, variant.wrong)).found
    assert found is not None
    print(found)
    assert found.promise == variant.breaks
