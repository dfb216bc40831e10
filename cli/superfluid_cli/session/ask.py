"""`superfluid session ask`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import Finish
from superfluid.protocol.records import GenParams
from superfluid_cli import options, terminal, values
from superfluid_cli.counting import counted
from superfluid_cli.exits import Exit, UsageError
from superfluid_cli.interrupt import Alert
from superfluid_cli.message import message
from superfluid_cli.reply import ending
from superfluid_cli.session import sampling
from superfluid_cli.waiting import Sign

MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens", metavar="N", parser=values.token_count, help="Stop the answer after N tokens. Default: never."
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        metavar="F",
        parser=values.fraction(0, 100),
        help="0 is greedy. Default: 0.6, at top-p 0.9.",
    ),
]
StopAt = Annotated[list[str] | None, typer.Option("--stop", metavar="TEXT", help="End the answer there. Repeatable.")]
FastAnswer = Annotated[
    list[str] | None,
    typer.Option(
        "--fast-answer",
        metavar="WORD",
        help="A word that may be answered without computing, where the session decodes ahead. Repeatable.",
    ),
]
Gap = Annotated[
    float,
    typer.Option(
        "--gap-threshold",
        metavar="F",
        parser=values.fraction(0, None),
        help="Logit gap that a fast answer must reach.",
        show_default=True,
    ),
]


def ask(
    session: options.Session,
    text: options.Text = None,
    file: options.File = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    seed: options.Seed = None,
    stop: StopAt = None,
    fast_answer: FastAnswer = None,
    gap_threshold: Gap = 2.0,
    json: options.Json = False,
    socket: options.Socket = None,
) -> int:
    """Ask about a session and print the answer as it comes. Neither question nor answer is kept."""
    question = message(text, file)
    params = _params(temperature, seed)
    with options.reach(session, socket) as (client, id_), Alert(client):
        request = requests.Ask(
            id_, question, max_tokens, params, tuple(stop or ()), tuple(fast_answer or ()), gap_threshold
        )
        open_line, sign = False, Sign(client)
        try:
            for reply in client.question(request):
                sign.clear()
                if isinstance(reply, responses.Answer):
                    answer = reply
                elif not json:
                    open_line = not reply.text.endswith("\n") if reply.text else open_line
                    terminal.write(terminal.safe(reply.text) if terminal.on_terminal(sys.stdout) else reply.text)
        finally:
            sign.clear()
            if open_line:
                terminal.write("\n")
    if json:
        terminal.line(_json(answer))
    elif terminal.on_terminal(sys.stderr):
        terminal.note(terminal.dim(_summary(answer), sys.stderr))
    if answer.finish == Finish.CANCELLED:
        terminal.note("the answer was cancelled")
        return Exit.CANCELLED
    return Exit.OK


def _params(temperature: float | None, seed: int | None) -> GenParams | None:
    if temperature is not None:
        return sampling.sampling(temperature, 0.95, 0.0, 0, seed, False)
    if seed is not None:
        raise UsageError("--seed is of no use without --temperature")
    return None


def _summary(answer: responses.Answer) -> str:
    if answer.flash_id is not None:
        origin = f"flash query {answer.flash_id}"
    elif answer.logit_gap is not None:
        origin = f"decoded ahead, logit gap {answer.logit_gap:.2f}"
    else:
        drawn = counted(answer.completion_tokens, "token")
        origin = f"{drawn}, {answer.cached_tokens} warm, {ending(Finish(answer.finish))}"
    return f"{origin}, data version {answer.data_version}"


def _json(answer: responses.Answer) -> str:
    from superfluid.protocol import jsonform

    return jsonform.dumps(responses.Answer, answer)
