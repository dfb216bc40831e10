"""What a conversation looks like to the model: message spans and assistant headers (wire-facts 8.4, 8.8).

The span of a message is what rendering adds after the messages before it. Those messages are not at hand and their
texts do not matter, so placeholders stand for them. Where a template does not simply add at the end (it folds the
system text into the first user turn, rewrites earlier turns, closes a turn late), the span begins where the last
placeholder and the closing text that follows it end. So the spans of a conversation, its replies and its openers, one
after the other, are the tokens of the whole rendering.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from superfluid.model import probes
from superfluid.model.callformat import CallFormat, NoCalls, learn
from superfluid.model.callparse import parse_arguments
from superfluid.model.channels import Channels, channels_of
from superfluid.model.masking import LEFT, RIGHT, Tokenizer
from superfluid.model.template import ChatTemplate, TemplateError
from superfluid.model.turns import (
    Conversation,
    Turn,
    TurnCall,
    call_name,
    histories,
    placeholder,
    placeholder_like,
    role_name,
)
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.codes import Role
from superfluid.protocol.refusals import NoToolCalls, ProtocolRefusal

__all__ = ["NO_DIALECT", "Conversation", "Dialect", "dialect_of", "required"]

_log = logging.getLogger("superfluid.model")

NO_DIALECT = "this model has no chat template, so messages cannot be rendered; use Append with plain text or tokens"


@dataclass(frozen=True, slots=True)
class _Delta:
    """What is new in a rendering, and what stands right before it up to the last placeholder."""

    before: str
    text: str
    open: bool = False
    """more text of the same turn is to follow"""


class _NoPlace(Exception):
    """A rendering came out, but where the new message begins in it cannot be told."""


class Dialect:
    """A vocabulary and a chat template joined. Keeps no state; may be used from any thread.

    `message` and `opener` raise `ProtocolRefusal` with the template's own text where the template refuses.
    """

    def __init__(self, vocabulary: Vocabulary, template: ChatTemplate) -> None:
        """Raises `TemplateError` where the template cannot render a single user message."""
        self._vocabulary = vocabulary
        self._template = template
        self._tokenizer = Tokenizer(vocabulary)
        user = placeholder(0, Role.USER)
        if user.content not in self._render((user,), 0):
            raise TemplateError("the chat template leaves out the text of a user message")
        self.calls: CallFormat | NoCalls = learn(template)
        """how the model calls tools, or why it cannot be given any"""
        self._format = self.calls if isinstance(self.calls, CallFormat) else None
        self._folds_system = probes.folds_system(self._bare)
        self._merges_results = probes.merges_results(self._bare, self._format)
        self.orders = probes.orders(self._bare, self._format)
        """orders of roles that the template takes, see `probes.ORDERS`"""
        self.channels = self._learn_channels()
        _log.debug(
            "chat template: takes %s; system text %s; tools: %s",
            ", ".join(sorted(self.orders)) or "single messages only",
            "is folded into the first user turn" if self._folds_system else "is a turn of its own",
            self.calls.name if isinstance(self.calls, CallFormat) else self.calls.found,
        )
        digest = hashlib.blake2b(template.source.encode("utf-8", "replace"), digest_size=8, key=vocabulary.identity)
        self._digest = int.from_bytes(digest.digest(), "little")

    @property
    def digest(self) -> int:
        """Names template and vocabulary together: 64 bits."""
        return self._digest

    def message(
        self, before: Conversation, role: int, text: str, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[int, ...]:
        """The span of a message that comes after `before`, with prologue or turn separator where one is due.

        `tools` are function declarations in JSON form; only the first message can bring them (wire-facts 8.5).
        Raises `NoToolCalls` where the model cannot be given any.
        """
        if tools and isinstance(self.calls, NoCalls):
            raise NoToolCalls(self.calls.found)
        masked = self._tokenizer.masks.mask(text)
        turn = Turn(role, masked) if role != Role.TOOL else Turn(role, masked, name="tool", call_id=call_name(0))
        return self._said(before, turn, tools)

    def called(self, before: Conversation, text: str, calls: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        """The span of an assistant message with tool calls, each a name and its arguments as JSON text.

        Arguments that are no JSON object go to the template as the text they are, and where it cannot write that,
        they are left out: a broken call in a history must not end the conversation.
        Raises `NoToolCalls` where the template has no known way to write calls.
        """
        if isinstance(self.calls, NoCalls):
            raise NoToolCalls(self.calls.found)
        try:
            return self._said(before, self._caller(text, calls, drop_broken=False), None)
        except ProtocolRefusal:
            return self._said(before, self._caller(text, calls, drop_broken=True), None)

    def tool_result(self, before: Conversation, name: str, content: str, call_id: int = 0) -> tuple[int, ...]:
        """The span of the result of the tool `name`, with the turn separator where one is due."""
        masks = self._tokenizer.masks
        turn = Turn(Role.TOOL, masks.mask(content), name=masks.mask(name), call_id=call_name(call_id))
        return self._said(before, turn, None)

    def _caller(self, text: str, calls: Sequence[tuple[str, str]], *, drop_broken: bool) -> Turn:
        masks = self._tokenizer.masks
        made: list[TurnCall] = []
        for index, (name, given) in enumerate(calls):
            found = parse_arguments(given)
            broken: Mapping[str, Any] | str = {} if drop_broken else masks.mask(given)
            arguments = broken if found is None else masks.mask_all(found)
            if self._format is not None and self._format.as_text and not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            made.append(TurnCall(call_name(index), masks.mask(name), arguments))
        return Turn(Role.ASSISTANT, masks.mask(text), tuple(made))

    def _said(self, before: Conversation, turn: Turn, tools: Sequence[Mapping[str, Any]] | None) -> tuple[int, ...]:
        role = turn.role
        try:
            delta = self._first(turn, before.created_ms, tools) if before.empty else self._after_all(before, turn)
        except TemplateError as error:
            raise ProtocolRefusal(f"the chat template refuses: {error}") from None
        except RecursionError:
            raise ProtocolRefusal("the tools or arguments are nested too deep") from None
        except _NoPlace:
            raise ProtocolRefusal(f"the chat template leaves out a {role_name(role)} message here") from None
        return self._span(before, delta)

    def opener(self, before: Conversation) -> tuple[int, ...]:
        """The assistant header after `before`, with the turn separator first where one is due. May be ()."""
        try:
            delta = self._opener(before)
        except TemplateError as error:
            raise ProtocolRefusal(f"the chat template refuses: {error}") from None
        except _NoPlace:
            raise ProtocolRefusal("the chat template has no place for a reply here") from None
        return self._span(before, delta)

    def _span(self, before: Conversation, delta: _Delta) -> tuple[int, ...]:
        if delta.open:
            # white space at the end is split as it is before a word
            ids = self._tokenizer.ids(delta.text + "a", before=delta.before)
            if ids and self._vocabulary.piece(ids[-1]) == b"a":
                ids.pop()
            else:
                ids = self._tokenizer.ids(delta.text, before=delta.before)
        else:
            ids = self._tokenizer.ids(delta.text, before=delta.before)
        bos = self._vocabulary.bos
        if before.empty and self._vocabulary.adds_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return tuple(ids)

    # ---- messages

    def _after_all(self, before: Conversation, turn: Turn) -> _Delta:
        refused: TemplateError | None = None
        for history in self._histories(before, turn):
            try:
                return self._after(history, turn, before)
            except TemplateError as error:
                refused = refused or error
                if self._accepts(history, before.created_ms):
                    # the history is fine, so it is this message that the template does not want
                    raise
            except _NoPlace:
                pass
        raise refused or _NoPlace

    def _histories(self, before: Conversation, turn: Turn) -> list[tuple[Turn, ...]]:
        if turn.role != Role.TOOL:
            return histories(before, self._format)
        if self._merges_results:
            # as if it were the first result: what the others ended with is on the input
            roles = before.roles
            while len(roles) > 1 and roles[-1] == Role.TOOL:
                roles = roles[:-1]
            before = replace(before, roles=roles)
        return histories(before, self._format, results=1)

    def _first(self, turn: Turn, now_ms: int, tools: Sequence[Mapping[str, Any]] | None) -> _Delta:
        plain = self._alone(turn, now_ms, None)
        if not tools:
            return plain
        equipped = self._alone(turn, now_ms, self._tokenizer.masks.mask_all(tools))
        if equipped == plain:
            raise TemplateError("it has no place for tools in the first message")
        return equipped

    def _alone(self, turn: Turn, now_ms: int, tools: Sequence[Mapping[str, Any]] | None) -> _Delta:
        if turn.role != Role.SYSTEM or not self._folds_system:
            text = self._render((turn,), now_ms, tools=tools)
            probe = placeholder(0, turn.role)
            if turn.role != Role.ASSISTANT and probe.content not in self._render((probe,), now_ms):
                raise _NoPlace
            return _Delta("", text)
        probe = placeholder(1, Role.USER)
        text = self._render((turn, probe), now_ms, tools=tools)
        return _Delta("", text[: _find(text, probe)], open=True)

    def _after(self, history: tuple[Turn, ...], turn: Turn, before: Conversation) -> _Delta:
        """What `turn` adds after `history`, which has at least one turn."""
        probe = placeholder_like(len(history), turn, self._format)
        shape, start = self._start(history, probe, before)
        if probe.end_in(shape[start:]) < 0:
            raise _NoPlace
        full = self._render((*history, turn), before.created_ms)
        if not full.startswith(shape[:start]):
            # what the template writes earlier depends on this text
            full, start = self._start(history, turn, before)
        return _cut(full, start)

    def _start(self, history: tuple[Turn, ...], turn: Turn, before: Conversation) -> tuple[str, int]:
        """The rendering of both, and where in it `turn` begins."""
        full = self._render((*history, turn), before.created_ms)
        if before.finished:
            return full, self._past_end(full, history, before)
        if self._folds(history):
            probe = placeholder(len(history), Role.USER)
            lead = self._render((*history, probe), before.created_ms)
            at = _find(lead, probe)
            if full.startswith(lead[:at]):
                return full, at
            raise _NoPlace
        return full, self._past_history(full, history, before)

    def _past_history(self, full: str, history: tuple[Turn, ...], before: Conversation) -> int:
        """Where `full` goes on after what the spans of `history` hold."""
        try:
            base = self._render(history, before.created_ms)
        except TemplateError:
            base = ""
        if base and full.startswith(base):
            return len(base)
        last = history[-1]
        at = last.end_in(full)
        if at < 0:
            raise _NoPlace
        end = last.end_in(base)
        if end < 0 and last.calls:
            # where the braces of a call end is not to be told
            raise _NoPlace
        closing = base[end:] if end >= 0 else ""
        return at + _common(closing, full[at : at + len(closing)])

    def _past_end(self, full: str, history: tuple[Turn, ...], before: Conversation) -> int:
        """Where `full` goes on after the end-of-turn token of the last reply, which the model drew itself."""
        last = history[-1]
        at = last.end_in(full)
        if at < 0:
            raise _NoPlace
        for start, text in self._vocabulary.controls.occurrences(full[at:]):
            if not last.calls and full[at : at + start].strip():
                break
            if self._vocabulary.control.get(text) in self._vocabulary.end_tokens:
                end = at + start + len(text)
                if last.calls and end > self._past_history(full, history, before):
                    # that is where what comes after it ends
                    break
                return end
        return self._past_history(full, history, before) if last.calls else at

    # ---- openers

    def _opener(self, before: Conversation) -> _Delta:
        refused: TemplateError | None = None
        for history in histories(before, self._format):
            try:
                return self._open(history, before)
            except TemplateError as error:
                refused = refused or error
            except _NoPlace:
                pass
        raise refused or _NoPlace

    def _open(self, history: tuple[Turn, ...], before: Conversation) -> _Delta:
        if self._folds(history) and not before.finished:
            # the system text stands in an open user turn: close it
            probe = placeholder(len(history), Role.USER)
            full = self._render((*history, probe), before.created_ms, opener=True)
            return _cut(full, _find(full, probe) + len(probe.content))
        full = self._render(history, before.created_ms, opener=True)
        if before.finished:
            return _cut(full, self._past_end(full, history, before))
        return _cut(full, self._past_history(full, history, before))

    def _folds(self, history: tuple[Turn, ...]) -> bool:
        return self._folds_system and len(history) == 1 and history[0].role == Role.SYSTEM

    def _accepts(self, history: tuple[Turn, ...], now_ms: int) -> bool:
        if self._folds(history):
            return True
        try:
            self._render(history, now_ms)
        except TemplateError:
            return False
        return True

    def _learn_channels(self) -> Channels:
        """Markers, and whether the assistant header leaves a block of reasoning open."""
        found = channels_of(self._template.source, self._vocabulary.control, self._format)
        if not found.blocks or (closing := found.blocks[0].closing) is None:
            return found
        try:
            header = self._opener(Conversation((Role.USER,), empty=False, finished=False, created_ms=0))
        except (TemplateError, _NoPlace):
            return found
        if header.text.rfind(found.blocks[0].opening.text) <= header.text.rfind(closing.text):
            return found
        ids = self._tokenizer.ids(header.text, before=header.before)
        starts = [at for at, token in enumerate(ids) if token in self._vocabulary.control_ids]
        mine = {found.blocks[0].opening.token}
        starts = [at for at in starts if ids[at] not in mine]
        return replace(found, opened=tuple(ids[starts[-1] if starts else 0 :]))

    def _bare(self, turns: Sequence[Turn]) -> str:
        return self._render(turns, 0)

    def _render(
        self,
        turns: Sequence[Turn],
        now_ms: int,
        *,
        opener: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        messages = [turn.message() for turn in turns]
        return self._template.render(messages, now_ms=now_ms, opener=opener, tools=tools)


def dialect_of(vocabulary: Vocabulary) -> Dialect | None:
    """The dialect of a model; None where it has no template, or none that works (the reason is logged)."""
    if vocabulary.template is None:
        return None
    try:
        template = ChatTemplate(vocabulary.template, bos=vocabulary.bos_text, eos=vocabulary.eos_text)
        return Dialect(vocabulary, template)
    except TemplateError as error:
        _log.warning("the model's chat template cannot be used: %s", error)
        return None


def required(dialect: Dialect | None) -> Dialect:
    """The dialect, or a `ProtocolRefusal` that says there is none."""
    if dialect is None:
        raise ProtocolRefusal(NO_DIALECT)
    return dialect


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _cut(full: str, start: int) -> _Delta:
    text = full[start:]
    if LEFT in text:
        # an earlier message, whose text nobody has here, would be written again
        raise _NoPlace
    return _Delta(full[full.rfind(RIGHT, 0, start) + 1 : start][-256:], text)


def _find(full: str, turn: Turn) -> int:
    at = full.find(turn.content)
    if at < 0:
        raise _NoPlace
    return at
