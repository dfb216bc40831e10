"""Tools through the Python client and the event stream, and what the OpenAI route makes of reasoning and calls."""

import sys
from pathlib import Path

import pytest

from tests.http.server import Server
from tests.model import tool_templates
from tests.support import scripted
from tests.support.daemon import DEADLINE
from tests.tools.conftest import DEEP, REPLIES
from tests.tools.talk import WEATHER

sys.path.insert(0, str(Path(__file__).parents[2] / "clients" / "python"))

from superfluid_client import Client, Sampling


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("over-http")
    server = Server(directory, web={"port": 0}, **scripted.write(directory, tool_templates.REASONS, REPLIES))
    yield server
    server.close()


@pytest.fixture
def client(server):
    token = (server.daemon.sessions / "web-token").read_text()
    return Client(server.daemon.web_url(), token, timeout=DEADLINE)


def test_the_loop_of_the_python_client(client):
    session = client.session(Sampling.greedy(), system="Use the tools.", tools=[WEATHER])
    session.user("Is it raining?")
    stream = session.stream(500)
    ahead = {"text": "", "reasoning": "", "tool_call": ""}
    for chunk in stream:
        ahead[chunk.kind] += chunk.text
    reply = stream.reply
    assert ahead == {"text": "\n\nLet me look.\n", "reasoning": "\nI should look.\n", "tool_call": ""}
    assert (reply.reasoning, reply.finish) == (ahead["reasoning"], "stop")
    (call,) = reply.tool_calls
    assert (call.name, call.json()) == ("get_weather", DEEP)
    assert session.open_tool_calls() == [call]
    session.tool_result(call, "12 °C, rain")
    assert session.open_tool_calls() == []
    assert session.generate(500).text.strip() == "Yes, it rains."
    assert [message["role"] for message in session.messages()][:3] == ["system", "user", "assistant"]
    assert {"tool_call", "tool"} <= {message["role"] for message in session.messages()}


def test_a_failed_call_is_told_on_the_stream(client):
    session = client.session(Sampling.greedy(), tools=[WEATHER])
    session.user("Say it badly.")
    reply = session.generate(500)
    assert reply.tool_calls == []
    assert [event.data["raw"] for event in reply.events if event.kind == "ToolParseFailure"] == ['\n{"name": 7}\n']


def chat(server, *messages, **fields):
    roles = ("user", "assistant", "user")
    sent = [{"role": role, "content": text} for role, text in zip(roles, messages, strict=False)]
    return server.openai.chat.completions.create(model="tiny", messages=sent, temperature=0, max_tokens=500, **fields)


def test_reasoning_is_no_part_of_what_the_openai_route_answers(server):
    reply = chat(server, "Think.")
    assert reply.choices[0].message.content == "So: a <tool_call"
    assert reply.choices[0].finish_reason == "stop"
    whole = "".join(chunk.choices[0].delta.content or "" for chunk in chat(server, "Think.", stream=True))
    assert whole == "So: a <tool_call"
    # what was drawn counts all the same
    assert reply.usage.completion_tokens > len("So: a <tool_call")
    # cut in the reasoning, there is nothing to show
    cut = chat(server, "Think.", extra_body={"max_tokens": 3})
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("", "length")


def test_a_stop_string_in_the_reasoning_does_not_count(server):
    assert chat(server, "Think.", stop=["hm"]).choices[0].message.content == "So: a <tool_call"
    assert chat(server, "Think.", stop=[" a"]).choices[0].message.content == "So:"


def test_what_looks_like_a_call_is_text_where_no_tools_were_given(server):
    content = chat(server, "Twice?").choices[0].message.content
    assert '{"name": "a", "arguments": {}}' in content
    refused = server.chat("Twice?", tools=[WEATHER])
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "tools"


def test_a_conversation_goes_on_after_reasoning(server):
    first = chat(server, "Think.").choices[0].message.content
    again = chat(server, "Think.", first, "Is it raining?")
    assert again.choices[0].message.content.startswith("Let me look.")


def test_a_raw_prompt_is_answered_raw(server):
    prompt = "<|im_start|>user\nThink.<|im_end|>\n<|im_start|>assistant\n"
    reply = server.openai.completions.create(model="tiny", prompt=prompt, temperature=0, max_tokens=500)
    assert reply.choices[0].text == "hm\n\nSo: a <tool_call"
