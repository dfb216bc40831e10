"""The served model as the use cases see it: tokens, template, window. Rendering that may block runs in a thread."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import trio

from superfluid.model.channels import Channels, ChannelSplitter
from superfluid.model.dialect import Conversation, Dialect, required
from superfluid.model.masking import Tokenizer
from superfluid.model.tools import Tool
from superfluid.model.turns import latest
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.codes import Role
from superfluid.protocol.records import GenParams, Span
from superfluid.protocol.refusals import OverWindow
from superfluid.sessions.state import SessionState, Tail

T = TypeVar("T")

FAR_OVER = 2
"""A text that must have so many times the tokens of the window is refused uncounted, by a lower bound."""

INLINE = 4096
"""Characters rendered on the event loop; more go to a thread, since tokenising them may take a while."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One loaded model. `window` is the most tokens a session may have on the input, its reply included."""

    name: str
    vocabulary: Vocabulary
    dialect: Dialect | None
    window: int
    build: str
    identity: bytes
    """digest of the model file"""
    _plain: Tokenizer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_plain", Tokenizer(self.vocabulary))
        self.vocabulary.between = _end_where_cancelled

    def check_length(self, characters: int, *, messages: int = 0, before: int = 0) -> None:
        """Refuse what cannot fit by its length alone: tokenising it would take minutes. Raises OverWindow.

        So many `characters`, in so many `messages`, of one token each at least, after `before` tokens.
        """
        least = before + max(messages, characters // self.vocabulary.longest)
        if least > FAR_OVER * self.window:
            raise OverWindow(least, self.window, counted=False)

    async def tokens(self, text: str) -> Span:
        """`text` as it stands, control tokens allowed (wire-facts 8.3)."""
        return await self._sized(text, lambda: tuple(self.vocabulary.tokenize_long(text, special=True)))

    @property
    def channels(self) -> Channels:
        """What replies are made of: without a template, of text."""
        return Channels() if self.dialect is None else self.dialect.channels

    async def message(self, before: SessionState, role: int, text: str) -> Span:
        """The span of a message after `before`. An assistant's behind a header that nothing was drawn behind is the
        rest of that turn. Raises ProtocolRefusal, also where there is no template."""
        dialect, shape, header = required(self.dialect), conversation(before), _bare_header(before)
        return await self._sized(text, lambda: _message(dialect, shape, header, role, text))

    async def declaration(self, before: SessionState, text: str, tools: Sequence[Tool], size: int) -> Span:
        """The span of a system message that declares tools, `size` characters of them. Raises as `message`, and
        NoToolCalls."""
        dialect, shape = required(self.dialect), conversation(before)
        return await self._sized(text, lambda: dialect.message(shape, Role.SYSTEM, text, tools), size)

    async def tool_result(self, before: SessionState, name: str, content: str, call_id: int) -> Span:
        """The span of the result of a call of the tool `name`. Raises as `message`."""
        dialect, shape = required(self.dialect), conversation(before)
        return await self._sized(content, lambda: dialect.tool_result(shape, name, content, call_id))

    def message_now(self, before: SessionState, role: int, text: str) -> Span:
        """As `message`, for callers that are in a thread already, or whose text is short."""
        return _message(required(self.dialect), conversation(before), _bare_header(before), role, text)

    def tokens_now(self, text: str) -> Span:
        return tuple(self.vocabulary.tokenize_long(text, special=True))

    def data_frame(self, before: SessionState) -> tuple[Span, Span]:
        """What opens and what ends a user turn for data after `before` (decision 18).

        The first closes an assistant turn that was cut, and is () in an open data turn. Both are () where the model
        has no template: data are plain text then, but for a BOS at the start.
        """
        if self.dialect is None:
            return self._plain_start(before), ()
        return self.dialect.data_frame(_closing(before))

    async def question(self, before: SessionState, text: str) -> Span:
        """A user turn that finds its place after anything: it ends an open data turn, and closes a reply that was
        cut. Without a template, it is the text as it stands."""
        if (dialect := self.dialect) is None:
            return await self._sized(text, lambda: (*self._plain_start(before), *self.plain_now(text)))
        return await self._sized(text, lambda: dialect.turn(_closing(before), text))

    async def turn(self, before: SessionState, role: int, text: str) -> Span:
        """As `message`, where it closes a reply that was cut."""
        dialect = required(self.dialect)
        return await self._sized(text, lambda: dialect.message(_closing(before), role, text))

    def _plain_start(self, before: SessionState) -> Span:
        bos = self.vocabulary.bos
        return (bos,) if self.vocabulary.adds_bos and bos is not None and not before.tokens else ()

    async def line(self, text: str) -> Span:
        """One data entry: its text, in which nothing is a control token, and a line end."""
        return await self._sized(text, lambda: self.line_now(text))

    async def lines(self, texts: Sequence[str]) -> tuple[Span, ...]:
        """As `line`, of many."""
        if sum(map(len, texts)) + 64 * len(texts) <= INLINE:
            return tuple(map(self.line_now, texts))
        return await trio.to_thread.run_sync(lambda: tuple(map(self.line_now, texts)))

    def line_now(self, text: str) -> Span:
        """As `line`, for callers that are in a thread already, or whose text is short."""
        return self.plain_now(text + "\n")

    async def plain(self, text: str) -> Span:
        """`text` at the start of a line, in which nothing is a control token."""
        return await self._sized(text, lambda: self.plain_now(text))

    def plain_now(self, text: str) -> Span:
        """As `plain`, for callers that are in a thread already, or whose text is short."""
        return tuple(self._plain.ids(self._plain.masks.mask(text), before="\n"))

    def opener(self, before: SessionState) -> Span:
        """What opens the assistant's turn, nothing where the stream goes on as it stands (wire-facts 8.8)."""
        if self.dialect is None or before.tail not in (Tail.TURN, Tail.FINISHED, Tail.DATA):
            return ()
        return self.dialect.opener(conversation(before))

    def splitter(self, state: SessionState, channels: Channels) -> ChannelSplitter:
        """Cuts what is drawn next into runs: in an open turn from where it stands, half a character included."""
        start = state.turn_start if state.tail is Tail.OPEN else len(state.tokens)
        header = state.tokens[max(0, start - len(channels.opened)) : start]
        splitter = channels.splitter(self.vocabulary.piece, header)
        splitter.restore(token for token in state.tokens[start:] if token < self.vocabulary.size)
        return splitter

    def fingerprint(self, params: GenParams) -> int:
        """What shapes a generation besides its input: model, build, template, sampling without the seed."""
        dialect = self.dialect.digest if self.dialect is not None else 0
        facts = (params.temperature, params.top_p, params.min_p, params.top_k, dialect, self.build)
        digest = hashlib.blake2b(self.identity + repr(facts).encode(), digest_size=8)
        return int.from_bytes(digest.digest(), "little")

    async def _sized(self, text: str, work: Callable[[], T], more: int = 0) -> T:
        if len(text) + more <= INLINE:
            return work()
        return await trio.to_thread.run_sync(work)


def _end_where_cancelled() -> None:
    """Raises Cancelled in a thread whose result nobody waits for any more."""
    try:
        trio.from_thread.check_cancelled()
    except RuntimeError:
        pass  # no thread of trio's


def _closing(state: SessionState) -> Conversation:
    """As `conversation`, where what comes next is to close a reply that was cut."""
    cut = state.tail is Tail.OPEN and state.roles[-1:] == [Role.ASSISTANT]
    return replace(conversation(state), cut=cut)


def _message(dialect: Dialect, shape: Conversation, header: Span, role: int, text: str) -> Span:
    if header and role == Role.ASSISTANT:
        for finished in (False, True):  # whether the header begins with a separator
            before = replace(shape, roles=shape.roles[:-1], finished=finished)
            whole = dialect.message(before, role, text)
            if whole[: len(header)] == header:
                return whole[len(header) :]
    return dialect.message(shape, role, text)


def _bare_header(state: SessionState) -> Span:
    """The assistant header at the end of the stream, where nothing was drawn behind it; else nothing."""
    if state.tail is not Tail.OPEN or not state.said:
        return ()
    last = state.said[-1]
    if last.role != Role.ASSISTANT or not last.end == last.turn_start == len(state.tokens):
        return ()
    return tuple(state.tokens[last.start :])


def conversation(state: SessionState) -> Conversation:
    """The shape of `state` that templates see."""
    return Conversation(
        roles=latest(state.roles),
        empty=not state.tokens,
        finished=state.tail is Tail.FINISHED,
        created_ms=state.created_ms,
        data=state.tail is Tail.DATA,
    )
