"""LayerScale's own client, unchanged, synchronous and asynchronous, against every route that it knows."""

import anyio
import layerscale
import pytest

from superfluid.model.gguf import locate
from superfluid.model.vocabulary import Vocabulary
from tests.http.server import eventually
from tests.support.daemon import DEADLINE

HI = [{"role": "user", "content": "Hi"}]
ASK = {"temperature": 0.0, "max_tokens": 8}


@pytest.fixture(scope="module")
def client(quick):
    with layerscale.LayerScale(quick.url, api_key="none", max_retries=0, timeout=DEADLINE) as client:
        yield client


@pytest.fixture
def feed(client):
    """A session of the fake model, deleted at the end."""
    session = client.sessions.create()
    yield session.id
    client.sessions.delete(session.id)


def test_making_and_deleting(client):
    before = [session.id for session in client.sessions.list().data]
    plain = client.sessions.create()
    assert plain.id.startswith("sess_")
    assert (plain.object, plain.tokens, plain.kv_tokens, plain.turns, plain.window) == ("session", 0, 0, 0, None)
    named = client.sessions.create(id="ticker-feed", window=512, pre_decode=True)
    assert (named.id, named.window, named.pre_decode, named.ready, named.busy) == (
        "ticker-feed",
        512,
        True,
        False,
        False,
    )
    assert client.sessions.get("ticker-feed").created == named.created
    assert [session.id for session in client.sessions.list().data] == [*before, plain.id, "ticker-feed"]
    with pytest.raises(layerscale.ConflictError):
        client.sessions.create(id="ticker-feed")
    gone = client.sessions.delete("ticker-feed")
    assert (gone.id, gone.object, gone.deleted) == ("ticker-feed", "session", True)
    with pytest.raises(layerscale.NotFoundError) as missing:
        client.sessions.get("ticker-feed")
    assert missing.value.message == "no such session 'ticker-feed'"
    again = client.sessions.create(id="ticker-feed")
    assert (again.window, again.data_version) == (None, 0)
    for name in ("ticker-feed", plain.id):
        client.sessions.delete(name)


def test_pushes_that_wait_many_times_in_a_row(client, feed):
    for number in range(100):
        ack = client.sessions.push(feed, [f"line {number}", "and another"], wait=True, wait_interval=0.002)
        assert (ack.pushed, ack.dropped, ack.total_dropped) == (2, 0, 0)
        assert ack.total_pushed == 2 * (number + 1)
    session = client.sessions.get(feed)
    assert session.pending == 0
    assert session.data_version == 100
    assert session.frozen_end is not None
    assert 0 < session.data_end <= session.tokens


def test_questions(client, feed):
    client.sessions.push(feed, "AAPL 231.10 +0.4%", wait=True, wait_interval=0.01)
    before = client.sessions.get(feed)
    answer = client.sessions.generate(feed, prompt="Which symbol moved most?", **ASK)
    assert (answer.object, answer.session_id, answer.finish_reason) == ("session.generation", feed, "length")
    assert answer.id.startswith("genr_")
    assert (answer.data_version, answer.flash, answer.speculative) == (1, None, None)
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8
    assert 0 <= answer.usage.prompt_tokens_details.cached_tokens <= answer.usage.prompt_tokens
    *pieces, done = client.sessions.generate_stream(feed, prompt="Which symbol moved most?", **ASK)
    assert "".join(piece.text for piece in pieces) == answer.text
    assert (done.done, done.finish_reason, done.session_id, done.data_version) == (True, "length", feed, 1)
    assert done.usage.completion_tokens == 8
    after = client.sessions.get(feed)
    assert (after.tokens, after.data_end, after.data_version, after.turns) == (
        before.tokens,
        before.data_end,
        before.data_version,
        before.turns,
    )


def test_flash_queries(client, feed):
    entry = client.sessions.flash(feed, "Which symbol moved most?", max_tokens=6)
    assert (entry.id, entry.object, entry.max_tokens, entry.fresh) == (1, "session.flash_query", 6, False)
    assert entry.tokens > 0
    assert entry.value is None
    assert client.sessions.flash(feed, "And now?", max_tokens=9999).max_tokens == 256
    client.sessions.push(feed, ["AAPL 231.10 +0.4%", "MSFT 415.22 -0.1%"], wait=True, wait_interval=0.01)
    eventually(lambda: all(entry.fresh for entry in client.sessions.list_flash(feed).data))
    listed = client.sessions.list_flash(feed)
    first = listed.data[0]
    assert (first.data_version, listed.data_version, [one.id for one in listed.data]) == (1, 1, [1, 2])
    assert first.confidence >= 0
    assert first.evaluated_at >= client.sessions.get(feed).created
    hit = client.sessions.generate(feed, prompt="Which symbol moved most?", temperature=2.0, max_tokens=1)
    assert (hit.text, hit.flash, hit.flash_id, hit.finish_reason) == (first.value, True, 1, "stop")
    assert hit.confidence == first.confidence
    assert (hit.usage.prompt_tokens, hit.usage.completion_tokens, hit.usage.total_tokens) == (0, 0, None)
    *pieces, done = client.sessions.generate_stream(feed, prompt="Which symbol moved most?")
    assert ([piece.text for piece in pieces], done.flash, done.flash_id) == ([first.value], True, 1)
    with pytest.raises(layerscale.ConflictError):
        client.sessions.flash(feed, "And now?")
    gone = client.sessions.unflash(feed, 1)
    assert (gone.id, gone.object, gone.deleted, gone.remaining) == (1, "session.flash_query", True, 1)
    with pytest.raises(layerscale.NotFoundError):
        client.sessions.unflash(feed, 1)


def test_events(client, feed):
    client.sessions.flash(feed, "How many lines?", max_tokens=4)
    with client.sessions.events(feed) as events:
        first = next(events)
        assert (first.type, first.session_id, first.data_version, first.flash_queries) == ("connected", feed, 0, 1)
        client.sessions.push(feed, "a line")
        updated, ready = next(events), next(events)
        assert (updated.type, updated.data_version, updated.pending) == ("data_updated", 1, 0)
        assert updated.tokens == client.sessions.get(feed).tokens
        assert (ready.type, ready.id, ready.query, ready.data_version) == ("flash_ready", 1, "How many lines?", 1)
    with client.sessions.events(feed) as events:
        _, replayed = next(events), next(events)
        assert replayed == ready


def test_a_socket(client, feed):
    client.sessions.flash(feed, "How many lines?", max_tokens=4)
    with client.sessions.ws(feed) as socket:
        said = iter(socket)
        assert next(said).data.session_id == feed
        socket.ping()
        assert isinstance(next(said), layerscale.WsPong)
        socket.push(["one", "two"])
        ack = next(said)
        assert isinstance(ack, layerscale.WsPushAck)
        assert (ack.data.pushed, ack.data.total_pushed, ack.data.data_version) == (2, 2, 0)
        updated, ready = next(said), next(said)
        assert (updated.data.data_version, updated.data.pending) == (1, 0)
        assert isinstance(ready, layerscale.WsFlashReady)
        socket.push([])
        fault = next(said)
        assert isinstance(fault, layerscale.WsError)
        assert fault.data.code == 400
        assert fault.data.message.startswith("data: ")
        socket.ping()
        assert isinstance(next(said), layerscale.WsPong)
    with pytest.raises(layerscale.NotFoundError) as missing:
        client.sessions.ws("nothing-there")
    assert missing.value.message == "no such session 'nothing-there'"
    with pytest.raises(layerscale.BadRequestError):
        client.sessions.ws("no.name")


def test_turns_on_a_session(client, feed):
    client.sessions.push(feed, "AAPL 231.10 +0.4%", wait=True, wait_interval=0.01)
    first = client.chat.create(messages=HI, session_id=feed, **ASK)
    assert first.usage.prompt_tokens_details.cached_tokens > 0
    reply = first.choices[0].message.content
    longer = [*HI, {"role": "assistant", "content": reply}, {"role": "user", "content": "And now?"}]
    chunks = list(client.chat.stream(messages=longer, session_id=feed, stream_options={"include_usage": True}, **ASK))
    usage = chunks[-1].usage
    # All of the first turn is held, but for its last token, which nobody has computed.
    held = first.usage.prompt_tokens + first.usage.completion_tokens - 1
    assert usage.prompt_tokens_details.cached_tokens >= held
    assert client.sessions.get(feed).turns == 2
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    messages = [*longer, {"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
    third = client.messages.create(messages=messages, session_id=feed, **ASK)
    assert third.usage.cache_read_input_tokens >= usage.prompt_tokens
    *_, delta, stop = client.messages.stream(
        messages=[*messages, {"role": "assistant", "content": third.content[0].text}, *HI], session_id=feed, **ASK
    )
    assert delta.usage.cache_read_input_tokens > third.usage.cache_read_input_tokens
    assert stop.type == "message_stop"
    session = client.sessions.get(feed)
    assert (session.turns, session.data_version, session.busy) == (4, 1, False)
    with pytest.raises(layerscale.NotFoundError):
        client.chat.create(messages=HI, session_id="nothing-there")
    with pytest.raises(layerscale.NotFoundError) as missing:
        client.messages.create(messages=HI, max_tokens=1, session_id="nothing-there")
    assert missing.value.message == "no such session 'nothing-there'"


def test_warm_turns(client, feed):
    messages = [{"role": "user", "content": "A long story, told in many words. " * 10}]
    warm = client.sessions.warm(feed, messages=messages)
    assert (warm.object, warm.session_id, warm.finish_reason) == ("session.warm", feed, "warmed")
    assert warm.id.startswith("warm_")
    assert (warm.prefix_cached_tokens, warm.data_version) == (0, 0)
    covered = client.sessions.warm(feed, messages=messages)
    assert (covered.finish_reason, covered.prompt_tokens) == ("covered", warm.prompt_tokens)
    usage = client.chat.create(messages=messages, session_id=feed, **ASK).usage
    assert usage.prompt_tokens_details.cached_tokens >= warm.prompt_tokens - 1


def test_the_other_routes(client, quick):
    reply = client.chat.create(messages=HI, **ASK)
    assert reply.usage.prompt_tokens_details.cached_tokens >= 0
    chunks = list(client.chat.stream(messages=HI, stream_options={"include_usage": True}, **ASK))
    assert chunks[-1].usage.prompt_tokens == reply.usage.prompt_tokens
    message = client.messages.create(messages=HI, **ASK)
    assert message.content[0].text == reply.choices[0].message.content
    assert [event.type for event in client.messages.stream(messages=HI, **ASK)][-1] == "message_stop"
    assert client.messages.count_tokens(messages=HI).input_tokens == reply.usage.prompt_tokens
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id.lower()) == model
    health = client.health.check()
    assert (health.ok, health.status, health.body.status) == (True, 200, "ok")
    assert health.body.requests_ok > 0
    assert "superfluid_ticks_total" in client.metrics.get()


def test_errors(client, feed):
    with pytest.raises(layerscale.BadRequestError) as refused:
        client.chat.create(messages=[{"role": "user", "content": "word " * 2500}], session_id=feed)
    assert refused.value.context_overflow
    assert client.sessions.get(feed).busy is False
    with pytest.raises(layerscale.BadRequestError) as refused:
        client.messages.create(messages=[{"role": "user", "content": "word " * 2500}], max_tokens=1, session_id=feed)
    assert refused.value.context_overflow
    with pytest.raises(layerscale.BadRequestError) as refused:
        client.sessions.generate(feed, prompt="word " * 2500)
    assert refused.value.context_overflow
    with pytest.raises(layerscale.NotFoundError):
        client.models.retrieve("nothing")


def test_all_of_it_asynchronously(quick):
    async def main():
        async with layerscale.AsyncLayerScale(quick.url, api_key="none", max_retries=0, timeout=DEADLINE) as client:
            feed = (await client.sessions.create(id="async-feed", window=600)).id
            await client.sessions.flash(feed, "How many lines?", max_tokens=4)
            async with await client.sessions.events(feed) as events:
                assert (await anext(events)).type == "connected"
                for number in range(100):
                    ack = await client.sessions.push(feed, f"line {number}", wait=True, wait_interval=0.002)
                    assert ack.total_pushed == number + 1
                assert (await anext(events)).type == "data_updated"
            answer = await client.sessions.generate(feed, prompt="What is new?", **ASK)
            pieces = [
                piece async for piece in await client.sessions.generate_stream(feed, prompt="What is new?", **ASK)
            ]
            assert "".join(piece.text for piece in pieces[:-1]) == answer.text
            async with client.sessions.ws(feed) as socket:
                said = aiter(socket)
                assert isinstance(await anext(said), layerscale.WsConnected)
                await socket.push("from the socket")
                async for event in said:
                    if isinstance(event, layerscale.WsPushAck):
                        break
            with pytest.raises(layerscale.NotFoundError):
                async with client.sessions.ws("nothing-there"):
                    pass
            warm = await client.sessions.warm(feed, messages=HI)
            assert warm.finish_reason == "warmed"
            turn = await client.chat.create(messages=HI, session_id=feed, **ASK)
            assert turn.usage.prompt_tokens_details.cached_tokens > 0
            streamed = [chunk async for chunk in await client.chat.stream(messages=HI, session_id=feed, **ASK)]
            assert streamed[-1].choices[0].finish_reason == "length"
            message = await client.messages.create(messages=HI, session_id=feed, **ASK)
            assert message.usage.cache_read_input_tokens > 0
            events = [event async for event in await client.messages.stream(messages=HI, **ASK)]
            assert events[-1].type == "message_stop"
            assert (await client.messages.count_tokens(messages=HI)).input_tokens > 0
            assert len((await client.sessions.list_flash(feed)).data) == 1
            assert (await client.sessions.unflash(feed, 1)).remaining == 0
            assert (await client.sessions.get(feed)).turns == 3
            assert feed in [session.id for session in (await client.sessions.list()).data]
            assert (await client.sessions.delete(feed)).deleted
            assert len((await client.models.list()).data) == 1
            assert (await client.health.check()).ok
            assert "superfluid" in await client.metrics.get()

    anyio.run(main, backend="asyncio")


def test_a_key(servers):
    server = servers(http={"api_key": "LSK-test"})
    with layerscale.LayerScale(server.url, max_retries=0) as stranger:
        assert stranger.health.check().ok
        for attempt in (stranger.sessions.list, stranger.metrics.get, lambda: stranger.sessions.ws("x")):
            with pytest.raises(layerscale.AuthenticationError):
                attempt()
    with layerscale.LayerScale(server.url, api_key="LSK-test", max_retries=0) as client:
        session = client.sessions.create()
        with client.sessions.ws(session.id) as socket:
            assert isinstance(next(iter(socket)), layerscale.WsConnected)
        assert "superfluid" in client.metrics.get()


def test_the_embedded_model_answers_over_the_data(server):
    with layerscale.LayerScale(server.url, api_key="none", max_retries=0, timeout=DEADLINE) as client:
        feed = client.sessions.create(pre_decode=True).id
        lines = ["The code word for today is MARBLE.", "The office closes at five."]
        client.sessions.push(feed, lines, wait=True, wait_timeout=DEADLINE)
        question = "What is the code word for today? Answer with one word."
        answer = client.sessions.generate(feed, prompt=question, temperature=0.0, max_tokens=20)
        assert "MARBLE" in answer.text.upper()
        turn = client.chat.create(
            messages=[{"role": "user", "content": question}], session_id=feed, temperature=0.0, max_tokens=20
        )
        assert "MARBLE" in turn.choices[0].message.content.upper()
        assert turn.usage.prompt_tokens_details.cached_tokens > 0
        *pieces, done = client.sessions.generate_stream(feed, prompt=question, temperature=0.0, max_tokens=20)
        assert "".join(piece.text for piece in pieces) == answer.text
        assert done.usage.completion_tokens == answer.usage.completion_tokens
        flash = client.sessions.flash(feed, "When does the office close?", max_tokens=16)
        with client.sessions.events(feed) as events:
            ready = next(event for event in events if event.type == "flash_ready")
        assert ready.id == flash.id
        hit = client.sessions.generate(feed, prompt="When does the office close?")
        assert (hit.flash, hit.text) == (True, ready.value)
        eventually(lambda: client.sessions.get(feed).ready)
        ready = client.sessions.get(feed)
        assert ready.ready_gap >= 0
        with Vocabulary(locate(None)) as vocabulary:
            word = vocabulary.piece(ready.ready_token).decode().lstrip(" ") + "sibly"
        fast = client.sessions.generate(feed, prompt="Anything?", fast_answer=[word], gap_threshold=-1.0)
        assert (fast.speculative, fast.text) == (True, word)
        assert fast.logit_gap == ready.ready_gap
        client.sessions.delete(feed)
