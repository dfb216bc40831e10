"""A tiny model that says what a script says, on the fake engine: vocabulary and chat template are a real GGUF file's.

Replies are written as text, in which control tokens may be spelled, or as tokens, and end with the model's end token.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from superfluid.model.dialect import Conversation, Dialect, dialect_of
from superfluid.model.vocabulary import Vocabulary
from superfluid.protocol.codes import Role
from tests.model import tiny_gguf

MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]")
NOISE = 300
"""Tokens below it are not drawn at random: controls and single bytes."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool call, as what a reply answers. Some templates write the call's id too."""

    name: str
    content: str
    call_id: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A reply that is a tool call, in the template's own format."""

    name: str
    arguments: str


Reply = str | Sequence[int] | Call


def write(
    directory: Path,
    template: str,
    replies: Mapping[str | Result, Reply],
    *,
    controls: Sequence[str] = MARKERS,
    eos: str = "<|im_end|>",
    kind: str = "bpe",
    **fake: int,
) -> dict[str, object]:
    """Settings of a `Daemon` whose model answers user messages and tool results by `replies`.

    What has no reply is answered with noise; `fake` are settings of `superfluid.engine.fake.FakeModel`.
    """
    path = tiny_gguf.write(
        directory / "tiny.gguf", kind=kind, template=template, eos=eos, extra_controls=controls, layers=1
    )
    with Vocabulary(path) as vocabulary:
        dialect = dialect_of(vocabulary)
        assert dialect is not None
        end = vocabulary.control[eos]
        lines = {
            before: said(dialect, vocabulary, reply, end)
            for asked, reply in replies.items()
            for before in _before(dialect, asked)
        }
        settings = {"vocabulary": vocabulary.size, "end": end, "low": NOISE, **fake}
    script = directory / "script.json"
    script.write_text(json.dumps([{"after": before, "say": tokens} for before, tokens in lines.items()]))
    options = ",".join(f"{name}={value}" for name, value in settings.items())
    worker = [sys.executable, "-m", "superfluid.engine", "--fake", f"{options},script={script}"]
    return {"model": str(path), "worker_argv": worker}


def said(dialect: Dialect, vocabulary: Vocabulary, reply: Reply, end: int) -> list[int]:
    """The tokens of a reply, the end token included."""
    match reply:
        case Call(name, arguments):
            span = dialect.called(_shape(Role.USER), "", [(name, arguments)])
            own = span[len(dialect.opener(_shape(Role.USER))) :]
            return [*itertools.takewhile(lambda token: token != end, own), end]
        case str():
            return [*vocabulary.tokenize(reply, special=True), end]
        case _:
            return [*reply, end]


def _before(dialect: Dialect, asked: str | Result) -> Iterator[tuple[int, ...]]:
    """What may stand right before the reply: a template may fold the system text into the first question."""
    if isinstance(asked, Result):
        turn = dialect.tool_result(_shape(Role.USER, Role.ASSISTANT), asked.name, asked.content, asked.call_id)
        yield (*turn, *dialect.opener(_shape(Role.USER, Role.ASSISTANT, Role.TOOL)))
        return
    for roles in ((Role.USER, Role.ASSISTANT), (Role.SYSTEM,)):
        turn = dialect.message(_shape(*roles), Role.USER, asked)
        yield (*turn, *dialect.opener(_shape(*roles, Role.USER)))


def _shape(*roles: int) -> Conversation:
    return Conversation(roles, empty=False, finished=False, created_ms=0)
