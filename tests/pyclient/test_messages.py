"""A log, folded into messages."""

import pytest

from tests.pyclient.said import PARAMS, event, generated, message, tool_use

OPENER = event(2, "GenerationPrompt", span=[9])
ASKED = {"role": "user", "content": "hi", "event": 1}
CREATED = event(0, "Created", parent=None, params=PARAMS)


def assistant(event, content, **more):
    return {"role": "assistant", "content": content, "event": event, **more}


CASES = {
    "nothing": ([CREATED], []),
    "each role": (
        [message(1, 0, "a"), message(2, 1, "b"), message(3, 2, "c"), message(4, 3, "d")],
        [
            {"role": "system", "content": "a", "event": 1},
            {"role": "user", "content": "b", "event": 2},
            {"role": "assistant", "content": "c", "event": 3},
            {"role": "tool", "content": "d", "event": 4},
        ],
    ),
    "one reply from several events": (
        [CREATED, message(1, 1, "hi"), OPENER, generated(3, "The "), generated(4, "Nile.", finish=1)],
        [ASKED, assistant(3, "The Nile.")],
    ),
    "a reply that goes on": ([message(1, 1, "hi"), generated(3, "The ")], [ASKED, assistant(3, "The ")]),
    "what the model thought": (
        [generated(3, "Hm, ", channel=1), generated(4, "so.", channel=1), generated(5, "Nile", finish=1)],
        [assistant(3, "Nile", reasoning="Hm, so.")],
    ),
    "a crash in mid-reply": (
        [generated(3, "The "), event(4, "EpochBump"), generated(5, "Nile.", finish=1)],
        [assistant(3, "The Nile.")],
    ),
    "a cut that was continued": (
        [generated(3, "The ", finish=2), generated(4, "Nile.", finish=1)],
        [assistant(3, "The "), assistant(4, "Nile.")],
    ),
    "an open reply that something else follows": (
        [generated(3, "The "), message(4, 1, "hi"), generated(5, "Nile.")],
        [assistant(3, "The "), {"role": "user", "content": "hi", "event": 4}, assistant(5, "Nile.")],
    ),
    "an open reply that another turn follows": (
        [generated(2, "The "), event(3, "GenerationPrompt", span=[9]), generated(4, "Nile.")],
        [assistant(2, "The "), assistant(4, "Nile.")],
    ),
    "a tool call and its result": (
        [
            generated(3, "{...}", channel=2),
            tool_use(4),
            generated(5, "", finish=1),
            event(6, "ToolResult", call_id=4, content="sunny", span=[9]),
            generated(8, "No.", finish=1),
        ],
        [
            assistant(3, "{...}"),
            {"role": "tool_call", "name": "get_weather", "arguments": '{"city": "Paris"}', "event": 4},
            {"role": "tool", "call_id": 4, "content": "sunny", "event": 6},
            assistant(8, "No."),
        ],
    ),
}


@pytest.mark.parametrize(("log", "folded"), CASES.values(), ids=CASES)
def test_a_log_folds(session, web, log, folded):
    web.rpc({"Read": {"session": 1, "cursor": 0}}, {"Events": {"events": log}})
    assert session.messages() == folded
