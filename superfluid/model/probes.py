"""What a chat template does with whole conversations, tried once when the model is loaded.

`Render` gives the text of placeholder turns or raises `TemplateError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from superfluid.model.callformat import CallFormat
from superfluid.model.template import TemplateError
from superfluid.model.turns import Turn, placeholders
from superfluid.protocol.codes import Role

Render = Callable[[Sequence[Turn]], str]

ORDERS = ("u a u", "s u a u", "u u", "u a+call t t")
"""tried orders of roles: system, user, assistant, tool; "+call": with the tool calls that the results answer"""
_LETTERS = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}


def orders(render: Render, calls: CallFormat | None) -> frozenset[str]:
    """Those of `ORDERS` of which nothing is refused or left out."""
    taken: set[str] = set()
    for order in ORDERS:
        turns = placeholders([_LETTERS[word[0]] for word in order.split()], calls)
        if "+call" in order and not any(turn.calls for turn in turns):
            continue
        try:
            text = render(turns)
        except TemplateError:
            continue
        if all(_shows(text, turn) for turn in turns):
            taken.add(order)
    return frozenset(taken)


def folds_system(render: Render) -> bool:
    """Whether a system message alone does not render to what it is before a user message."""
    system, user = placeholders((Role.SYSTEM, Role.USER))
    try:
        both = render((system, user))
    except TemplateError:
        return False
    if (
        system.content not in both
        or user.content not in both
        or both.index(system.content) > both.index(user.content)
    ):
        return False
    try:
        alone = render((system,))
    except TemplateError:
        return True
    return not (system.content in alone and both.startswith(alone))


def merges_results(render: Render, calls: CallFormat | None) -> bool:
    """Whether a second tool result changes what was written after the first, or is refused.

    Some templates put all results of a turn into one block and close it after the last.
    """
    if calls is None:
        return False
    turns = placeholders((Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL), calls)
    try:
        both = render(turns)
        return not both.startswith(render(turns[:-1]))
    except TemplateError:
        return True


def _shows(text: str, turn: Turn) -> bool:
    # a message with calls may come without its text
    marks = turn.marks()[1:] if turn.calls else turn.marks()
    return all(mark in text for mark in marks)
