"""`superfluid session export`: its two forms, what they hold back, and where they go."""

import http.server
import json
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.codes import PurgeMode
from tests.cli.conftest import Ran
from tests.cli.fake_server import PARAMS, FakeServer, event, sessions, summary
from tests.cli.secret_shapes import ALONE, PASSWORD, texts
from tests.cli.test_redaction import leaks

Cli = Callable[..., Ran]

LOG: tuple[Any, ...] = (
    records.Created(None, PARAMS),
    records.Message(0, "Be brief.", (1, 2)),
    records.Message(1, "Grüße", (3, 4, 5)),
    records.GenerationFingerprint(255),
    records.GenerationPrompt((6,)),
    records.Generated((7, 8), "Let me", 1, 0),
    records.Generated((9,), " see.", 1, 0),
    records.Generated((10, 11), "Sunny.", 0, 0),
    records.Generated((12,), "{}", 2, 1),
    records.ToolUse("rain", '{"in":"Paris"}'),
    records.ToolLease(9, 1_700_000_009_000),
    records.ToolResult(9, "dry", (13,)),
    records.Generated((14,), "Dry.", 0, 2),
    records.Generated((15,), " So.", 0, 1),
    records.ToolUse("snow", "{}"),
    records.ToolOutcome(14, 1, "no net"),
    records.Rebased(1, 2, PARAMS, (records.Drop(1, 2),)),
    records.MetaUpdated(1, "A title", None),
    records.Purged(1, PurgeMode.REROOT),
    records.Rerooted(1, ((0, records.Created(None, PARAMS)),)),
    records.QosSet(3, True),
    records.Appended(None, (1,)),
    records.EpochBump(),
)


def script(server: FakeServer, *bodies: Any) -> None:
    """A session 4 whose log is `bodies`."""
    told = [responses.SubEvent(1, event(number, body)) for number, body in enumerate(bodies)]
    server.expect(requests.Sessions(True), sessions(summary(4, events=len(bodies))))
    server.expect(requests.Subscribe(4, 0, False), responses.Subscribed(1), *told)


def exported(cli: Cli, *arguments: str) -> list[Any]:
    ran = cli("session", "export", "4", *arguments)
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def spans(line: Any) -> dict[str, list[dict[str, Any]]]:
    """The spans of a trace, by name; their attributes as a dict."""
    found: dict[str, list[dict[str, Any]]] = {}
    for span in line["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        named = {each["key"]: each["value"] for each in span["attributes"]}
        found.setdefault(span["name"], []).append({**span, "attributes": named})
    return found


def test_an_event_a_line(cli: Cli, server: FakeServer) -> None:
    script(server, *LOG)
    lines = exported(cli)
    assert [line["event_id"] for line in lines] == list(range(len(LOG)))
    assert lines[1] == {
        "session": 4,
        "event_id": 1,
        "epoch": 1,
        "ts_unix_ms": 1_700_000_000_001,
        "event": {"type": "message", "role": 0, "text": {"bytes": 9}, "tokens": 2},
    }
    told = [line["event"] for line in lines]
    assert told[0] == {
        "type": "created",
        "parent": None,
        "params": {"temperature": 0.5, "top_p": 0.25, "min_p": 0.0, "top_k": 3, "seed": 42},
    }
    assert told[2]["text"] == {"bytes": 7}
    assert told[3] == {"type": "generation_fingerprint", "digest": "00000000000000ff"}
    assert told[7] == {"type": "generated", "tokens": 2, "text": {"bytes": 6}, "channel": 0, "finish": 0}
    assert told[9] == {"type": "tool_use", "name": "rain", "arguments": {"bytes": 14}}
    assert told[16]["edits"] == 1
    assert told[17] == {"type": "meta_updated", "version": 1, "title": {"bytes": 7}, "archived": None}
    assert told[18] == {"type": "purged", "generation": 1, "descendants": "reroot"}
    assert told[19] == {"type": "rerooted", "purged_parent": 1, "prefix_events": 1}
    assert told[20] == {"type": "qos_set", "class": 3, "batch_invariant": True}
    assert told[21] == {"type": "appended", "text": None, "tokens": 1}
    assert told[22] == {"type": "epoch_bump"}


def test_a_feed(cli: Cli, server: FakeServer) -> None:
    log = (
        records.Created(None, PARAMS),
        records.Named("desk"),
        records.Ingested(1, (1, 2), (records.Entry("EUR 1.10", (3, 4)), records.Entry("old", ())), 1, 0),
        records.FlashAdded(1, "up?", 8),
        records.FlashAnswered(1, "yes", 1, 2.5),
        records.Restored((1,)),
        records.Erased((records.Entry("GBP 1.30", (5, 6)),), (2, 0), 2, (), 2, 0),
    )
    for content in (False, True):
        script(server, *log)
        told = [line["event"] for line in exported(cli, *(["--include-content"] if content else []))]
        shown = (
            ("EUR 1.10", "old", "up?", "yes") if content else ({"bytes": 8}, {"bytes": 3}, {"bytes": 3}, {"bytes": 3})
        )
        assert told[6]["type"] == "erased"
        assert told[6]["entries"] == [{"text": "GBP 1.30" if content else {"bytes": 8}, "tokens": 2}]
        assert told[6]["erased"] == [2, 0]
        assert told[1] == {"type": "named", "name": "desk"}
        assert told[2]["entries"] == [{"text": shown[0], "tokens": 2}, {"text": shown[1], "tokens": 0}]
        assert (told[2]["head_tokens"], told[2]["evicted"]) == (2, 1)
        assert told[3]["query"] == shown[2]
        assert (told[4]["value"], told[4]["confidence"]) == (shown[3], 2.5)


def test_without_content_nobody_said_anything(cli: Cli, server: FakeServer) -> None:
    for form in ("jsonl", "otlp-jsonl"):
        script(server, *LOG)
        out = cli("session", "export", "4", "--format", form).out
        assert "rain" in out
        for words in ("brief", "Grüße", "Let me", "Sunny", "Paris", "dry", "no net", "A title"):
            assert words not in out


def test_with_content(cli: Cli, server: FakeServer) -> None:
    script(server, *LOG)
    told = [line["event"] for line in exported(cli, "--include-content")]
    assert told[2]["text"] == "Grüße"
    assert [told[place]["text"] for place in (5, 6, 7)] == ["Let me", " see.", "Sunny."]
    assert told[9]["arguments"] == '{"in":"Paris"}'
    assert told[15]["note"] == "no net"
    assert told[17]["title"] == "A title"


def test_a_trace(cli: Cli, server: FakeServer) -> None:
    script(server, *LOG)
    (line,) = exported(cli, "--format", "otlp-jsonl", "--model", "tiny", "--include-content")
    found = spans(line)
    (root,) = found["session"]
    first, second, third = found["generate"]
    rain, snow = found["tool_use"]
    assert "parentSpanId" not in root
    assert {span["parentSpanId"] for span in found["generate"]} == {root["spanId"]}
    assert (rain["parentSpanId"], snow["parentSpanId"]) == (first["spanId"], third["spanId"])
    every = [span for named in found.values() for span in named]
    assert len({span["spanId"] for span in every}) == len(every)
    assert {span["traceId"] for span in every} == {root["traceId"]}
    assert (len(root["traceId"]), len(root["spanId"])) == (32, 16)
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in every)
    assert first["startTimeUnixNano"] == "1700000000004000000"
    assert first["endTimeUnixNano"] == "1700000000008000000"
    about = first["attributes"]
    assert about["gen_ai.usage.output_tokens"] == {"intValue": "6"}
    assert about["gen_ai.request.model"] == {"stringValue": "tiny"}
    assert about["gen_ai.response.finish_reasons"] == {"arrayValue": {"values": [{"stringValue": "stop"}]}}
    assert about["superfluid.output.text"] == {"stringValue": "Sunny."}
    assert about["superfluid.output.reasoning"] == {"stringValue": "Let me see."}
    assert second["attributes"]["superfluid.finish"] == {"intValue": "2"}
    assert rain["attributes"]["gen_ai.tool.call.result"] == {"stringValue": "dry"}
    assert "status" not in rain
    assert snow["status"] == {"code": 2}
    assert [said["name"] for said in root["events"]] == ["gen_ai.system.message", "gen_ai.user.message"]
    script(server, *LOG)
    (again,) = exported(cli, "--format", "otlp-jsonl")
    assert spans(again)["session"][0]["traceId"] == root["traceId"]
    assert spans(again)["generate"][0]["spanId"] == first["spanId"]


def test_a_trace_of_hardly_anything(cli: Cli, server: FakeServer) -> None:
    script(server, records.Created(None, PARAMS))
    (line,) = exported(cli, "--format", "otlp-jsonl")
    assert list(spans(line)) == ["session"]


# --- secrets ------------------------------------------------------------------------------------------------------


def secretive() -> tuple[list[Any], list[str]]:
    """A log that holds every secret in every place where there is text, and the secrets."""
    bodies: list[Any] = [records.Created(None, PARAMS)]
    secrets = []
    for text, secret in texts().values():
        secrets.append(secret)
        call = len(bodies) + 1
        bodies += [
            records.Message(1, text, (1,)),
            records.ToolUse(text, json.dumps({"text": text})),
            records.ToolResult(call, text, (1,)),
            records.ToolParseFailure(text),
            records.ToolOutcome(call, 1, text),
            records.ToolReconciliation(call, text),
            records.ToolExpired(call, text),
            records.PermissionRequest(0, text),
            records.Block(1, 1, text, (1,), 2),
            records.MetaUpdated(1, text, None),
            records.Appended(text, (1,)),
            records.GenerationPrompt((1,)),
            records.FlashAdded(1, text, 8),
            records.FlashAnswered(1, text, 1, 1.0),
            *(records.Ingested(1, (), (records.Entry(line, (1,)),), 0, 0) for line in text.splitlines()),
        ]
        # As a model draws it, a few characters a record, beside another channel.
        for at in range(0, len(text), 5):
            bodies.append(records.Generated((1,), text[at : at + 5], 0, 0))
            bodies.append(records.Generated((1,), "thinking", 1, 0))
    return bodies, secrets


@pytest.mark.parametrize("form", ["jsonl", "otlp-jsonl"])
@pytest.mark.parametrize("content", [(), ("--include-content",)])
def test_no_secret_gets_out(cli: Cli, server: FakeServer, form: str, content: tuple[str, ...]) -> None:
    bodies, secrets = secretive()
    script(server, *bodies)
    out = cli("session", "export", "4", "--format", form, *content).out
    assert out
    for line in map(json.loads, out.splitlines()):
        shown = json.dumps(line, ensure_ascii=False)
        # The pieces of a draw lie in lines of their own; a part of a secret so short is in one of them.
        for secret in {*secrets, PASSWORD, *ALONE.values()}:
            assert not leaks(shown, secret, 8)
    if content and form == "jsonl":
        drawn = [line["event"] for line in map(json.loads, out.splitlines()) if line["event"]["type"] == "generated"]
        together = "".join(each["text"] for each in drawn if each["channel"] == 0)
        assert not any(leaks(together, secret) for secret in secrets)


def test_a_long_text_is_cut_after_its_secrets_are_gone(cli: Cli, server: FakeServer) -> None:
    text = "ü" * ((64 << 9) - 6) + " " + ALONE["github"] + " end"
    script(server, records.Created(None, PARAMS), records.Message(1, text, (1,)))
    shown = exported(cli, "--include-content")[1]["event"]["text"]
    assert shown.startswith("üüü")
    assert shown.endswith("bytes more]")
    assert "ghp" not in shown


# --- where it goes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "name"), [("jsonl", "session-4.jsonl"), ("otlp-jsonl", "session-4.traces.otlp.jsonl")]
)
def test_into_a_file(cli: Cli, server: FakeServer, folder: Path, form: str, name: str) -> None:
    (folder / name).write_text("something longer than before" * 1000)
    script(server, *LOG)
    ran = cli("session", "export", "4", "--format", form, "--out", str(folder))
    assert ran == Ran(0, "", f"wrote {folder / name}\n")
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert all(json.loads(line) for line in (folder / name).read_text().splitlines())


@pytest.fixture
def collector() -> Iterator[Any]:
    """A collector of traces that keeps what it gets."""
    got: list[tuple[str, str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        status = 200

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append((self.path, self.headers["content-type"], body))
            self.send_response(type(self).status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", got, Handler
    server.shutdown()
    server.server_close()


def test_to_a_collector(cli: Cli, server: FakeServer, collector: Any) -> None:
    url, got, handler = collector
    script(server, *LOG)
    assert cli("session", "export", "4", "--endpoint", url) == Ran(0, f"{url}/v1/traces: 200\n", "")
    ((path, kind, body),) = got
    assert (path, kind) == ("/v1/traces", "application/json")
    assert b"Sunny" not in body
    assert cli("session", "export", "4", "--endpoint", url, "--include-content").code == 2
    assert len(got) == 1
    script(server, *LOG)
    flags = ("--include-content", "--allow-content-egress")
    assert cli("session", "export", "4", "--endpoint", url, *flags).code == 0
    assert b"Sunny" in got[1][2]
    script(server, *LOG)
    handler.status = 503
    ran = cli("session", "export", "4", "--endpoint", url)
    assert ran.code == 1
    assert f"{url}/v1/traces: 503" in ran.err


def test_bad_options(cli: Cli, server: FakeServer) -> None:
    for arguments in (("--format", "xml"), ("--endpoint", "x"), ("--endpoint", "http://h", "--out", "/tmp")):
        assert cli("session", "export", "4", *arguments).code == 2
    assert server.seen == []
    server.expect(requests.Sessions(True), sessions())
    server.expect(requests.Read(4, (1 << 64) - 1), responses.Err("unknown session 4"))
    assert cli("session", "export", "4").code == 4


def test_a_log_that_breaks_off(cli: Cli, server: FakeServer) -> None:
    first, second = (responses.SubEvent(1, event(number, records.EpochBump())) for number in range(2))
    server.expect(requests.Sessions(True), sessions(summary(4, events=2)))
    server.expect(requests.Subscribe(4, 0, False), responses.Subscribed(1), first, responses.SubEnded(1, "lagged"))
    server.expect(requests.Subscribe(4, 1, False), responses.Subscribed(2), second)
    assert len(cli("session", "export", "4").out.splitlines()) == 2
    server.expect(requests.Sessions(True), sessions(summary(4, events=2)))
    server.expect(requests.Subscribe(4, 0, False), responses.Subscribed(1), first, responses.SubEnded(1, "purged"))
    ran = cli("session", "export", "4")
    assert (ran.code, ran.out) == (1, "")
    assert "purged" in ran.err
