"""`/web/ws`: order, streams, subscriptions, frames of every kind, and clients that leave or do not read."""

import json

import pytest
import trio

from tests.web.server import ask, eventually, hear, run, say


def test_one_request_at_a_time_in_order(web):
    session = web.session()

    async def talk():
        async with web.socket() as ws:
            await say(ws, {"Generate": {"session": session, "max_tokens": 8}})
            await say(ws, {"AppendMessage": {"session": session, "role": 1, "text": "Go on."}})
            await say(ws, {"Generate": {"session": session, "max_tokens": 4}})
            await say(ws, "List")
            kinds, tokens = [], []
            while not kinds or kinds[-1] != "Sessions":
                ((kind, fields),) = (await hear(ws)).items()
                kinds.append(kind)
                if kind == "Generated":
                    tokens.append(fields["tokens_generated"])
            answers = [kind for kind in kinds if kind != "Delta"]
            assert answers == ["Generated", "Committed", "Generated", "Sessions"]
            assert kinds[0] == "Delta"
            assert tokens == [8, 4]

    run(talk)


def test_deltas_are_the_events_of_the_summary(web):
    session = web.session()

    async def talk():
        async with web.socket() as ws:
            await say(ws, {"Generate": {"session": session, "max_tokens": 40}})
            deltas = []
            while "Delta" in (reply := await hear(ws)):
                deltas.append(reply["Delta"]["event"])
            assert reply["Generated"]["events"] == deltas
            assert deltas == web.read(session)[-len(deltas) :]

    run(talk)


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1]", "expected one Request"),
        ('{"Frobnicate":{}}', "no Request"),
        ('{"Cancel":{}}', ".Cancel.session: missing"),
        (b"\xff\xfe", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_frame_that_is_no_request(web, frame, says):
    async def talk():
        async with web.socket() as ws:
            await ws.send_message(frame)
            await say(ws, "List")
            message = (await hear(ws))["Err"]["message"]
            assert message.startswith("invalid request frame:")
            assert says in message
            assert list(await hear(ws)) == ["Sessions"]

    run(talk)


def test_binary_frames_are_requests_and_replies_are_text(web):
    async def talk():
        async with web.socket() as ws:
            await ws.send_message(b'"Tree"')
            reply = await ws.get_message()
            assert isinstance(reply, str)
            assert list(json.loads(reply)) == ["Tree"]

    run(talk)


def test_a_large_message(web):
    async def talk():
        async with web.socket() as ws:
            reply = await ask(ws, {"Cancel": {"session": 88_888, "an unknown field": "x" * (8 << 20)}})
            assert reply == {"Err": {"message": "unknown session 88888"}}
            assert list(await ask(ws, "List")) == ["Sessions"]

    run(talk)


def test_subscriptions_deliver_whole_frames_between_replies(web):
    session = web.session()

    async def talk():
        async with web.socket() as ws:
            sub = (await ask(ws, {"Subscribe": {"session": session, "cursor": 0, "provisional": True}}))["Subscribed"]
            await say(ws, {"Generate": {"session": session, "max_tokens": 20}})
            await say(ws, {"Unsubscribe": sub})
            frames = []
            while len([f for f in frames if f == "Unsubscribed" or "SubEnded" in f]) < 2:
                frames.append(await hear(ws))
            events = [f["SubEvent"]["event"] for f in frames if "SubEvent" in f]
            ids = [event["event_id"] for event in events]
            assert ids == list(range(len(ids)))
            bodies = [event["body"] for event in events]
            committed = "".join(body["Generated"]["text"] for body in bodies if "Generated" in body)
            ahead = [f["SubProvisional"] for f in frames if "SubProvisional" in f]
            assert "".join(piece["text"] for piece in ahead) == committed
            assert {piece["channel"] for piece in ahead} == {0}
            assert {"SubEnded": {**sub, "reason": "unsubscribed"}} in frames
            assert any("Generated" in f for f in frames if isinstance(f, dict))
            refused = await ask(ws, {"Unsubscribe": sub})
            assert "no subscription" in refused["Err"]["message"]

    run(talk)


def test_a_subscription_of_another_connection(web):
    session = web.session()

    async def talk():
        async with web.socket() as one, web.socket() as other:
            order = {"Subscribe": {"session": session, "cursor": 1 << 40, "provisional": False}}
            sub = (await ask(one, order))["Subscribed"]
            assert list(await ask(other, {"Unsubscribe": sub})) == ["Err"]
            assert await ask(other, {"Subscribe": {**order["Subscribe"], "session": 77_777}}) == {
                "Err": {"message": "unknown session 77777"}
            }

    run(talk)


def test_who_leaves_cancels(slow):
    session = slow.session()

    async def talk():
        async with slow.socket() as ws:
            await say(ws, {"Generate": {"session": session, "max_tokens": 1500}})
            await hear(ws)

    run(talk)
    eventually(lambda: slow.finishes(session) == [4])


def test_who_hangs_up_with_a_full_inbox_cancels(slow):
    session = slow.session()

    async def talk():
        async with trio.open_nursery() as nursery, slow.socket() as ws:
            await say(ws, {"Generate": {"session": session, "max_tokens": 1500}})
            await hear(ws)

            async def flood():
                for _ in range(200):
                    await say(ws, "List")

            nursery.start_soon(flood)
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()

    run(talk)
    eventually(lambda: slow.finishes(session) == [4])


def test_a_second_connection_cancels(slow):
    session = slow.session()

    async def talk():
        async with slow.socket() as one, slow.socket() as other:
            await say(one, {"Generate": {"session": session, "max_tokens": 1500}})
            await hear(one)
            assert await ask(other, {"Cancel": {"session": session}}) == "Cancelling"
            while "Delta" in (reply := await hear(one)):
                pass
            assert reply["Generated"]["finish"] == 4

    run(talk)


def test_requests_that_wait_are_all_answered(web):
    async def talk():
        async with web.socket() as ws, trio.open_nursery() as nursery:

            async def send():
                for _ in range(300):
                    await say(ws, "List")

            nursery.start_soon(send)
            for _ in range(300):
                assert list(await hear(ws)) == ["Sessions"]

    run(talk)


def test_who_does_not_read_holds_no_lane(slow):
    """The only lane there is. What fills the connection is history; the reply comes after it."""
    past, session, other = slow.session(None), slow.session(), slow.session()
    for _ in range(200):
        slow.rpc({"SetMeta": {"session": past, "expected_version": _, "title": "x" * 40_000, "archived": None}})

    async def talk():
        async with slow.socket() as ws:
            for _ in range(4):
                await say(ws, {"Subscribe": {"session": past, "cursor": 0, "provisional": False}})
            await say(ws, {"Generate": {"session": session, "max_tokens": 30}})
            await trio.to_thread.run_sync(eventually, lambda: slow.finishes(session) == [2])
            done = await trio.to_thread.run_sync(lambda: slow.stream(session=other, max_tokens=2))
            assert done[-1]["done"]["finish"] == 2

    run(talk)


def test_the_daemon_drains(webs):
    web = webs()
    session = web.session()
    heard = []

    async def talk():
        async with web.socket() as ws:
            order = {"Subscribe": {"session": session, "cursor": 1 << 40, "provisional": False}}
            await ask(ws, order)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, web.daemon.stop)
                heard.append(await hear(ws))

    run(talk)
    assert heard[0]["SubEnded"]["reason"] == "publisher closed"


def test_feeds(web):
    """Pushes, questions and news over one WebSocket; pushes and states over /web/rpc too."""
    session = web.rpc({"Open": {"name": "ticker", "pre_decode": False}})["Opened"]["session"]
    assert web.rpc({"Push": {"session": session, "data": ["a"]}})["Pushed"]["total_pushed"] == 1
    eventually(lambda: web.rpc({"FeedState": {"session": session}})["Feed"]["feed"]["taken"] == 1)

    async def talk():
        async with web.socket() as ws:
            subscribed = (await ask(ws, {"FeedSubscribe": {"session": session}}))["Subscribed"]["sub"]
            connected = {"session": session, "name": "ticker", "data_version": 1, "flash_queries": 0}
            assert await hear(ws) == {"FeedEvent": {"sub": subscribed, "event": {"Connected": connected}}}
            assert "Pushed" in await ask(ws, {"Push": {"session": session, "data": ["b"]}})
            updated = (await hear(ws))["FeedEvent"]["event"]["DataUpdated"]
            assert (updated["data_version"], updated["pending"]) == (2, 0)
            empty = {"stop": [], "fast_answer": [], "gap_threshold": 2.0}
            await say(ws, {"Ask": {"session": session, "prompt": "Which?", "max_tokens": 5, **empty}})
            pieces = []
            while "AskPiece" in (reply := await hear(ws)):
                pieces.append(reply["AskPiece"]["text"])
            assert reply["Answer"]["text"] == "".join(pieces)
            assert reply["Answer"]["completion_tokens"] == 5
            assert reply["Answer"]["data_version"] == 2

    run(talk)
