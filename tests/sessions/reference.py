"""The token stream as a list of pieces: a simple and slow model of what records do to it.

A piece is what one record, or one entry of a batch, put on the input. Positions, tails and the rest are read off the
list; nothing is ever moved.
"""

from dataclasses import dataclass, field

from superfluid.protocol import records
from superfluid.protocol.codes import Channel, Finish, Role
from superfluid.protocol.records import Event, span_of
from superfluid.sessions.state import Tail


@dataclass
class Piece:
    tokens: list[int]
    kind: str
    """message, header, drawn, raw, frame or entry"""
    message: int | None = None
    """the message of which it is a part"""
    ends: bool = False
    """of a drawn piece: the turn ended with it"""


@dataclass
class Spoken:
    role: int
    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


class Reference:
    def __init__(self, events: list[Event]) -> None:
        self.pieces: list[Piece] = []
        self.spoken: list[Spoken] = []
        self.detached: list[list[int]] = []
        self.ever = 0
        self.version = self.ingested = self.evicted = self.dropped = self.turns = 0
        self.window: int | None = None
        self.pre_decode = False
        self.flashes: dict[int, list[object]] = {}
        for event in events:
            self._take(event)

    # --- what a state should say ----------------------------------------------------------------------------------

    @property
    def tokens(self) -> list[int]:
        return [token for piece in self.pieces for token in piece.tokens]

    @property
    def tail(self) -> Tail:
        last = self.pieces[-1] if self.pieces else None
        match last.kind if last else None:
            case None:
                return Tail.EMPTY
            case "message":
                return Tail.TURN
            case "header":
                return Tail.OPEN
            case "drawn":
                return Tail.FINISHED if last.ends else Tail.OPEN
            case "raw":
                return Tail.RAW
            case _:
                return Tail.DATA

    @property
    def turn_start(self) -> int:
        drawn = 0
        for piece in reversed(self.pieces):
            if piece.kind != "drawn" or (drawn and piece.ends):
                break
            drawn += len(piece.tokens)
        return len(self.tokens) - drawn

    @property
    def entries(self) -> list[tuple[int, int]]:
        return [(self._at(place), len(piece.tokens)) for place, piece in self._of("entry")]

    @property
    def said(self) -> list[tuple[int, str, int, int, tuple[tuple[str, str], ...]]]:
        found = []
        for number, spoken in enumerate(self.spoken):
            mine = [place for place, piece in enumerate(self.pieces) if piece.message == number]
            start, end = self._at(mine[0]), self._at(mine[-1] + 1)
            found.append((spoken.role, spoken.text, start, end, tuple(spoken.calls)))
        return found

    def _at(self, place: int) -> int:
        return sum(len(piece.tokens) for piece in self.pieces[:place])

    def _of(self, kind: str) -> list[tuple[int, Piece]]:
        return [(place, piece) for place, piece in enumerate(self.pieces) if piece.kind == kind]

    # --- records --------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        body = event.body
        match body:
            case records.Ingested():
                self._ingest(body)
            case records.Rewound():
                self.version = body.version
                self._rewind(body.messages)
            case records.Restored():
                back, self.detached = self.detached, []
                self._data(list(body.head), back)
            case records.Message() | records.ToolResult():
                if body.span:
                    role, text = (body.role, body.text) if isinstance(body, records.Message) else (3, body.content)
                    self._speak(Spoken(role, text), Piece(list(body.span), "message"))
            case records.GenerationPrompt():
                if body.span:
                    self._speak(Spoken(Role.ASSISTANT), Piece(list(body.span), "header"))
            case records.Generated():
                self._draw(body)
            case records.Appended() | records.Block():
                if body.span:
                    self._put(Piece(list(body.span), "raw"))
            case records.ToolUse():
                if self.spoken and self.spoken[-1].role == Role.ASSISTANT:
                    self.spoken[-1].calls.append((body.name, body.arguments))
            case records.FeedOpened():
                self.window, self.pre_decode = body.window, body.pre_decode
            case records.Forked() | records.Rebased():
                self.flashes = {}
            case records.FlashAdded():
                self.flashes[body.id] = [body.query, None]
            case records.FlashRemoved():
                self.flashes.pop(body.id, None)
            case records.FlashAnswered():
                if body.id in self.flashes:
                    self.flashes[body.id][1] = (body.value, body.data_version, event.ts_unix_ms, self.ever)
            case _:
                assert not span_of(body)

    def _put(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.ever += len(piece.tokens)

    def _speak(self, spoken: Spoken, piece: Piece) -> None:
        piece.message = len(self.spoken)
        self.spoken.append(spoken)
        self._put(piece)

    def _draw(self, body: records.Generated) -> None:
        text = body.text if body.channel == Channel.TEXT else ""
        self.turns += body.finish in (Finish.END_OF_TURN, Finish.LENGTH, Finish.GRAMMAR)
        piece = Piece(list(body.span), "drawn", ends=body.finish == Finish.END_OF_TURN)
        last = self.pieces[-1] if self.pieces else None
        if body.span and self.tail in (Tail.TURN, Tail.FINISHED, Tail.DATA):
            self._speak(Spoken(Role.ASSISTANT, text), piece)
            return
        goes_on = last is not None and last.message is not None and self.spoken[last.message].role == Role.ASSISTANT
        if goes_on:
            piece.message = last.message
            self.spoken[last.message].text += text
        if body.span:
            self._put(piece)

    def _ingest(self, body: records.Ingested) -> None:
        self.version = body.version
        self.ingested += len(body.entries)
        self.dropped += body.dropped
        self.evicted += body.evicted
        leaving = body.evicted - sum(not entry.span for entry in body.entries)
        for _, piece in self._of("entry")[:leaving]:
            self.pieces = [other for other in self.pieces if other is not piece]
            leaving -= 1
        del self.detached[:leaving]
        self._data(list(body.head), [list(entry.span) for entry in body.entries if entry.span])

    def _data(self, head: list[int], entries: list[list[int]]) -> None:
        if head:
            self._put(Piece(head, "frame"))
        for entry in entries:
            self._put(Piece(entry, "entry"))

    def _rewind(self, messages: int) -> None:
        messages = min(messages, len(self.spoken))
        keep = max((place + 1 for place, p in enumerate(self.pieces) if p.message == messages - 1), default=0)
        self.detached += [piece.tokens for piece in self.pieces[keep:] if piece.kind == "entry"]
        del self.pieces[keep:]
        del self.spoken[messages:]
