"""The golden vectors of the wire (spec: wire-facts, section 1)."""

import pytest

from superfluid.protocol import codes, jsonform, postcard, records, requests, responses
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.feed_responses import DataUpdated
from superfluid.protocol.frames import frame
from superfluid.protocol.records import Drop, EpochBump, Event, GenParams, Message, Replace
from superfluid.protocol.shapes import indices_of
from superfluid.protocol.wire import single

REQUESTS = [
    (requests.List(), "07"),
    (requests.AppendMessage(1, 1, "hi"), "02 01 01 02 68 69"),
    (requests.AppendToolResult(1, 4, "x"), "05 01 04 01 78"),
    (requests.Pin(1, 5), "21 01 05"),
    (requests.AppendSystem(1, None, ("{}",)), "22 01 00 01 02 7b 7d"),
    (requests.Generate(1, 8), "03 01 08"),
    (
        requests.Create(None, GenParams(single(0.7), single(0.95), 0.0, 0, 1)),
        "00 00 33 33 33 3f 33 33 73 3f 00 00 00 00 00 01",
    ),
    (requests.Append(300, None, (1, 128, 70000)), "01 ac 02 00 03 01 80 01 f0 a2 04"),
    (requests.Fork(1, 3, None), "0b 01 03 00"),
    (
        requests.Rebase(1, (Drop(2, 4), Replace(4, 5, 1, "q2")), None),
        "0f 01 02 00 02 04 01 04 05 01 02 71 32 00",
    ),
    (requests.Purge(1, 0, PurgeMode.REROOT), "10 01 00 01"),
    (requests.SetQos(1, 3, True), "11 01 03 01"),
    (requests.PutMedia(b"\xff\x00", ""), "1c 02 ff 00 00"),
    (requests.Complete("a", "b", 0, 64), "1f 01 61 01 62 00 40"),
]

RESPONSES = [
    (responses.Err("no"), "0d 02 6e 6f"),
    (responses.Throttled(9), "1a 09"),
    (
        responses.Committed(Event(1, 1, 1700000000000, Message(1, "hi", (1,)))),
        "03 01 01 80 d0 95 ff bc 31 02 01 02 68 69 01 01",
    ),
    (responses.Unsubscribed(), "0c"),
    (responses.Ack(), "12"),
]


@pytest.mark.parametrize(("value", "hexes"), REQUESTS, ids=lambda part: str(part)[:40])
def test_request_vector(value, hexes):
    assert postcard.encode(requests.Request, value).hex(" ") == hexes
    assert postcard.decode(requests.Request, bytes.fromhex(hexes)) == value


@pytest.mark.parametrize(("value", "hexes"), RESPONSES, ids=lambda part: str(part)[:40])
def test_response_vector(value, hexes):
    assert postcard.encode(responses.Response, value).hex(" ") == hexes
    assert postcard.decode(responses.Response, bytes.fromhex(hexes)) == value


FEED_RECORDS = [
    (records.Named("cpu-1"), "80 01 05 63 70 75 2d 31"),
    (records.FeedOpened(300, True), "81 01 01 ac 02 01"),
    (
        records.Ingested(2, (7,), (records.Entry("a", (128,)), records.Entry("b", ())), 3, 1),
        "82 01 02 01 07 02 01 61 01 80 01 01 62 00 03 01",
    ),
    (records.Rewound(4, 5), "83 01 04 05"),
    (records.Restored((1,)), "84 01 01 01"),
    (records.FlashAdded(1, "q", 32), "85 01 01 01 71 20"),
    (records.FlashRemoved(1), "86 01 01"),
    (records.FlashAnswered(1, "v", 9, 1.5), "87 01 01 01 76 09 00 00 c0 3f"),
    (
        records.Erased((records.Entry("b", (9,)),), (0, 128), 2, (7,), 3, 1),
        "88 01 01 01 62 01 09 02 00 80 01 02 01 07 03 01",
    ),
]


@pytest.mark.parametrize(("value", "hexes"), FEED_RECORDS, ids=lambda part: str(part)[:40])
def test_feed_record_vector(value, hexes):
    assert postcard.encode(records.EventBody, value).hex(" ") == hexes
    assert postcard.decode(records.EventBody, bytes.fromhex(hexes)) == value


def test_what_feed_records_bring_to_the_input():
    entries = (records.Entry("a", (1, 2)), records.Entry("b", ()), records.Entry("c", (3,)))
    assert records.span_of(records.Ingested(1, (8, 9), entries, 1, 0)) == (8, 9, 1, 2, 3)
    gone = records.Erased((records.Entry("c", (3,)),), (2, 0), 1, (8, 9), 1, 0)
    assert records.span_of(gone) == (8, 9, records.ERASED, records.ERASED, 3)
    assert records.span_of(records.Restored((8,))) == (8,)
    assert records.span_of(records.Rewound(1, 1)) == ()


def test_event_vector():
    assert postcard.encode(Event, Event(3, 2, 0, EpochBump())).hex(" ") == "03 02 00 07"


def test_frame_of_list():
    assert frame(postcard.encode(requests.Request, requests.List())).hex(" ") == "01 00 00 00 07"


def test_the_vocabulary_is_whole():
    for union, size in ((requests.Request, 35), (responses.Response, 27), (records.EventBody, 25)):
        assert [index for index in indices_of(union) if index < 128] == list(range(size))


def test_extensions_begin_at_128():
    assert postcard.encode(requests.Request, requests.Status()).hex(" ") == "80 01"


EXTENSIONS = [
    (requests.Request, requests.Open("a", None, True), "81 01 01 01 61 00 01"),
    (requests.Request, requests.Push(1, ("x", "")), "85 01 01 02 01 78 00"),
    (requests.Request, requests.PushNumbered(1, ("x",), 300, 7), "8d 01 01 01 01 78 ac 02 07"),
    (
        requests.Request,
        requests.Ask(1, "q", None, None, (), ("no",), 2.0),
        "86 01 01 01 71 00 00 00 01 02 6e 6f 00 00 00 40",
    ),
    (requests.Request, requests.Warm(1, ((1, "x"),)), "8b 01 01 01 01 01 78"),
    (responses.Response, responses.Resolved(300), "82 01 ac 02"),
    (responses.Response, responses.Pushed(1, 0, 2, 36, 300, 0, 7, 5), "84 01 01 00 02 24 ac 02 00 07 05"),
    (responses.Response, responses.FeedEvent(1, DataUpdated(2, 3, 0)), "8a 01 01 02 02 03 00"),
]


@pytest.mark.parametrize(("union", "value", "hexes"), EXTENSIONS, ids=lambda part: str(part)[:40])
def test_extension_vector(union, value, hexes):
    assert postcard.encode(union, value).hex(" ") == hexes
    assert postcard.decode(union, bytes.fromhex(hexes)) == value


def test_feed_news_in_json():
    event = responses.FeedEvent(1, DataUpdated(2, 3, 0))
    assert jsonform.to_json(responses.Response, event) == {
        "FeedEvent": {"sub": 1, "event": {"DataUpdated": {"data_version": 2, "tokens": 3, "pending": 0}}}
    }


CODES = {
    codes.Role: "SYSTEM USER ASSISTANT TOOL",
    codes.Channel: "TEXT REASONING TOOL_CALL",
    codes.Finish: "OPEN END_OF_TURN LENGTH GRAMMAR CANCELLED ERROR",
    codes.Qos: "INTERACTIVE COMPLETION AGENT BACKGROUND",
    codes.ToolOutcomeCode: "- FAILED CANCELLED",
    codes.LedgerState: "OPEN CANCEL_REQUESTED SUCCEEDED FAILED CANCELLED EXPIRED CANCELLED_WITH_LATE_EFFECT",
    codes.BlockKind: "- FILE_DIFF ARTIFACT CITATION PROGRESS DIAGNOSTIC WORKSPACE_REF IMAGE",
    codes.Fault: "UNSPECIFIED GRAMMAR_OVERFLOW BAD_TOKEN STRATEGY OUT_OF_MEMORY INTERNAL MEDIA",
    codes.FimMode: "PSM SPM",
}
"""What the numbers from 0 up mean (spec: wire-facts, section 7)."""


def test_numeric_codes():
    for code, names in CODES.items():
        table = {name: value for value, name in enumerate(names.split()) if name != "-"}
        assert {name: int(member) for name, member in code.__members__.items()} == table
