"""What a conversation looks like to the model: message spans and assistant headers (wire-facts 8.4, 8.8).

The span of a message is what rendering adds after the messages before it. Those messages are not at hand and their
texts do not matter, so placeholders stand for them. Where a template does not simply add at the end (it folds the
system text into the first user turn, rewrites earlier turns, closes a turn late), the span begins where the last
placeholder and the closing text that follows it end. So the spans of a conversation, its replies and its openers, one
after the other, are the tokens of the whole rendering.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from superfluid.model.masking import LEFT, RIGHT, Tokenizer
from superfluid.model.template import ChatTemplate, TemplateError
from superfluid.model.turns import Conversation, Turn, histories, placeholder, placeholders, role_name
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.codes import Role
from superfluid.protocol.refusals import ProtocolRefusal

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
        self._folds_system = False
        user, system = placeholders((Role.USER, Role.SYSTEM))
        if user.content not in self._render((user,), 0):
            raise TemplateError("the chat template leaves out the text of a user message")
        self._folds_system = self._probe_fold(system, user)
        self.orders = self._probe_orders()
        """orders of roles that the template takes, as texts like "s u a u" (tried: u a u, s u a u, u u)"""
        _log.debug(
            "chat template: takes %s; system text %s",
            ", ".join(sorted(self.orders)) or "single messages only",
            "is folded into the first user turn" if self._folds_system else "is a turn of its own",
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
        """
        turn = Turn(role, self._tokenizer.masks.mask(text))
        try:
            delta = self._first(turn, before.created_ms, tools) if before.empty else self._after_all(before, turn)
        except TemplateError as error:
            raise ProtocolRefusal(f"the chat template refuses: {error}") from None
        except RecursionError:
            raise ProtocolRefusal("the tools are nested too deep") from None
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
        for history in histories(before):
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
        probe = placeholder(len(history), turn.role)
        shape, start = self._start(history, probe, before)
        if probe.content not in shape[start:]:
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
            return full, self._past_end(full, history)
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
        last = history[-1].content
        at = full.rfind(last)
        if at < 0:
            raise _NoPlace
        at += len(last)
        closing = base[base.rfind(last) + len(last) :] if last in base else ""
        return at + _common(closing, full[at : at + len(closing)])

    def _past_end(self, full: str, history: tuple[Turn, ...]) -> int:
        """Where `full` goes on after the end-of-turn token of the last reply, which the model drew itself."""
        last = history[-1].content
        at = full.rfind(last)
        if at < 0:
            raise _NoPlace
        at += len(last)
        for start, text in self._vocabulary.controls.occurrences(full[at:]):
            if full[at : at + start].strip():
                break
            if self._vocabulary.control.get(text) in self._vocabulary.end_tokens:
                return at + start + len(text)
        return at

    # ---- openers

    def _opener(self, before: Conversation) -> _Delta:
        refused: TemplateError | None = None
        for history in histories(before):
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
            return _cut(full, self._past_end(full, history))
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

    # ---- load probes

    def _probe_fold(self, system: Turn, user: Turn) -> bool:
        """Whether a system message alone does not render to what it is before a user message."""
        try:
            both = self._render((system, user), 0)
        except TemplateError:
            return False
        if (
            system.content not in both
            or user.content not in both
            or both.index(system.content) > both.index(user.content)
        ):
            return False
        try:
            alone = self._render((system,), 0)
        except TemplateError:
            return True
        return not (system.content in alone and both.startswith(alone))

    def _probe_orders(self) -> frozenset[str]:
        taken: set[str] = set()
        for order in ("u a u", "s u a u", "u u"):
            roles = [{"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT}[letter] for letter in order.split()]
            turns = placeholders(roles)
            try:
                text = self._render(turns, 0)
            except TemplateError:
                continue
            if all(turn.content in text for turn in turns):
                taken.add(order)
        return frozenset(taken)

    def _render(
        self,
        turns: Sequence[Turn],
        now_ms: int,
        *,
        opener: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        messages = [{"role": role_name(turn.role), "content": turn.content} for turn in turns]
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
