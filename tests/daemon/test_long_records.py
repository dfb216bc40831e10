"""Records of hundreds of thousands of tokens: made in pieces, given up with whoever wanted them, whole in the log."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import trio
import trio.testing

from superfluid.daemon.activity import Activity
from superfluid.daemon.book import PAGE
from superfluid.protocol import requests, responses
from superfluid.protocol.codes import Role
from superfluid.protocol.records import Appended, Created, Entry, Event, Ingested, Rerooted, size_of
from superfluid.sessions.state import SessionState
from superfluid.transports.conversation import LONG, MANY, Conversation, is_large
from tests.feeds.house import House, run
from tests.support.daemon import DEADLINE, GREEDY

PIECES = 40
TEXT = "Some words that go on and on.\n" * (PIECES * 65536 // 30)


def put(house: House, verb: str, session: int):
    appending = house.cases.appending
    return appending.append(session, TEXT, ()) if verb == "append" else appending.message(session, Role.USER, TEXT)


@pytest.mark.parametrize("verb", ["append", "message"])
def test_nobody_goes_on_with_a_text_that_nobody_waits_for(tmp_path, verb):
    async def story(house: House) -> None:
        vocabulary = house.cases.conversing.model.vocabulary
        look, looks = vocabulary.between, 0
        session = await house.cases.branching.create(None, GREEDY)
        with trio.CancelScope() as scope:

            def between() -> None:
                nonlocal looks
                looks += 1
                if looks == 2:
                    trio.from_thread.run_sync(scope.cancel)
                look()

            vocabulary.between = between
            try:
                await put(house, verb, session)
            finally:
                vocabulary.between = look
        assert scope.cancelled_caught
        assert looks < PIECES // 2
        assert (await house.state(session)).events == 1
        assert (await house.cases.appending.append(session, "short", ())).event_id == 1

    run(tmp_path, story)


@pytest.mark.parametrize("request_of", [partial(requests.Append, span=()), partial(requests.AppendMessage, role=1)])
def test_a_client_that_leaves_takes_its_long_text_along_and_no_short_one(tmp_path, request_of):
    async def story(house: House) -> None:
        vocabulary = house.cases.conversing.model.vocabulary
        look, looks = vocabulary.between, 0
        gone, sent = trio.Event(), []

        async def send(response: responses.Response) -> None:
            sent.append(response)

        def between() -> None:
            nonlocal looks
            looks += 1
            if looks == 2:
                trio.from_thread.run_sync(gone.set)
            look()

        conversation = Conversation(house.cases, Activity(), send, gone.wait)
        session = await house.cases.branching.create(None, GREEDY)
        vocabulary.between = between
        try:
            async with trio.open_nursery() as nursery:
                with pytest.raises(trio.BrokenResourceError):
                    await conversation.handle(request_of(session=session, text=TEXT), nursery)
                assert looks < PIECES // 2
                assert not sent
                await conversation.handle(request_of(session=session, text="short"), nursery)
        finally:
            vocabulary.between = look
        assert [response.event.event_id for response in sent] == [1]

    run(tmp_path, story)


def test_a_long_record_is_the_same_in_memory_in_the_log_and_in_a_snapshot(tmp_path):
    async def story(house: House) -> None:
        session = await house.cases.branching.create(None, GREEDY)
        text = TEXT[: 5 * 65536]
        words = house.cases.conversing.model.vocabulary.tokenize_long(text, special=True)
        event = await house.cases.appending.append(session, text, ())
        assert event.body == Appended(text, tuple(words))
        ids = tuple(number * 7 % 200_000 for number in range(300_000))
        await house.cases.appending.append(session, None, ids)
        await house.cases.appending.message(session, Role.USER, "And now?")

        folded = SessionState(session)
        for event in await house.book.read(session, 0):
            folded.apply(event)
        assert list(folded.tokens[: len(words) + len(ids)]) == [*words, *ids]
        assert await house.state(session) == folded
        assert await house.book.log.ask(lambda log: log.last_snapshot(session)) == 3
        house.book._states.clear()
        assert await house.state(session) == folded

    run(tmp_path, story)


def test_forks_of_a_long_session_begin_with_a_snapshot_of_their_own(tmp_path):
    async def story(house: House) -> None:
        session = await house.cases.branching.create(None, GREEDY)
        await house.cases.appending.append(session, None, tuple(range(1, 300_000)))
        child = await house.cases.branching.fork(session, 2, None)
        made = await house.state(child)
        assert await house.book.log.ask(lambda log: log.last_snapshot(child)) == made.events == 3
        house.book._states.clear()
        assert await house.state(child) == made

    run(tmp_path, story)


def events(*bodies):
    return tuple(Event(place, 1, 0, body) for place, body in enumerate(bodies))


def test_what_takes_long_to_encode_is_known_by_its_size():
    long = Appended(None, (7,) * LONG)
    (event,) = events(long)
    for response in (
        responses.Committed(event),
        responses.Delta(event),
        responses.SubEvent(1, event),
        responses.Events((event,)),
        responses.Generated((event,), 1, 1, 0),
        responses.Events(events(*[Appended("x" * (LONG // 8), ())] * 8)),
        responses.Events(events(*[Created(None, GREEDY)] * MANY)),
    ):
        assert is_large(response)
    (small,) = events(Appended("some text", (1, 2, 3)))
    for response in (
        responses.Committed(small),
        responses.Events((small,) * 9),
        responses.Ack(),
        responses.Text("x"),
    ):
        assert not is_large(response)


def test_the_size_of_a_record_is_that_of_all_that_it_holds():
    entries = (Entry("abc", (1, 2)), Entry("de", ()))
    assert size_of(Ingested(1, (), entries, 0, 0)) == 7
    assert size_of(Appended(None, (1, 2))) == 2
    assert size_of(Rerooted(1, ((0, Created(None, GREEDY)), (1, Appended("ab", (1, 2, 3)))))) == 7


def test_who_reads_little_does_not_wait_for_one_who_reads_much(tmp_path):
    async def story(house: House) -> None:
        long, short = [await house.cases.branching.create(None, GREEDY) for _ in range(2)]
        async with house.book.writing(long) as state:
            for _ in range(3):
                await house.book.commit_one(state, *[Appended("word", (number,)) for number in range(660)])
        house.book._states.clear()
        assert await house.book.log.ask(lambda log: log.last_snapshot(long)) < 1981 - PAGE
        done = []

        async def note(name: str, work) -> None:
            await work
            done.append(name)

        for much in (house.book.read(long, 0), house.state(long)):
            done.clear()
            free = threading.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(house.book.log.ask, lambda log, free=free: free.wait(DEADLINE))
                for name, work in (("much", much), ("little", house.book.read(short, 0))):
                    await trio.testing.wait_all_tasks_blocked()
                    nursery.start_soon(note, name, work)
                await trio.testing.wait_all_tasks_blocked()
                free.set()
            assert done == ["little", "much"]
        assert (await house.state(long)).events == len(await house.book.read(long, 0)) == 1981

    run(tmp_path, story)
