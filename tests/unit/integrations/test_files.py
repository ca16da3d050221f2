"""The embedded broker: what kombu's file transport loses when processes are killed, this one does not."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Exchange, Producer, Queue

from celery_guard.integrations.celery import files

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def url(tmp_path: Path) -> str:
    files.register()
    return f"files://localhost{tmp_path}/broker"


@pytest.fixture
def channel(url: str) -> Iterator[Any]:
    with Connection(url) as connection:
        yield connection.channel()


def put(channel: Any, *numbers: int) -> None:
    producer = Producer(channel)
    for number in numbers:
        producer.publish(number, exchange="", routing_key="q")


def got(channel: Any) -> int | None:
    """What the next message says; None where there is none. It stays unacknowledged."""
    message = channel.basic_get("q")
    return None if message is None else message.decode()


def names(channel: Any, part: str) -> list[str]:
    return sorted(os.listdir(channel.folder / part))


def test_messages_come_in_the_order_they_were_put(channel: Any) -> None:
    put(channel, *range(20))
    assert [got(channel) for _ in range(21)] == [*range(20), None]


def test_the_folder_is_the_path_of_the_url(channel: Any, tmp_path: Path) -> None:
    assert channel.folder == tmp_path / "broker"


def test_a_message_is_not_there_before_it_is_whole(channel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    write_text = Path.write_text

    def watched(path: Path, text: str, *rest: Any, **more: Any) -> int:
        answer = write_text(path, text[: len(text) // 2], *rest, **more)
        seen.append(names(channel, "queue"))
        write_text(path, text, *rest, **more)
        return answer

    monkeypatch.setattr(Path, "write_text", watched)
    put(channel, 1)
    assert seen == [[]]
    assert got(channel) == 1


def test_an_acknowledged_message_leaves_nothing(channel: Any) -> None:
    put(channel, 1)
    channel.basic_get("q").ack()
    assert names(channel, "queue") == names(channel, "taken") == names(channel, "new") == []


def test_a_rejected_message_leaves_nothing(channel: Any) -> None:
    put(channel, 1)
    channel.basic_get("q").reject()
    assert names(channel, "queue") == names(channel, "taken") == []


def test_a_requeued_message_comes_again_once_after_those_that_wait(url: str, channel: Any) -> None:
    put(channel, 1)
    message = channel.basic_get("q")
    put(channel, 2)
    message.requeue()
    with Connection(url) as other:
        taker = other.channel()
        assert [got(taker) for _ in range(3)] == [2, 1, None]


def test_a_message_that_needs_no_acknowledgement_is_not_kept(channel: Any) -> None:
    heard: list[int] = []
    channel.basic_consume("q", no_ack=True, callback=lambda message: heard.append(message.decode()), consumer_tag="c")
    put(channel, 1)
    channel.connection.client.drain_events(timeout=5)
    assert (heard, names(channel, "taken")) == ([1], [])


def test_closing_a_channel_gives_back_what_it_has_taken(url: str, channel: Any) -> None:
    put(channel, 1)
    with Connection(url) as other:
        assert got(other.channel()) == 1
        assert got(channel) is None
    assert names(channel, "taken") == []
    assert [got(channel), got(channel)] == [1, None]


def test_what_a_killed_process_had_taken_comes_back(url: str, channel: Any) -> None:
    put(channel, 1, 2)
    taker = FORK.Process(target=_take_and_die, args=(url,))
    taker.start()
    taker.join(30)
    assert taker.exitcode == -signal.SIGKILL
    assert len(names(channel, "taken")) == 1
    assert sorted(filter(None, (got(channel) for _ in range(3)))) == [1, 2]


def _take_and_die(url: str) -> None:
    got(Connection(url).channel())
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_living_process_has_taken_stays_with_it(url: str, channel: Any) -> None:
    put(channel, 1)
    with Connection(url) as other:
        taker = other.channel()
        message = taker.basic_get("q")
        # as if nobody had looked for a long time
        channel._looked = -1e9
        assert got(channel) is None
        message.ack()


def test_every_message_goes_to_one_taker(url: str, channel: Any) -> None:
    put(channel, *range(300))
    answers: Any = FORK.Queue()
    takers = [FORK.Process(target=_take_all, args=(url, answers)) for _ in range(3)]
    for taker in takers:
        taker.start()
    taken = [number for _ in takers for number in answers.get(timeout=60)]
    for taker in takers:
        taker.join(30)
    assert sorted(taken) == list(range(300))


def _take_all(url: str, answers: Any) -> None:
    taken = []
    with Connection(url) as connection:
        channel = connection.channel()
        while (message := channel.basic_get("q")) is not None:
            taken.append(message.decode())
            message.ack()
    answers.put(taken)


def test_a_queue_says_its_size_and_can_be_purged(channel: Any) -> None:
    put(channel, 1, 2, 3)
    assert channel.queue_declare("q", passive=True).message_count == 3
    assert channel.queue_purge("q") == 3
    assert channel.queue_declare("q", passive=True).message_count == 0


def test_a_queue_whose_name_ends_like_another_is_another(channel: Any) -> None:
    Producer(channel).publish(1, exchange="", routing_key="other.q")
    assert got(channel) is None
    assert channel.basic_get("other.q").decode() == 1


def test_everybody_bound_to_a_fanout_exchange_gets_a_copy(url: str, channel: Any) -> None:
    with Connection(url) as other:
        for bound, name in ((channel, "a"), (other.channel(), "b")):
            Queue(name, Exchange("news", type="fanout"), channel=bound).declare()
        Producer(channel).publish("x", exchange=Exchange("news", type="fanout"))
        assert [channel.basic_get(name).decode() for name in ("a", "b")] == ["x", "x"]


def test_an_exchange_that_is_made_by_two_at_once_is_never_seen_empty(
    url: str, channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is just making it: its file exists between our look and our writing."""
    link = os.link

    def slower(source: Any, target: Any) -> None:
        with Connection(url) as other:
            monkeypatch.setattr(os, "link", link)
            Queue("b", Exchange("news", type="fanout"), channel=other.channel()).declare()
        link(source, target)

    monkeypatch.setattr(os, "link", slower)
    Queue("a", Exchange("news", type="fanout"), channel=channel).declare()
    assert {entry.queue for entry in channel.get_table("news")} == {"a", "b"}
