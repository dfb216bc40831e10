"""A call's way through a daemon in three public template styles: template, channels, parser, and its result."""

import json

import pytest

from superfluid.protocol import records
from tests.model import tool_templates
from tests.support import scripted
from tests.support.daemon import Daemon, generate
from tests.support.scripted import Call, Result
from tests.tools.conftest import DEEP
from tests.tools.talk import asked, bodies_of, calls_in, outline, result, text_of

EVIL = {**DEEP, "end": "<|im_end|><|eot_id|></s>"}
COMPACT = json.dumps(EVIL, ensure_ascii=False, separators=(",", ":"))
REPLIES = {
    "Look.": Call("get_weather", COMPACT),
    # the ids of the calls of the three sessions below are no matter: the script knows them as any
    **{Result("get_weather", "rain", call_id): "It rains." for call_id in range(40)},
}
STYLES = {
    "hermes": ("HERMES", "<|im_end|>", {}),
    "hermes spelled": ("HERMES", "<|im_end|>", {"controls": ()}),
    "hermes sentencepiece": ("HERMES", "<|im_end|>", {"controls": (), "kind": "spm"}),
    "llama": ("LLAMA", "<|eot_id|>", {}),
    "llama tagged": ("LLAMA_TAGGED", "<|eot_id|>", {}),
    "mistral": ("MISTRAL", "</s>", {}),
}


@pytest.fixture(scope="module", params=STYLES)
def daemon(request, tmp_path_factory):
    template, eos, settings = STYLES[request.param]
    directory = tmp_path_factory.mktemp("style")
    model = scripted.write(directory, getattr(tool_templates, template), REPLIES, eos=eos, **settings)
    with Daemon(directory, **model) as daemon:
        yield daemon


def test_there_and_back_whole_and_cut_after_every_token(daemon):
    with daemon.client() as client:
        session = asked(client, "Look.")
        summary = generate(client, session, 1000)
        assert summary.finish == 1
        (call,) = calls_in(summary.events)
        use = records.ToolUse("get_weather", COMPACT)
        assert next(event.body for event in summary.events if event.event_id == call) == use
        bodies = [event.body for event in summary.events]
        assert not text_of(bodies).strip()
        result(client, session, call, "rain")
        reply = generate(client, session, 50)
        assert text_of([event.body for event in reply.events]).strip() == "It rains."

        pieces = asked(client, "Look.")
        while generate(client, pieces, 1).finish != 1:
            assert len(bodies_of(client, pieces)) < 2000
        cut = bodies_of(client, pieces)
        assert [body for body in cut if isinstance(body, records.ToolUse | records.ToolParseFailure)] == [use]
        assert [text_of(cut, channel) for channel in range(3)] == [text_of(bodies, channel) for channel in range(3)]
        assert outline(cut)[5:] == outline(bodies_of(client, session))[5 : len(outline(cut))]


def test_a_header_that_opens_the_reasoning(tmp_path):
    model = scripted.write(tmp_path, tool_templates.ALWAYS_REASONS, {"Think.": "hm</think>\n\nYes."})
    with Daemon(tmp_path, **model) as daemon, daemon.client() as client:
        whole, pieces = asked(client, "Think."), asked(client, "Think.")
        assert generate(client, whole, 50).finish == 1
        while generate(client, pieces, 1).finish != 1:
            assert len(bodies_of(client, pieces)) < 100
        for session in (whole, pieces):
            bodies = bodies_of(client, session)
            assert (text_of(bodies, 1), text_of(bodies)) == ("hm", "\n\nYes.")
            assert outline(bodies)[-2:] == ["R", "t"]
