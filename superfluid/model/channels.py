"""What a reply is made of: text, reasoning and tool calls, told apart by the markers that the model draws (8.8).

`Channels` is what a model has by way of markers; a `ChannelSplitter` follows one turn, token by token. Every token
lands in exactly one run, in order, so that the spans of the runs are the drawn tokens. Marker tokens are in a span
and never in a text: one that opens a block belongs to its run, one that closes it too. Of a marker that is spelled by
several tokens, those that might have been text stay in the run before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from superfluid.model.callformat import CallFormat, call_begins
from superfluid.model.text import TextStream
from superfluid.protocol.codes import Channel

REASONING = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""pairs of markers around reasoning; a template that knows about reasoning names those of its model"""


@dataclass(frozen=True, slots=True)
class Marker:
    """`token` is the control token that spells it, where the vocabulary has one: then text never counts as it."""

    text: str
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a reply on a channel of its own. Without `closing` it goes on to the end of the turn."""

    channel: Channel
    opening: Marker
    closing: Marker | None


@dataclass(frozen=True, slots=True)
class Run:
    """Drawn tokens of one channel and the text that became certain with them; either may be empty.

    `call`: what the model wrote as a tool call, markers left out, where this run completes one.
    """

    channel: Channel
    tokens: tuple[int, ...]
    text: str
    call: str | None = None


@dataclass(frozen=True, slots=True)
class Channels:
    """The blocks of a model's replies. Without any, everything is text."""

    blocks: tuple[Block, ...] = ()
    bare_calls: bool = False
    """a reply may be a tool call without marker, see `callformat.call_begins`"""
    opened: tuple[int, ...] = ()
    """the end of the assistant header, where it leaves the first block open already; else ()"""

    def splitter(self, piece: Callable[[int], bytes], before: Sequence[int] = ()) -> ChannelSplitter:
        """A splitter for a turn whose drawn tokens come after `before` (its last tokens will do)."""
        splitter = ChannelSplitter(self, piece)
        if self.opened and tuple(before[-len(self.opened) :]) == self.opened:
            splitter.enter(self.blocks[0])
        return splitter

    def without_calls(self) -> Channels:
        """For a reply to which no tools were given."""
        blocks = tuple(block for block in self.blocks if block.channel is not Channel.TOOL_CALL)
        return replace(self, blocks=blocks, bare_calls=False)


def channels_of(source: str, control: Mapping[str, int], calls: CallFormat | None) -> Channels:
    """The channels of a model with that template source, those control tokens and that call format."""
    blocks: list[Block] = []
    for opening, closing in REASONING:
        if closing in source:
            blocks.append(Block(Channel.REASONING, _marker(opening, control), _marker(closing, control)))
    if calls is not None:
        end = None if calls.closing is None else _marker(calls.closing, control)
        blocks.append(Block(Channel.TOOL_CALL, _marker(calls.opening, control), end))
    return Channels(tuple(blocks), bare_calls=calls is not None and calls.bare)


class ChannelSplitter:
    """One turn, cut into runs. What comes out in all does not depend on when `runs` is asked.

    A turn that is cut and continued later is restored from its tokens; so nothing is flushed before its end, and
    text that may yet be a marker, half a character and half a call wait for the rest.
    """

    def __init__(self, channels: Channels, piece: Callable[[int], bytes]) -> None:
        """`piece` gives the bytes that a token adds to a text, none for control tokens."""
        self._piece = piece
        self._plain = not channels.blocks
        self._bare = channels.bare_calls
        self._by_token = {b.opening.token: b for b in channels.blocks if b.opening.token is not None}
        self._by_text = {b.opening.text: b for b in channels.blocks if b.opening.token is None}
        self._stream = TextStream()
        self._block: Block | None = None
        self._leads = self._first_letters()
        """what the markers begin with that are spelled where the reply stands"""
        self._held = ""
        """text of the current channel that may yet be a marker"""
        self._fresh = True
        """no text that can be seen came on the text channel so far"""
        self._call: list[str] = []
        self._token: int | None = None
        """the token at hand, as long as no run has it"""
        self._tokens: list[int] = []
        self._text: list[str] = []
        self._done: list[Run] = []
        self._shown: list[tuple[Channel, str]] = []

    @property
    def channel(self) -> Channel:
        """Where the next text goes, as far as is known."""
        return Channel.TEXT if self._block is None else self._block.channel

    def enter(self, block: Block) -> None:
        """Begin inside a block."""
        self._stand_in(block)

    def restore(self, tokens: Iterable[int]) -> None:
        """Bring a fresh splitter to where it was after these tokens of the turn. They come out of no run again."""
        for token in tokens:
            self.feed(token)
        self.runs()

    def feed(self, token: int) -> list[tuple[Channel, str]]:
        """One drawn token; the texts that became certain with it, by channel."""
        self._shown = []
        if self._plain:
            self._tokens.append(token)
            self._emit(self._stream.feed(self._piece(token)))
            return self._shown
        self._token = token
        if not self._control(token):
            self._scan(self._stream.feed(self._piece(token)))
        self._place()
        return self._shown

    def flush(self) -> list[tuple[Channel, str]]:
        """The turn is over: the texts held back until now. A call that was not closed ends here, if it has a text."""
        self._shown = []
        self._release()
        if "".join(self._call).strip():
            self._end_run(call="".join(self._call))
        self._call = []
        return self._shown

    def release(self) -> list[tuple[Channel, str]]:
        """Nothing more is drawn, though the turn is not over: the text held back because it might be a marker."""
        self._shown = []
        self._emit_up_to(len(self._held))
        return self._shown

    def runs(self) -> tuple[Run, ...]:
        """The runs since the last time, the one in progress cut off here."""
        self._end_run()
        done, self._done = tuple(self._done), []
        return done

    # ---- markers

    def _control(self, token: int) -> bool:
        """Whether `token` is a marker that counts here by its id."""
        if self._block is None:
            block = self._by_token.get(token)
            if block is None:
                return False
            self._release()
            self._open(block)
            return True
        if self._block.closing is None or self._block.closing.token != token:
            return False
        self._release()
        self._close()
        return True

    def _scan(self, text: str) -> None:
        self._held += text
        while self._held:
            if self._bare and self._fresh and self._block is None and not self._decide_bare():
                return
            if not any(lead in self._held for lead in self._leads):
                self._emit_up_to(len(self._held))
                return
            markers = self._markers()
            places = [(at, -len(marker), marker) for marker in markers if (at := self._held.find(marker)) >= 0]
            if not places:
                self._emit_up_to(len(self._held) - self._overlap(markers))
                return
            at, _, marker = min(places)
            self._emit_up_to(at)
            self._held = self._held[len(marker) :]
            if self._block is None:
                self._open(self._by_text[marker])
            else:
                self._close()

    def _decide_bare(self) -> bool:
        """Whether to go on: False while it is open whether the reply is a call without marker."""
        self._emit_up_to(len(self._held) - len(self._held.lstrip()))
        if not self._held:
            return False
        verdict = call_begins(self._held)
        if verdict is None:
            return False
        if verdict:
            self._open(_BARE_CALL)
        return True

    def _markers(self) -> Iterable[str]:
        """The texts that are markers where the reply stands."""
        if self._block is None:
            return self._by_text
        closing = self._block.closing
        return () if closing is None or closing.token is not None else (closing.text,)

    def _first_letters(self) -> frozenset[str]:
        return frozenset(marker[0] for marker in self._markers())

    def _stand_in(self, block: Block | None) -> None:
        self._block = block
        self._leads = self._first_letters()

    def _overlap(self, markers: Iterable[str]) -> int:
        """How many characters at the end of what is held begin a marker."""
        most = max((min(len(marker) - 1, len(self._held)) for marker in markers), default=0)
        for length in range(most, 0, -1):
            if any(marker.startswith(self._held[-length:]) for marker in markers):
                return length
        return 0

    def _open(self, block: Block) -> None:
        self._end_run()
        self._stand_in(block)
        self._call = []
        self._place()

    def _close(self) -> None:
        self._place()
        called = self.channel is Channel.TOOL_CALL
        self._end_run(call="".join(self._call) if called else None)
        self._stand_in(None)
        self._call = []

    # ---- runs

    def _place(self) -> None:
        if self._token is not None:
            self._tokens.append(self._token)
            self._token = None

    def _release(self) -> None:
        """No more text comes that could complete what is held."""
        self._held += self._stream.flush()
        self._emit_up_to(len(self._held))

    def _emit_up_to(self, end: int) -> None:
        text, self._held = self._held[:end], self._held[end:]
        self._emit(text)

    def _emit(self, text: str) -> None:
        if not text:
            return
        channel = self.channel
        self._text.append(text)
        self._shown.append((channel, text))
        if channel is Channel.TOOL_CALL:
            self._call.append(text)
        elif channel is Channel.TEXT and not text.isspace():
            self._fresh = False

    def _end_run(self, call: str | None = None) -> None:
        if self._tokens or self._text or call is not None:
            self._done.append(Run(self.channel, tuple(self._tokens), "".join(self._text), call))
            self._tokens, self._text = [], []


_BARE_CALL = Block(Channel.TOOL_CALL, Marker(""), None)


def _marker(text: str, control: Mapping[str, int]) -> Marker:
    return Marker(text, control.get(text))
