"""Where in a rendering a message begins: what it adds to the text of the messages before it.

Those messages are not at hand, so placeholders stand for them. Where a template does not simply add at the end (it
folds the system text into the first user turn, rewrites earlier turns, closes a turn late), the new text begins where
the last placeholder and the closing text that follows it end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from superfluid.model import probes
from superfluid.model.callformat import CallFormat
from superfluid.model.controls import Strings
from superfluid.model.masking import HERE, LEFT, RIGHT
from superfluid.model.template import ChatTemplate, TemplateError
from superfluid.model.turns import Conversation, Turn, histories, placeholder, placeholder_like
from superfluid.protocol.codes import Role


@dataclass(frozen=True, slots=True)
class Delta:
    """What is new in a rendering, and what stands right before it up to the last placeholder."""

    before: str
    text: str
    open: bool = False
    """more text of the same turn is to follow"""


class NoPlace(Exception):
    """A rendering came out, but where the new message begins in it cannot be told."""


class Places:
    """One chat template, and what was learned of it when it was loaded. Keeps no state.

    The texts of turns are masked. Everything raises `TemplateError` where the template refuses, and `NoPlace`.
    """

    def __init__(
        self, template: ChatTemplate, calls: CallFormat | None, controls: Strings, ends: frozenset[str]
    ) -> None:
        """`controls` and `ends`: the texts of all control tokens, and of those that end a turn.

        Raises `TemplateError` where the template cannot render a single user message.
        """
        self._template = template
        self._format = calls
        self._controls = controls
        self._ends = ends
        user = placeholder(0, Role.USER)
        if user.content not in self._bare((user,)):
            raise TemplateError("the chat template leaves out the text of a user message")
        self.folds_system = probes.folds_system(self._bare)
        self._merges_results = probes.merges_results(self._bare, calls)
        self.orders = probes.orders(self._bare, calls)

    def message(self, before: Conversation, turn: Turn, tools: Sequence[Mapping[str, Any]] | None) -> Delta:
        """What a message adds; only the first one can bring tools."""
        return self._first(turn, before.created_ms, tools) if before.empty else self._after_all(before, turn)

    def opener(self, before: Conversation) -> Delta:
        """What the assistant header adds."""
        refused: TemplateError | None = None
        for history in histories(before, self._format):
            try:
                return self._open(history, before)
            except TemplateError as error:
                refused = refused or error
            except NoPlace:
                pass
        raise refused or NoPlace

    def data(self, before: Conversation, text: str = "") -> tuple[Delta, Delta]:
        """What comes before and after the data of a user turn; the second begins with `text`, which ends the turn.

        Where the template does not want a user turn after `before`, it is what the middle of a conversation has.
        Raises `NoPlace` alone.
        """
        turn = Turn(Role.USER, HERE + text)
        middle = replace(before, roles=(), empty=False, finished=False, cut=False)
        for shape in (before, middle):
            try:
                whole = self.message(shape, turn, None)
            except (TemplateError, NoPlace):
                continue
            head, found, tail = whole.text.partition(HERE)
            if found and HERE not in tail:
                return Delta(whole.before, head, open=True), Delta("\n", tail)
        raise NoPlace

    # ---- messages

    def _after_all(self, before: Conversation, turn: Turn) -> Delta:
        refused: TemplateError | None = None
        for history in self._histories(before, turn):
            try:
                return self._after(history, turn, before)
            except TemplateError as error:
                refused = refused or error
                if self._accepts(history, before.created_ms):
                    # the history is fine, so it is this message that the template does not want
                    raise
            except NoPlace:
                pass
        raise refused or NoPlace

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

    def _first(self, turn: Turn, now_ms: int, tools: Sequence[Mapping[str, Any]] | None) -> Delta:
        plain = self._alone(turn, now_ms, None)
        if not tools:
            return plain
        equipped = self._alone(turn, now_ms, tools)
        if equipped == plain:
            raise TemplateError("it has no place for tools in the first message")
        return equipped

    def _alone(self, turn: Turn, now_ms: int, tools: Sequence[Mapping[str, Any]] | None) -> Delta:
        if turn.role != Role.SYSTEM or not self.folds_system:
            text = self._render((turn,), now_ms, tools=tools)
            probe = placeholder(0, turn.role)
            if turn.role != Role.ASSISTANT and probe.content not in self._render((probe,), now_ms):
                raise NoPlace
            return Delta("", text)
        probe = placeholder(1, Role.USER)
        text = self._render((turn, probe), now_ms, tools=tools)
        return Delta("", text[: _find(text, probe)], open=True)

    def _after(self, history: tuple[Turn, ...], turn: Turn, before: Conversation) -> Delta:
        """What `turn` adds after `history`, which has at least one turn."""
        probe = placeholder_like(len(history), turn, self._format)
        shape, start = self._start(history, probe, before)
        if probe.end_in(shape[start:]) < 0:
            raise NoPlace
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
        if before.cut and (at := history[-1].end_in(full)) >= 0:
            return full, at
        if self._folds(history):
            probe = placeholder(len(history), Role.USER)
            lead = self._render((*history, probe), before.created_ms)
            at = _find(lead, probe)
            if full.startswith(lead[:at]):
                return full, at
            raise NoPlace
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
            raise NoPlace
        end = last.end_in(base)
        if end < 0 and last.calls:
            # where the braces of a call end is not to be told
            raise NoPlace
        closing = base[end:] if end >= 0 else ""
        return at + _common(closing, full[at : at + len(closing)])

    def _past_end(self, full: str, history: tuple[Turn, ...], before: Conversation) -> int:
        """Where `full` goes on after the end-of-turn token of the last reply, which the model drew itself."""
        last = history[-1]
        at = last.end_in(full)
        if at < 0:
            raise NoPlace
        for start, text in self._controls.occurrences(full[at:]):
            if not last.calls and full[at : at + start].strip():
                break
            if text in self._ends:
                end = at + start + len(text)
                if last.calls and end > self._past_history(full, history, before):
                    # that is where what comes after it ends
                    break
                return end
        return self._past_history(full, history, before) if last.calls else at

    # ---- openers

    def _open(self, history: tuple[Turn, ...], before: Conversation) -> Delta:
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
        return self.folds_system and len(history) == 1 and history[0].role == Role.SYSTEM

    def _accepts(self, history: tuple[Turn, ...], now_ms: int) -> bool:
        if self._folds(history):
            return True
        try:
            self._render(history, now_ms)
        except TemplateError:
            return False
        return True

    # ---- the template

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


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _cut(full: str, start: int) -> Delta:
    text = full[start:]
    if LEFT in text:
        # an earlier message, whose text nobody has here, would be written again
        raise NoPlace
    return Delta(full[full.rfind(RIGHT, 0, start) + 1 : start][-256:], text)


def _find(full: str, turn: Turn) -> int:
    at = full.find(turn.content)
    if at < 0:
        raise NoPlace
    return at
