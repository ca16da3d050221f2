"""Real ``celery worker`` processes: started in a session of their own, killed by number, and all ended when the demo ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

__all__ = ["Node", "Nodes", "children"]

_CONCURRENCY = 2
#: How long a node may take to end in order before it is killed (seconds).
_PATIENCE = 30
#: So often nodes may end by themselves before that is the finding.
_ENDS = 10
#: Lines of its log that are shown then.
_SHOWN = 15


class Node:
    """One worker: a main process, the pool's children, and a relay where the app is guarded."""

    def __init__(self, name: str, app: str, environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "celery", "-A", app, "worker", "--pool", "prefork", "--concurrency", str(_CONCURRENCY),
                    "--hostname", f"{name}@demo", "--include", "celery_guard.operate.demo.faults", "--loglevel", "WARNING",
                    "--without-gossip", "--without-mingle", "--without-heartbeat",
                ],
                cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The main process."""
        return self._process.pid

    def ended(self) -> bool:
        """Whether the main process is gone."""
        return self._process.poll() is not None

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_SHOWN:])

    def ask(self) -> None:
        """Ask for a warm shutdown."""
        if not self.ended():
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL for the whole node. Its main process leads the session that all of it is in."""
        with suppress(ProcessLookupError):  # all of it has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self, seconds: float) -> None:
        """Wait for the end; kill what is left of the node by then."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()


class Nodes:
    """The nodes of one import. Leaving the context ends them all, whatever the reason."""

    def __init__(self, count: int, start: Callable[[str], Node], relays: Callable[[], Sequence[int]]) -> None:
        self._start = start
        self._relays = relays
        self._nodes = [start(f"node{number}") for number in range(1, count + 1)]
        #: Nodes that ended without having been told or killed.
        self.ended_alone = 0

    def __enter__(self) -> Nodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self._nodes:
            node.kill()

    def keep_up(self) -> list[str]:
        """Start what has ended again, as any supervisor would; their names. Raises ``RuntimeError`` when that does not help.

        Celery ends a node itself when a process of its pool dies while it boots.
        """
        started = []
        for place, node in enumerate(self._nodes):
            if node.ended():
                node.kill()
                self.ended_alone += 1
                if self.ended_alone > _ENDS:
                    raise RuntimeError(f"{node.name} ended again and again. Its log ends with:\n{node.last_words()}")
                self._nodes[place] = self._start(node.name)
                started.append(node.name)
        return started

    def kill(self, kind: str, draw: random.Random) -> str | None:
        """Kill one process, or one node; what was killed, in words. None if there is none of that kind at this moment."""
        node = draw.choice(self._nodes)
        if kind == "node":
            pid = node.pid
            node.kill()
            self._nodes[self._nodes.index(node)] = self._start(node.name)
            return f"{node.name}, all of it (pid {pid})"
        relays = set(self._relays())
        all_children = [(node.name, pid) for node in self._nodes for pid in children(node.pid)]
        found = [(name, pid) for name, pid in all_children if (pid in relays) is (kind == "relay")]
        if not found:
            return None
        name, pid = draw.choice(found)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
        return f"a {'relay' if kind == 'relay' else 'pool process'} of {name} (pid {pid})"

    def stop(self) -> None:
        """End all in order."""
        for node in self._nodes:
            node.ask()
        for node in self._nodes:
            node.wait(_PATIENCE)


def children(pid: int) -> list[int]:
    """The processes that this one has started and that are alive."""
    if Path(f"/proc/self/task/{os.getpid()}/children").exists():
        try:
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            return []
    answer = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [line.split() for line in answer.stdout.splitlines()]
    return [int(child) for child, parent in pairs if int(parent) == pid]
