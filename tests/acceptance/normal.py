"""What was said, without what differs from run to run: ids, times, and where one generation's record ends.

How many records a generation is cut into depends on the ticks. So runs of `Generated` records are folded into one,
and event ids are counted in folded records; ids of sessions and subscriptions are counted as they appear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tests.acceptance.talks import fields_of, name_of

Json = Any


def continues(before: Json, event: Json) -> bool:
    """Whether both are records of one generation on one channel."""
    if before is None or name_of(before["body"]) != "Generated" or name_of(event["body"]) != "Generated":
        return False
    first, second = fields_of(before["body"]), fields_of(event["body"])
    return first["finish"] == 0 and first["channel"] == second["channel"]


class Normal:
    """Knows the sessions of one run, and the log of each at its end."""

    def __init__(self, sessions: Iterable[int], logs: dict[int, list[Json]]) -> None:
        self._sessions = {session: f"session {place}" for place, session in enumerate(sessions)}
        self._ids: dict[int, list[int]] = {}
        for session, log in logs.items():
            ids: list[int] = []
            before = None
            for event in log:
                ids.append((ids[-1] if ids else -1) + (not continues(before, event)))
                before = event
            self._ids[session] = ids

    def event_id(self, session: int, event_id: int) -> Json:
        ids = self._ids.get(session, [])
        return ids[event_id] if event_id < len(ids) else f"beyond by {event_id - len(ids)}"

    def end(self, session: int, length: int) -> Json:
        """A half-open end, or a length."""
        return 0 if length == 0 else self.event_id(session, length - 1) + 1

    def session(self, session: int | None) -> Json:
        return None if session is None else self._sessions.get(session, "a stranger")

    def text(self, session: int, text: str) -> str:
        """A message, in which sessions and events are named by their ids."""
        text = re.sub(r"\bsession (\d+)\b", lambda found: str(self.session(int(found[1]))), text)
        return re.sub(
            r"\b(tool call|permission request) (\d+)\b",
            lambda found: f"{found[1]} {self.event_id(session, int(found[2]))}",
            text,
        )

    # --- events ---------------------------------------------------------------------------------------------------

    def events(self, session: int, events: list[Json]) -> list[Json]:
        folded: list[Json] = []
        before = None
        for event in events:
            shown = self.event(session, event)
            if continues(before, event):
                last, more = fields_of(folded[-1]["body"]), fields_of(shown["body"])
                last["span"] += more["span"]
                last["text"] += more["text"]
                last["finish"] = more["finish"]
            else:
                folded.append(shown)
            before = event
        return folded

    def event(self, session: int, event: Json) -> Json:
        return {
            "event_id": self.event_id(session, event["event_id"]),
            "epoch": event["epoch"],
            "ts_unix_ms": type(event["ts_unix_ms"]).__name__,
            "body": self.body(session, event["body"]),
        }

    def body(self, session: int, body: Json) -> Json:
        if isinstance(body, str):
            return body
        ((name, given),) = body.items()
        fields = dict(given)
        for key in ("parent", "purged_parent"):
            if key in fields:
                fields[key] = self.session(fields[key])
        for key in ("call_id", "request_id", "fork_at"):
            if key in fields:
                fields[key] = self.event_id(session, fields[key]) if fields[key] else 0
        if "deadline_unix_ms" in fields:
            fields["deadline_unix_ms"] = bool(fields["deadline_unix_ms"])
        if "edits" in fields:
            fields["edits"] = [self._edit(given["parent"], edit) for edit in fields["edits"]]
        if "prefix" in fields:
            inherited = [
                {"event_id": event_id, "epoch": 0, "ts_unix_ms": 0, "body": body}
                for event_id, body in fields["prefix"]
            ]
            fields["prefix"] = self.events(session, inherited)
        if "span" in fields:
            fields["span"] = list(fields["span"])
        return {name: fields}

    def _edit(self, parent: int, edit: Json) -> Json:
        ((name, given),) = edit.items()
        bounds = {"from": self.event_id(parent, given["from"]), "to": self.end(parent, given["to"])}
        return {name: {**given, **bounds}}

    # --- responses ------------------------------------------------------------------------------------------------

    def response(self, session: int, response: Json) -> Json:
        """`session` is whom the request was about."""
        if isinstance(response, str):
            return response
        ((name, given),) = response.items()
        fields = dict(given)
        match name:
            case "Created":
                fields["session"] = self.session(given["session"])
            case "Committed" | "Delta":
                fields["event"] = self.event(session, given["event"])
            case "Events":
                fields["events"] = self.events(session, given["events"])
            case "Generated":
                fields["events"] = self.events(session, given["events"])
                fields["warm_prefix"] = type(given["warm_prefix"]).__name__
            case "Sessions":
                fields["ids"] = [self.session(id) for id in given["ids"] if id in self._sessions]
            case "Purged":
                fields["sessions"] = [self.session(id) for id in given["sessions"]]
            case "SessionList":
                fields["sessions"] = [self._summary(one) for one in given["sessions"] if one["id"] in self._sessions]
            case "Tree":
                fields["nodes"] = [
                    [self.session(id), self.session(parent), self.event_id(id, at) if at else 0]
                    for id, parent, at in given["nodes"]
                    if id in self._sessions
                ]
            case "Inspection":
                fields["inspection"] = self._inspection(session, given["inspection"])
            case "ToolCalls":
                fields["calls"] = self._calls(session, given["calls"])
            case "Ledger":
                fields["entries"] = [
                    [
                        self.event_id(session, id),
                        {**entry, "lease_deadline_unix_ms": bool(entry["lease_deadline_unix_ms"])},
                    ]
                    for id, entry in given["entries"]
                ]
            case "Pinned":
                fields["deadline_unix_ms"] = bool(given["deadline_unix_ms"])
            case "Err":
                fields["message"] = self.text(session, given["message"])
            case "Text":
                fields["text"] = sorted(set(re.findall(r"^(?:# TYPE )?(\w+)", given["text"], re.MULTILINE)))
            case "Completion":
                fields["text"] = type(given["text"]).__name__
                fields["tokens"] = len(given["tokens"])
            case "Throttled":
                fields["retry_after_ms"] = given["retry_after_ms"] > 0
            case "Meta" | "Media" | "Gc":
                pass
            case _:
                raise AssertionError(f"no rule for {name}")
        return {name: fields}

    def deltas(self, session: int, responses: list[Json]) -> list[Json]:
        """A generation's responses, its `Delta`s folded."""
        *deltas, last = responses
        return [*self.events(session, [fields_of(delta)["event"] for delta in deltas]), self.response(session, last)]

    def _calls(self, session: int, calls: list[Json]) -> list[Json]:
        return [[self.event_id(session, id), *more] for id, *more in calls]

    def _summary(self, given: Json) -> Json:
        session = given["id"]
        return {
            **given,
            "id": self.session(session),
            "parent": self.session(given["parent"]),
            "fork_at": self.event_id(session, given["fork_at"]) if given["fork_at"] else 0,
            "events": self.end(session, given["events"]),
        }

    def _inspection(self, session: int, given: Json) -> Json:
        return {
            **given,
            "summary": self._summary(given["summary"]),
            "open_tool_calls": self._calls(session, given["open_tool_calls"]),
            "events": self.events(session, given["events"]),
            "pin_deadline_unix_ms": bool(given["pin_deadline_unix_ms"]),
        }

    def subscription(self, sub: int, session: int, frames: list[Json]) -> Json:
        """What one subscription was told: its events folded, its provisional text by channel, its end."""
        mine = [frame for frame in frames if fields_of(frame)["sub"] == sub]
        ahead: dict[int, str] = {}
        for frame in mine:
            if name_of(frame) == "SubProvisional":
                fields = fields_of(frame)
                ahead[fields["channel"]] = ahead.get(fields["channel"], "") + fields["text"]
        return {
            "events": self.events(session, [fields_of(f)["event"] for f in mine if name_of(f) == "SubEvent"]),
            "provisional": ahead,
            "ended": [fields_of(f)["reason"] for f in mine if name_of(f) == "SubEnded"],
        }
