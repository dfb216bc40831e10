"""OpenAI's and Anthropic's own clients beyond the plain call: raw responses, helpers, async, timeouts, errors."""

import anthropic
import anyio
import openai
import pytest

from tests.support.daemon import DEADLINE

HI = [{"role": "user", "content": "Hi"}]
ASK = {"model": "m", "messages": HI, "max_tokens": 6}
COLD = {**ASK, "temperature": 0}


@pytest.fixture(scope="module")
def claude(quick):
    with anthropic.Anthropic(base_url=quick.url, api_key="none", max_retries=0, timeout=DEADLINE) as client:
        yield client


@pytest.fixture(scope="module")
def said(quick):
    return quick.openai.chat.completions.create(**COLD).choices[0].message.content


# --- OpenAI's -----------------------------------------------------------------------------------------------------


def test_raw_responses(quick, said):
    raw = quick.openai.chat.completions.with_raw_response.create(**COLD)
    reply = raw.parse()
    assert (raw.status_code, raw.headers["content-type"]) == (200, "application/json")
    assert reply.choices[0].message.content == said
    assert raw.request_id == reply._request_id == raw.headers["x-request-id"]
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 6
    with quick.openai.chat.completions.with_streaming_response.create(**COLD) as raw:
        assert b"".join(raw.iter_bytes()).startswith(b'{"id":"chatcmpl-')
    assert quick.openai.models.with_raw_response.list().request_id


def test_streams(quick, said):
    with quick.openai.chat.completions.create(**COLD, stream=True, stream_options={"include_usage": True}) as stream:
        chunks = [*stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == said
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert len({chunk.id for chunk in chunks}) == 1
    for options in (None, {"include_usage": False}, {"include_obfuscation": False}, {}):
        *_, last = quick.openai.chat.completions.create(**COLD, stream=True, stream_options=options)
        assert (last.usage, last.choices[0].finish_reason) == (None, "length")


def test_the_streaming_helper(quick, said):
    start, _, stop = said.rpartition(" ")
    with quick.openai.chat.completions.stream(**COLD, stop=stop, stream_options={"include_usage": True}) as stream:
        events = [*stream]
        final = stream.get_final_completion()
    assert "".join(event.delta for event in events if event.type == "content.delta") == start + " "
    assert [event.content for event in events if event.type == "content.done"] == [start + " "]
    assert (final.choices[0].message.content, final.choices[0].finish_reason) == (start + " ", "stop")
    assert final.usage.prompt_tokens > final.usage.completion_tokens > 0


def test_completions_and_models(quick):
    reply = quick.openai.completions.create(model="m", prompt="Hi", max_tokens=3, temperature=0)
    stream = quick.openai.completions.create(model="m", prompt="Hi", max_tokens=3, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == reply.choices[0].text
    assert [model.id for model in quick.openai.models.list()] == [reply.model]


def test_an_async_client(quick, said):
    async def main():
        async with openai.AsyncOpenAI(base_url=quick.url + "/v1/", api_key="x", max_retries=0) as client:
            reply = await client.chat.completions.create(**COLD)
            chunks = [chunk async for chunk in await client.chat.completions.create(**COLD, stream=True)]
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(**{**COLD, "messages": []})
        return {"".join(chunk.choices[0].delta.content or "" for chunk in chunks), reply.choices[0].message.content}

    assert anyio.run(main, backend="asyncio") == {said}


@pytest.mark.parametrize(
    ("path", "headers", "body", "error", "status"),
    [
        ("/chat/completions", {}, {}, openai.BadRequestError, 400),
        ("/chat/completions", {"origin": "http://evil.example"}, COLD, openai.PermissionDeniedError, 403),
        ("/chat/completions", {"x-superfluid-session-id": "nobody"}, COLD, openai.NotFoundError, 404),
        ("/embeddings", {}, {"input": "x"}, openai.NotFoundError, 404),
        ("/responses", {}, {"input": "x"}, openai.NotFoundError, 404),
        ("/models", {}, {}, openai.APIStatusError, 405),
        ("/chat/completions", {"content-type": "text/plain"}, COLD, openai.APIStatusError, 415),
        ("/sessions", {}, {"id": "there"}, openai.ConflictError, 409),
    ],
)
def test_errors_by_status(quick, path, headers, body, error, status):
    if status == 409:
        quick.http.post("/v1/sessions", json=body)
    with pytest.raises(error) as refused:
        quick.openai.post(path, body=body, cast_to=object, options={"headers": headers})
    fault = refused.value
    assert fault.status_code == status
    assert fault.request_id.startswith("req_")
    assert fault.type
    assert fault.body["message"] in str(fault)


def test_a_base_address_without_the_version_is_helped(quick):
    with quick.openai.with_options(base_url=quick.url) as client, pytest.raises(openai.NotFoundError) as lost:
        client.chat.completions.create(**COLD)
    assert "it is /v1/chat/completions" in str(lost.value)


# --- Anthropic's --------------------------------------------------------------------------------------------------


def test_raw_messages(claude, said):
    raw = claude.messages.with_raw_response.create(**ASK, extra_body={"temperature": 0})
    reply = raw.parse()
    assert reply.content[0].text == said
    assert raw.request_id == reply._request_id == raw.headers["request-id"]
    counted = claude.messages.with_raw_response.count_tokens(model="m", messages=HI)
    assert counted.request_id.startswith("req_")
    assert counted.parse().input_tokens == reply.usage.input_tokens + reply.usage.cache_read_input_tokens


def test_the_helper_for_messages(claude, said):
    with claude.messages.stream(**ASK, extra_body={"temperature": 0}) as stream:
        assert "".join(stream.text_stream) == said
        final = stream.get_final_message()
        assert stream.response.headers["request-id"].startswith("req_")
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 6)


def test_the_beta_client(claude, said):
    """It asks with a query, and names features in a header."""
    reply = claude.beta.messages.create(**ASK, betas=["files-api-2025-04-14"], extra_body={"temperature": 0})
    assert reply.content[0].text == said
    assert claude.beta.messages.count_tokens(model="m", messages=HI).input_tokens
    assert [model.id for model in claude.models.list()] == [reply.model]


def test_an_async_client_for_messages(quick, said):
    async def main():
        async with anthropic.AsyncAnthropic(base_url=quick.url, api_key="x", max_retries=0) as client:
            async with client.messages.stream(**ASK, extra_body={"temperature": 0}) as stream:
                text = await stream.get_final_text()
            reply = await client.messages.create(**ASK, extra_body={"temperature": 0})
            with pytest.raises(anthropic.BadRequestError):
                await client.messages.create(**{**ASK, "messages": []})
        return {text, reply.content[0].text}

    assert anyio.run(main, backend="asyncio") == {said}


@pytest.mark.parametrize(
    ("path", "headers", "body", "error", "status"),
    [
        ("/v1/messages", {}, {}, anthropic.BadRequestError, 400),
        ("/v1/messages", {"origin": "http://evil.example"}, ASK, anthropic.PermissionDeniedError, 403),
        ("/v1/messages", {"x-superfluid-session-id": "nobody"}, ASK, anthropic.NotFoundError, 404),
        ("/v1/messages/batches", {}, {}, anthropic.NotFoundError, 404),
        ("/v1/messages", {"content-type": "text/plain"}, ASK, anthropic.APIStatusError, 415),
    ],
)
def test_errors_of_messages_by_status(claude, path, headers, body, error, status):
    with pytest.raises(error) as refused:
        claude.post(path, body=body, cast_to=object, options={"headers": headers})
    fault = refused.value
    assert fault.status_code == status
    assert fault.body["type"] == "error"
    assert fault.body["request_id"] == fault.request_id
