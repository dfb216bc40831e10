"""The session API, table by table: each request, response, record and field, told alike over all three transports."""

import pytest

from superfluid.protocol import records, requests, responses, shapes
from tests.acceptance import story as stories
from tests.acceptance.document import (
    EDITS,
    EVENT,
    FINISHES,
    INSPECTION,
    LEDGER_ENTRY,
    MEDIA,
    NULLABLE,
    PARAMS,
    REASONS,
    RECORDS,
    REQUESTS,
    RESPONSES,
    SUMMARY,
)
from tests.acceptance.scene import prepared
from tests.acceptance.story import Story
from tests.acceptance.talks import TALKS, Http, Socket, Ws, fields_of, name_of

STREAMED = {"Subscribe", "Unsubscribe"}
SUBSCRIPTIONS = {"Subscribed", "SubEvent", "SubProvisional", "SubEnded", "Unsubscribed"}


class Seen:
    """Which names and fields came up, and which nullable fields with a value and without."""

    def __init__(self, *lives):
        self.fields = {}
        self.values = set()
        for life in lives:
            for asked in life.asked:
                self._note("request", name_of(asked), fields_of(asked))
            for told in life.frames():
                self._note("response", name_of(told), fields_of(told))
                self._look(told)

    def _note(self, kind, name, fields):
        assert self.fields.setdefault((kind, name), tuple(fields)) == tuple(fields), (kind, name, fields)
        for field, value in fields.items():
            self.values.add((kind, name, field, value is None))

    def _look(self, value):
        """Find events, and what else has a shape of its own, wherever it stands."""
        if isinstance(value, dict):
            keys = tuple(value)
            if "event_id" in value:
                self._note("nested", "event", value)
                self._body(value["body"])
            if "inspection" in value:
                self._note("nested", "inspection", value["inspection"])
                self._note("nested", "summary", value["inspection"]["summary"])
            if "params" in value:
                self._note("nested", "params", value["params"])
            if keys in (("Drop",), ("Replace",)):
                self._note("edit", keys[0], value[keys[0]])
            if "entries" in value:
                for _, entry in value["entries"]:
                    self._note("nested", "ledger entry", entry)
            for inner in value.values():
                self._look(inner)
        elif isinstance(value, list):
            for inner in value:
                self._look(inner)

    def _body(self, body):
        self._note("record", name_of(body), fields_of(body))
        if name_of(body) == "Rerooted":
            for _, inherited in body["Rerooted"]["prefix"]:
                self._note("record", name_of(inherited), fields_of(inherited))


@pytest.fixture(scope="module")
def told(houses):
    """The story over each transport: {class: (Story, transcript)}."""
    web = houses(**prepared(delay_us=500), max_batch=2, completion_rate=0.001, completion_burst=3)
    lives = {}
    for talk in TALKS:
        lives[talk] = life = Story(talk(web))
        life.main, life.follower = stories.conversation(life)
        stories.appends(life)
        stories.branches(life, life.main)
        stories.calls(life)
        stories.middles(life)
        stories.media(life, life.main)
        stories.keeping(life, life.main)
        stories.ends(life)
        life.before = life.log(life.main)
    assert web.daemon.stop() == 0
    for life in lives.values():
        if life.talk.streams:
            life.talk.until_ended(life.follower)
    web.start()
    for talk, life in lives.items():
        life.once_more(talk(web))
        stories.after_restart(life, life.main, life.before)
    transcripts = {talk: (life, life.transcript()) for talk, life in lives.items()}
    for life in lives.values():
        life.talk.close()
    return transcripts


@pytest.fixture(scope="module")
def leased(houses):
    """The story of calls with a lease over each transport, likewise."""
    web = houses(**prepared(), tool_lease_ms=1)
    lives = {}
    for talk in TALKS:
        with talk(web) as speaker:
            life = Story(speaker)
            stories.leases(life)
            lives[talk] = (life, life.transcript())
    return lives


@pytest.fixture(scope="module")
def seen(told, leased):
    return {talk: Seen(told[talk][0], leased[talk][0]) for talk in TALKS}


def wire_fields(union, core):
    return {
        variant.__name__: tuple(field.key for field in shapes.fields_of(variant))
        for variant in shapes.variants_of(union)[:core]
    }


def test_the_tables_name_everything():
    assert wire_fields(requests.Request, 35) == {name: fields for name, (fields, _) in REQUESTS.items()}
    assert wire_fields(responses.Response, 27) == RESPONSES
    assert wire_fields(records.EventBody, len(RECORDS)) == RECORDS
    assert len(shapes.variants_of(records.EventBody)[: len(RECORDS)]) == len(RECORDS) == 25
    assert wire_fields(records.RebaseEdit, 2) == EDITS
    for cls, fields in [
        (records.Event, EVENT),
        (records.GenParams, PARAMS),
        (responses.SessionInspection, INSPECTION),
        (responses.SessionSummary, SUMMARY),
        (responses.LedgerEntry, LEDGER_ENTRY),
    ]:
        assert tuple(field.key for field in shapes.fields_of(cls)) == fields
    assert {reply for _, replies in REQUESTS.values() for reply in replies} | {"Err"} == set(RESPONSES)
    nullable = {
        (kind, variant.__name__, field.key)
        for kind, union, core in [("request", requests.Request, 35), ("record", records.EventBody, 25)]
        for variant in shapes.variants_of(union)[:core]
        for field in shapes.fields_of(variant)
        if shapes.optional_of(field.annotation) is not None
    }
    assert nullable == NULLABLE


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.__name__)
@pytest.mark.parametrize("name", REQUESTS)
def test_request(seen, talk, name):
    if talk is Http and name in STREAMED:
        assert ("request", name) not in seen[talk].fields
    else:
        assert seen[talk].fields["request", name] == REQUESTS[name][0]


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.__name__)
@pytest.mark.parametrize("name", [name for name in RESPONSES if name not in ("Media", "Gc")])
def test_response(seen, talk, name):
    if talk is Http and name in SUBSCRIPTIONS:
        assert ("response", name) not in seen[talk].fields
    else:
        assert seen[talk].fields["response", name] == RESPONSES[name]


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.__name__)
@pytest.mark.parametrize("name", RECORDS)
def test_record(seen, talk, name):
    if talk is Http and name == "Purged":  # the last words of a session, told to its subscribers only
        assert ("record", name) not in seen[talk].fields
        return
    assert seen[talk].fields["record", name] == RECORDS[name]


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.__name__)
def test_nested_fields(seen, talk):
    fields = seen[talk].fields
    assert fields["nested", "event"] == EVENT
    assert fields["nested", "inspection"] == INSPECTION
    assert fields["nested", "summary"] == SUMMARY
    assert fields["nested", "params"] == PARAMS
    assert fields["nested", "ledger entry"] == LEDGER_ENTRY
    assert {name: fields["edit", name] for name in EDITS} == EDITS
    missing = [
        (*field, null) for field in NULLABLE for null in (False, True) if (*field, null) not in seen[talk].values
    ]
    assert not missing


@pytest.mark.parametrize("which", ["told", "leased"])
def test_the_transports_tell_the_same(request, which):
    (_, expected), *others = request.getfixturevalue(which).values()
    for _, transcript in others:
        assert len(transcript) == len(expected)
        for step, (mine, theirs) in enumerate(zip(expected, transcript, strict=True)):
            assert mine == theirs, step


def test_subscriptions_tell_the_same(told):
    by_socket, by_websocket = (life.subscriptions() for life, _ in told.values() if life.talk.streams)
    assert by_socket == by_websocket
    ends = [one["ended"] for one in by_socket]
    assert {reason for ended in ends for reason in ended} | {"lagged"} == REASONS
    assert ends == [["publisher closed"], ["unsubscribed"], ["unsubscribed"], ["purged"], []]
    for one in by_socket:
        texts = {}
        for event in one["events"]:
            if "Generated" in event["body"]:
                fields = event["body"]["Generated"]
                texts[fields["channel"]] = texts.get(fields["channel"], "") + fields["text"]
        texts.pop(2, None)  # a tool call is never shown ahead of its commit
        # The last one's backlog begins with a reply, which was never ahead of anything.
        assert one["provisional"] in ({}, texts) or one is by_socket[-1]
        assert all(texts[channel].endswith(text) for channel, text in one["provisional"].items())
    assert [sorted(one["provisional"]) for one in by_socket] == [[0], [], [0, 1], [], [0]]


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.__name__)
def test_every_finish_and_channel_came_up(told, talk):
    finishes, channels = set(), set()
    for told_once in told[talk][0].frames():
        fields = fields_of(told_once)
        for event in [*fields.get("events", []), *([fields["event"]] if "event" in fields else [])]:
            if name_of(event["body"]) == "Generated":
                finishes.add(event["body"]["Generated"]["finish"])
                channels.add(event["body"]["Generated"]["channel"])
    assert finishes == FINISHES
    assert channels == {0, 1, 2}


def test_a_subscription_that_is_not_read_lags(houses):
    """The one end of a subscription that is not in the story; over the WebSocket."""
    web = houses(max_context=8192, max_batch=1)
    session = web.session()
    with Ws(web) as deaf, Socket(web) as other:
        deaf.ask({"Subscribe": {"session": session, "cursor": 0, "provisional": True}})
        for _ in range(3):
            *_, last = other.generate(session, 2000)
            assert last["Generated"]["tokens_generated"] == 2000
        deaf.until_ended(1)
        assert deaf.subscribed[-1]["SubEnded"]["reason"] == "lagged"
    web.close()


@pytest.mark.parametrize("name", sorted(MEDIA))
def test_media_is_refused(told, name):
    for _, transcript in told.values():
        (said,) = [replies for asked, replies in transcript if asked == name]
        assert f"this build does not do {name}" in fields_of(said[0])["message"]
