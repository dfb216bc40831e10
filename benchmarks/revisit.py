"""Many durable sessions over few lanes: how soon the first token comes on the first visit and on later ones, after an
orderly restart with `--park`, and after a kill.

    python benchmarks/revisit.py
    options: --sessions 200, --tokens 500, --threads 2, --lanes 8, --context 2048

Every session is visited in turn, by way of the socket: a message is appended and four tokens are generated. The first
message of a session is long, later ones are short. Times are seconds to the first token, medians over the sessions;
the warm part is how much of what was there before the visit had its KV.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import time
from dataclasses import dataclass

from servers import Server, superfluid
from serving import words

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import Role
from superfluid.protocol.records import GenParams
from superfluid_cli.client import Client

GREEDY = GenParams(temperature=0.0, top_p=1.0)
WORDS_A_TOKEN = 0.93
TOKENS = 4


@dataclass(frozen=True)
class Visit:
    first: float
    warm: float
    """of the tokens that were there before"""


def visit(client: Client, session: int, text: str) -> Visit:
    before = len(client.ask(requests.Inspect(session), responses.Inspection).inspection.tokens)
    began = time.perf_counter()
    client.ask(requests.AppendMessage(session, Role.USER, text), responses.Committed)
    replies = client.generate(session, TOKENS)
    next(replies)
    first = time.perf_counter() - began
    *_, last = replies
    assert isinstance(last, responses.Generated)
    return Visit(first, min(last.warm_prefix, before) / before if before else 0.0)


def visits(server: Server, sessions: list[int], length: int, turn: int) -> tuple[float, float]:
    """Of a visit to each: the median time to the first token, and the least warm part."""
    assert server.socket is not None
    with Client(server.socket) as client:
        made = [visit(client, session, words(length, 1000 * turn + session)) for session in sessions]
    return statistics.median(one.first for one in made), min(one.warm for one in made)


def create(server: Server, count: int) -> list[int]:
    assert server.socket is not None
    with Client(server.socket) as client:
        return [client.ask(requests.Create(None, GREEDY), responses.Created).session for _ in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--context", type=int, default=2048)
    options = parser.parse_args()
    kept = ["--park", "--kv-host-mb", "8192", "--drain-timeout", "10m"]
    with superfluid(options.threads, options.lanes, options.context, *kept) as server:
        sessions = create(server, options.sessions)
        first, _ = visits(server, sessions, round(options.tokens * WORDS_A_TOKEN), 0)
        print(f"first visit                  {first:8.3f} s")
        for turn, name, by in (
            (1, "second visit", None),
            (2, "after an orderly restart", signal.SIGTERM),
            (3, "after a kill", signal.SIGKILL),
        ):
            if by is not None:
                assert server.restart is not None
                server.restart(by)
            later, warm = visits(server, sessions, 8, turn)
            print(f"{name:28} {later:8.3f} s   {first / later:6.1f} times sooner   warm, at the least {warm:.3f}")


if __name__ == "__main__":
    main()
