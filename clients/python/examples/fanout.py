"""Read a document once, then ask several questions about it at the same time.

The document goes into one session; every question gets a fork of it, which shares the document's KV instead of
reading it again. Needs a daemon: superfluid serve MODEL --web 127.0.0.1:8460
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from superfluid_client import Client, Reply, Sampling, Session, SuperfluidError

SYSTEM = "You answer questions about a document, briefly and from it alone."
QUESTIONS = (
    "Summarize this in three sentences.",
    "What is the most important point, and why?",
    "What is unclear or missing?",
    "Which three questions would a careful reader ask?",
)
REDRAW_S = 0.1
WARM = 0.9
"""the part of the shared tokens that a branch must have found in the cache to count as warm"""


class Branch:
    """One question on a fork of its own, answered by a thread of its own."""

    def __init__(self, session: Session, question: str, max_tokens: int) -> None:
        self.session = session
        self.question = question
        self.text = ""
        self.first_s: float | None = None
        self.reply: Reply | None = None
        self.error: SuperfluidError | None = None
        self._max_tokens = max_tokens
        self._started = 0.0
        self._thread = threading.Thread(target=self._answer, daemon=True)

    def start(self) -> None:
        self._started = time.monotonic()
        self._thread.start()

    def running(self) -> bool:
        return self._thread.is_alive()

    def status(self) -> str:
        first = "waiting" if self.first_s is None else f"first text after {self.first_s:.2f} s"
        if self.error is not None:
            return f"failed: {self.error}"
        if self.reply is not None:
            return f"{first}, {self.reply.tokens} tokens, {self.reply.warm_prefix} warm, {self.reply.finish}"
        return first

    def _answer(self) -> None:
        try:
            self.reply = self.session.generate(self._max_tokens, on_text=self._hear)
        except SuperfluidError as error:
            self.error = error

    def _hear(self, text: str) -> None:
        if self.first_s is None:
            self.first_s = time.monotonic() - self._started
        self.text += text


class Panes:
    """The branches one below the other, drawn over themselves; on something else than a terminal, once at the end."""

    def __init__(self, branches: Sequence[Branch], lines: int) -> None:
        self._branches = branches
        self._lines = lines
        self._live = sys.stdout.isatty()
        self._drawn = 0

    def draw(self, *, last: bool = False) -> None:
        if not self._live and not last:
            return
        width = max(20, shutil.get_terminal_size().columns - 1)
        rows = [row for branch in self._branches for row in self._pane(branch, width)]
        if self._drawn:
            sys.stdout.write(f"\x1b[{self._drawn}A")
        end = "\x1b[K\n" if self._live else "\n"
        sys.stdout.write("".join(row + end for row in rows))
        sys.stdout.flush()
        self._drawn = len(rows)

    def _pane(self, branch: Branch, width: int) -> list[str]:
        text = [row for line in branch.text.splitlines() for row in textwrap.wrap(line, width - 2)]
        shown = text[-self._lines :] if self._live else text
        padding = [""] * (self._lines - len(shown)) if self._live else []
        head = f"[{branch.session.id}] {branch.question} - {branch.status()}"
        return [head[:width] if self._live else head, *("  " + row for row in shown), *padding]


def read_document(client: Client, document: str, seed: int) -> Session:
    """A session that holds the document, with its KV computed."""
    base = client.session(
        Sampling(temperature=0.7, seed=seed),
        system="You answer questions about a document, briefly and from it alone.",
    )
    base.user(f"Here is the document.\n\n{document}")
    base.assistant("I have read it. What would you like to know?")
    started = time.monotonic()
    primer = base.fork()
    primer.user("Ready?")
    primer.generate(1)
    print(f"session {base.id}: document read in {time.monotonic() - started:.2f} s")
    return base


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--context", metavar="FILE", type=Path, required=True, help="the document")
    parser.add_argument("--question", action="append", help="may be given several times; default: four of them")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--max-tokens", type=int, default=400, help="of each answer")
    parser.add_argument("--lines", type=int, default=4, help="of each answer on the screen")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    try:
        document = args.context.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        print(f"{args.context}: {fault}", file=sys.stderr)
        return 2
    try:
        base = read_document(Client(), document, args.seed)
        shared = base.inspect()["summary"]["tokens"]
        branches = []
        for place, question in enumerate(args.question or QUESTIONS):
            fork = base.fork(seed=args.seed + place)
            fork.user(question)
            branches.append(Branch(fork, question, args.max_tokens))
    except SuperfluidError as error:
        print(error, file=sys.stderr)
        return 1

    panes = Panes(branches, args.lines)
    started = time.monotonic()
    for branch in branches:
        branch.start()
    while any(branch.running() for branch in branches):
        panes.draw()
        time.sleep(REDRAW_S)
    wall = time.monotonic() - started
    panes.draw(last=True)

    replies = [branch.reply for branch in branches if branch.reply is not None]
    warm = sum(reply.warm_prefix >= WARM * shared for reply in replies)
    print(f"{sum(reply.tokens for reply in replies)} tokens in {wall:.1f} s")
    print(f"{warm} of {len(branches)} answers started from the {shared} tokens read once")
    print(f"sessions: {base.id}, forks {', '.join(str(branch.session.id) for branch in branches)}")
    return 0 if len(replies) == len(branches) else 1


if __name__ == "__main__":
    sys.exit(main())
