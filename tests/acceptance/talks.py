"""The three ways to say a request, each in the JSON form: unix socket, `/web/rpc` with `/web/stream`, `/web/ws`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from superfluid.protocol import jsonform
from superfluid.protocol.requests import Request
from superfluid.protocol.responses import Response
from tests.acceptance.websocket import WebSocket
from tests.durability.house import Wire
from tests.web.server import ORIGIN, Web

Json = Any


def name_of(tagged: Json) -> str:
    """The name of a request, response or record."""
    return tagged if isinstance(tagged, str) else next(iter(tagged))


def fields_of(tagged: Json) -> dict[str, Json]:
    return {} if isinstance(tagged, str) else tagged[name_of(tagged)]


class Talk(ABC):
    """One client. `subscribed` are the frames of subscriptions that came so far."""

    streams = True
    """whether Generate, Subscribe and Unsubscribe are requests like the others"""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.subscribed: list[Json] = []

    @property
    def name(self) -> str:
        return type(self).__name__

    @abstractmethod
    def ask(self, request: Json) -> Json:
        """The reply to a request that is answered once."""

    @abstractmethod
    def generate(self, session: int, max_tokens: int) -> Iterator[Json]:
        """`Delta`s as they come, then `Generated` or `Err`."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Connected(Talk):
    """Frames on one connection."""

    @abstractmethod
    def send(self, request: Json) -> None: ...

    @abstractmethod
    def receive(self) -> Json: ...

    def ask(self, request: Json) -> Json:
        self.send(request)
        return self._reply()

    def _reply(self) -> Json:
        while name_of(reply := self.receive()) in ("SubEvent", "SubProvisional", "SubEnded"):
            self.subscribed.append(reply)
        return reply

    def generate(self, session: int, max_tokens: int) -> Iterator[Json]:
        self.send({"Generate": {"session": session, "max_tokens": max_tokens}})
        while name_of(reply := self._reply()) == "Delta":
            yield reply
        yield reply

    def until_ended(self, sub: int) -> None:
        """Take in the frames of a subscription up to its `SubEnded`."""
        while not any(fields_of(f)["sub"] == sub for f in self.subscribed if name_of(f) == "SubEnded"):
            self.subscribed.append(self.receive())

    def until_event(self, sub: int, event_id: int) -> None:
        """Likewise up to an event."""
        while not any(
            fields_of(f)["sub"] == sub and fields_of(f)["event"]["event_id"] >= event_id
            for f in self.subscribed
            if name_of(f) == "SubEvent"
        ):
            self.subscribed.append(self.receive())


class Socket(Connected):
    def __init__(self, web: Web) -> None:
        super().__init__(web)
        self._wire = Wire(web.daemon)

    def send(self, request: Json) -> None:
        self._wire.send(jsonform.from_json(Request, request))

    def receive(self) -> Json:
        response = self._wire.receive()
        assert response is not None, "the daemon closed the connection"
        return jsonform.to_json(Response, response)

    def close(self) -> None:
        self._wire.socket.close()


class Ws(Connected):
    def __init__(self, web: Web) -> None:
        super().__init__(web)
        self._socket = WebSocket(
            web.address,
            "/web/ws",
            [f"Origin: {ORIGIN}", f"Sec-WebSocket-Protocol: superfluid.v1, superfluid.token.{web.token}"],
        )

    def send(self, request: Json) -> None:
        self._socket.send(json.dumps(request))

    def receive(self) -> Json:
        return json.loads(self._socket.receive())

    def close(self) -> None:
        self._socket.close()


class Http(Talk):
    """`/web/rpc`, and `/web/stream` for generations, whose frames are told as the responses that they stand for."""

    streams = False

    def ask(self, request: Json) -> Json:
        status, headers, body = self.web.post("/web/rpc", request)
        reply = json.loads(body)
        assert status == (429 if name_of(reply) == "Throttled" else 200), (status, reply)
        assert ("retry-after" in headers) is (status == 429)
        return reply

    def generate(self, session: int, max_tokens: int) -> Iterator[Json]:
        committed = []
        with self.web.streaming(session=session, max_tokens=max_tokens) as frames:
            for frame in frames:
                ((kind, content),) = frame.items()
                if kind == "committed":
                    committed.append(content)
                    yield {"Delta": {"event": content}}
                elif kind == "done":
                    yield {"Generated": {"events": committed, **content}}
                else:
                    assert kind == "error"
                    yield {"Err": {"message": content}}

    def close(self) -> None:
        pass


TALKS = (Socket, Http, Ws)
