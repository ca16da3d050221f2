"""The checker: walks through every state that can be reached, in order of distance, and says the shortest way to what may not be."""

from __future__ import annotations

import gc
from collections import deque
from dataclasses import dataclass

from .moment import State, canonical
from .world import Violation, World

__all__ = ["Found", "Result", "explore"]


@dataclass(frozen=True)
class Found:
    """A promise that does not hold, and the shortest way there."""

    promise: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        steps = "\n".join(f"{number:4}. {words}" for number, words in enumerate(self.trace, 1))
        return f"violated: {self.promise}\n{steps}"


@dataclass(frozen=True)
class Result:
    """What was looked at; ``found`` is None where every promise holds."""

    states: int
    steps: int
    depth: int
    found: Found | None


def explore(world: World) -> Result:
    """Every state, breadth first; then whether every job comes to rest from each of them once faults have stopped."""
    # nothing of this is garbage before its end, and looking for garbage would take half of the time
    collects = gc.isenabled()
    gc.disable()
    try:
        return _explore(world)
    finally:
        if collects:
            gc.enable()


def _explore(world: World) -> Result:
    start = world.limits.start()
    number: dict[State, int] = {start: 0}
    came: list[tuple[int, str]] = [(-1, "")]
    depth = [0]
    waiting = deque([start])
    steps = 0
    while waiting:
        now = waiting.popleft()
        here = number[now]
        try:
            for words, after in world.steps(now):
                steps += 1
                after = canonical(after)
                if after not in number:
                    number[after] = len(came)
                    came.append((here, words))
                    depth.append(depth[here] + 1)
                    waiting.append(after)
        except Violation as violation:
            found = Found(violation.promise, (*_way(came, here), violation.step))
            return Result(len(came), steps, depth[here] + 1, found)
    return Result(len(came), steps, depth[-1], _restless(world, number, came))


def _restless(world: World, number: dict[State, int], came: list[tuple[int, str]]) -> Found | None:
    """A state from which a job may never come to rest though faults have stopped: stuck, or going in a circle.

    Time then passes only when nobody has anything to do, so a circle would be one that processes walk by themselves.
    """
    after: list[list[int]] = [[] for _ in came]
    before: list[list[int]] = [[] for _ in came]
    stuck: list[int] = []
    for now, here in number.items():
        nexts = [number[canonical(state)] for _, state in world.healed(now)]
        if not nexts and not world.resting(now):
            stuck.append(here)
        after[here] = nexts
        for there in nexts:
            before[there].append(here)
    if stuck:
        return Found("every job ends once faults stop", (*_way(came, min(stuck)), "and nothing happens any more"))
    left = [len(nexts) for nexts in after]
    ended = [here for here, count in enumerate(left) if not count]
    done = 0
    while ended:
        there = ended.pop()
        done += 1
        for here in before[there]:
            left[here] -= 1
            if not left[here]:
                ended.append(here)
    if done < len(came):
        circling = next(here for here, count in enumerate(left) if count)
        return Found("every job ends once faults stop", (*_way(came, circling), "and so on, in a circle"))
    return None


def _way(came: list[tuple[int, str]], here: int) -> tuple[str, ...]:
    words = []
    while here > 0:
        here, word = came[here]
        words.append(word)
    return tuple(reversed(words))
