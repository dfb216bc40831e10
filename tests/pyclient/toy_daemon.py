"""`superfluid serve` in miniature, for the demos: a log that survives SIGKILL, and a model that counts.

The n-th token of a session's replies is "n ". A commit comes after every fourth, and a pause after each commit, so
that a client can pull the plug.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = 4


class Log:
    """Every session's events, in one file of lines."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.sessions: dict[int, list[dict[str, Any]]] = {}
        self._path = directory / "log"
        self._lock = threading.Lock()
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                session, event = json.loads(line)
                self.sessions.setdefault(session, []).append(event)
        for session in list(self.sessions):
            self.commit(session, "EpochBump")

    def create(self, inherited: list[dict[str, Any]], body: Any) -> int:
        with self._lock:
            session = len(self.sessions) + 1
            self.sessions[session] = list(inherited)
        self.commit(session, body)
        return session

    def commit(self, session: int, body: Any) -> dict[str, Any]:
        with self._lock, self._path.open("a") as file:
            events = self.sessions[session]
            event = {"event_id": len(events), "epoch": 1, "ts_unix_ms": 0, "body": body}
            events.append(event)
            file.write(json.dumps([session, event]) + "\n")
        return event

    def drawn(self, session: int) -> int:
        bodies = [event["body"] for event in self.sessions[session]]
        return sum(len(body["Generated"]["span"]) for body in bodies if "Generated" in body)

    def params(self, session: int) -> Any:
        bodies = [event["body"] for event in reversed(self.sessions[session])]
        return next(
            fields["params"]
            for body in bodies
            if body != "EpochBump"
            for fields in body.values()
            if "params" in fields
        )


def answer(log: Log, verb: str, args: Any) -> Any:
    if verb == "Create":
        return {"Created": {"session": log.create([], {"Created": args})}}
    session = args["session"]
    if verb == "Fork":
        params = args["params"] or log.params(session)
        body = {"Forked": {"parent": session, "fork_at": args["at_event"], "params": params}}
        return {"Created": {"session": log.create(log.sessions[session][: args["at_event"]], body)}}
    if verb == "AppendMessage":
        body = {"Message": {"role": args["role"], "text": args["text"], "span": [0] * 5}}
        return {"Committed": {"event": log.commit(session, body)}}
    if verb == "Read":
        return {"Events": {"events": log.sessions[session][args["cursor"] :]}}
    if verb == "Inspect":
        return {"Inspection": {"inspection": {"summary": {"tokens": 20}, "params": log.params(session)}}}
    return {"Err": {"message": f"session {session} has no generation in flight"}}


class Handler(BaseHTTPRequestHandler):
    log: Log

    def do_GET(self) -> None:
        self._whole(b"")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/web/stream":
            self._stream(**body)
        else:
            ((verb, args),) = body.items()
            self._whole(json.dumps(answer(self.log, verb, args)).encode())

    def log_message(self, *_: object) -> None: ...

    def _whole(self, data: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, session: int, max_tokens: int, provisional: bool) -> None:
        self.send_response(200)
        self.end_headers()
        first = self.log.drawn(session)
        pending: list[int] = []
        for token in range(first, first + max_tokens):
            pending.append(token)
            if provisional:
                self._frame({"provisional": {"channel": 0, "text": f"{token} "}})
            last = token == first + max_tokens - 1
            if len(pending) == COMMIT or last:
                text = "".join(f"{token} " for token in pending)
                body = {"Generated": {"span": pending, "text": text, "channel": 0, "finish": 2 if last else 0}}
                self._frame({"committed": self.log.commit(session, body)})
                pending = []
                time.sleep(0.01)
        self._frame({"done": {"tokens_generated": max_tokens, "finish": 2, "warm_prefix": 20}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _frame(self, frame: Any) -> None:
        self.wfile.write(f"data: {json.dumps(frame)}\n\n".encode())


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--sessions", type=Path)
    parser.add_argument("--socket", type=Path)
    parser.add_argument("--web")
    parser.add_argument("--no-http", action="store_true", required=True)
    parser.add_argument("--no-tui", action="store_true", required=True)
    args = parser.parse_args(argv)
    if args.model == "broken":
        sys.exit("superfluid: no such model")
    Handler.log = Log(args.sessions)
    host, _, port = args.web.partition(":")
    server = ThreadingHTTPServer((host, int(port)), Handler)
    (args.sessions / "web-token").write_text("token")
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
