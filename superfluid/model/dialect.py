"""What a conversation looks like to the model: message spans and assistant headers (wire-facts 8.4, 8.8).

The span of a message is what rendering adds after the messages before it (`places` says what that is), so the spans
of a conversation, its replies and its openers, one after the other, are the tokens of the whole rendering.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from superfluid.model.callformat import CallFormat, NoCalls, learn
from superfluid.model.callparse import parse_arguments
from superfluid.model.channels import Channels, channels_of
from superfluid.model.masking import Tokenizer
from superfluid.model.places import Delta, NoPlace, Places
from superfluid.model.template import ChatTemplate, TemplateError
from superfluid.model.turns import (
    Conversation,
    Turn,
    TurnCall,
    call_name,
    role_name,
)
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.codes import Role
from superfluid.protocol.refusals import NoToolCalls, ProtocolRefusal

__all__ = ["NO_DIALECT", "Conversation", "Dialect", "dialect_of", "required"]

_log = logging.getLogger("superfluid.model")

NO_DIALECT = "this model has no chat template, so messages cannot be rendered; use Append with plain text or tokens"


class Dialect:
    """A vocabulary and a chat template joined. Keeps no state; may be used from any thread.

    `message` and `opener` raise `ProtocolRefusal` with the template's own text where the template refuses.
    """

    def __init__(self, vocabulary: Vocabulary, template: ChatTemplate) -> None:
        """Raises `TemplateError` where the template cannot render a single user message."""
        self._vocabulary = vocabulary
        self._template = template
        self._tokenizer = Tokenizer(vocabulary)
        self.calls: CallFormat | NoCalls = learn(template)
        """how the model calls tools, or why it cannot be given any"""
        self._format = self.calls if isinstance(self.calls, CallFormat) else None
        ends = frozenset(text for text, token in vocabulary.control.items() if token in vocabulary.end_tokens)
        self._places = Places(template, self._format, vocabulary.controls, ends)
        self.orders = self._places.orders
        """orders of roles that the template takes, see `probes.ORDERS`"""
        self.channels = self._learn_channels()
        _log.debug(
            "chat template: takes %s; system text %s; tools: %s",
            ", ".join(sorted(self.orders)) or "single messages only",
            "is folded into the first user turn" if self._places.folds_system else "is a turn of its own",
            self.calls.name if isinstance(self.calls, CallFormat) else self.calls.found,
        )
        text = template.source + (json.dumps(template.told, sort_keys=True) if template.told else "")
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8, key=vocabulary.identity)
        self._digest = int.from_bytes(digest.digest(), "little")

    @property
    def digest(self) -> int:
        """Names template, its settings and vocabulary together: 64 bits."""
        return self._digest

    @property
    def settings(self) -> frozenset[str]:
        """What the template can be told, such as `enable_thinking`."""
        return self._template.settings

    def telling(self, settings: Mapping[str, Any]) -> Dialect:
        """The same with some of its `settings` set, JSON values all. Takes as long as learning the template.

        Raises `TemplateError` where the template refuses them.
        """
        return Dialect(self._vocabulary, self._template.telling(self._tokenizer.masks.mask_all(settings)))

    def message(
        self, before: Conversation, role: int, text: str, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[int, ...]:
        """The span of a message that comes after `before`, with prologue or turn separator where one is due.

        After data, a user message ends the turn that holds them, and any other comes after its end.

        `tools` are function declarations in JSON form; only the first message can bring them (wire-facts 8.5).
        Raises `NoToolCalls` where the model cannot be given any.
        """
        if tools and isinstance(self.calls, NoCalls):
            raise NoToolCalls(self.calls.found)
        masked = self._tokenizer.masks.mask(text)
        turn = Turn(role, masked) if role != Role.TOOL else Turn(role, masked, name="tool", call_id=call_name(0))
        return self._said(before, turn, tools)

    def turn(self, before: Conversation, text: str) -> tuple[int, ...]:
        """The span of a user message that has a place after anything: where the template wants a reply first, it is
        what stands in the middle of a conversation."""
        try:
            return self.message(before, Role.USER, text)
        except ProtocolRefusal:
            if before.data:
                raise
        masked = self._tokenizer.masks.mask(text)
        try:
            head, tail = self._places.data(before, masked)
        except NoPlace:
            raise ProtocolRefusal("the chat template has no place for a user message here") from None
        return self._span(before, Delta(head.before, head.text + tail.text))

    def data_frame(self, before: Conversation) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What opens and what ends a user turn that holds data, `before` it; both may be ().

        Where the template has no place for one, both are, and the data stand as plain text.
        """
        if before.data:
            return (), self._closing(before, "")
        try:
            head, tail = self._places.data(before)
        except NoPlace:
            return (), ()
        return self._span(before, head), tuple(self._tokenizer.ids(tail.text, before=tail.before))

    def _closing(self, before: Conversation, masked: str) -> tuple[int, ...]:
        """A text that ends the user turn whose data `before` ends with."""
        roles = before.roles[:-1]
        try:
            _, tail = self._places.data(replace(before, roles=roles, empty=not roles, data=False), masked)
        except NoPlace:
            tail = Delta("\n", masked)
        return tuple(self._tokenizer.ids(tail.text, before=tail.before))

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
        if before.data:
            if role == Role.USER and not tools:
                return self._closing(before, turn.content)
            closing = self._closing(before, "")
            return (*closing, *self._said(replace(before, data=False), turn, tools))
        try:
            delta = self._places.message(before, turn, self._tokenizer.masks.mask_all(tools) if tools else None)
        except TemplateError as error:
            raise ProtocolRefusal(f"the chat template refuses: {error}") from None
        except RecursionError:
            raise ProtocolRefusal("the tools or arguments are nested too deep") from None
        except NoPlace:
            raise ProtocolRefusal(f"the chat template leaves out a {role_name(role)} message here") from None
        return self._span(before, delta)

    def opener(self, before: Conversation) -> tuple[int, ...]:
        """The assistant header after `before`, with the turn separator first where one is due. May be ()."""
        if before.data:
            return (*self._closing(before, ""), *self.opener(replace(before, data=False)))
        try:
            delta = self._places.opener(before)
        except TemplateError as error:
            raise ProtocolRefusal(f"the chat template refuses: {error}") from None
        except NoPlace:
            raise ProtocolRefusal("the chat template has no place for a reply here") from None
        return self._span(before, delta)

    def _span(self, before: Conversation, delta: Delta) -> tuple[int, ...]:
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

    def _learn_channels(self) -> Channels:
        """Markers, and whether the assistant header leaves a block of reasoning open."""
        found = channels_of(self._template.source, self._vocabulary.control, self._format)
        if not found.blocks or (closing := found.blocks[0].closing) is None:
            return found
        try:
            header = self._places.opener(Conversation((Role.USER,), empty=False, finished=False, created_ms=0))
        except (TemplateError, NoPlace):
            return found
        if header.text.rfind(found.blocks[0].opening.text) <= header.text.rfind(closing.text):
            return found
        ids = self._tokenizer.ids(header.text, before=header.before)
        starts = [at for at, token in enumerate(ids) if token in self._vocabulary.control_ids]
        mine = {found.blocks[0].opening.token}
        starts = [at for at in starts if ids[at] not in mine]
        return replace(found, opened=tuple(ids[starts[-1] if starts else 0 :]))


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
