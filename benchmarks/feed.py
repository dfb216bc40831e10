"""Questions over a live feed against the same text sent whole: latency by resident tokens, and answers from memory.

    python benchmarks/feed.py                          superfluid alone
    python benchmarks/feed.py --llama-server PATH      beside llama-server, which is sent text and question each time
    options: --repeat 5, --threads 2, --resident 250,500,1000,2000,4000

For each size: a question over a session that holds the text, a stateless request that finds the text in a prefix
cache, and a cold one. Then a flash hit and a fast_answer hit, over HTTP. Times are seconds to the first token.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from servers import Server, chat, embedded_model, llama_server, superfluid

from superfluid.model.vocabulary import Vocabulary

SYMBOLS = ("AAPL", "MSFT", "NVDA", "AMZN", "GOOG", "META", "TSLA", "ORCL")
CONTEXT = 6144
HITS = 50


class Session:
    """A streaming session of one server."""

    def __init__(self, server: Server, name: str) -> None:
        parts = urlsplit(server.url)
        self._connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=900)
        self._path = f"/v1/sessions/{name}"
        self._ask("POST", "/v1/sessions", {"id": name, "pre_decode": True})

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"content-type": "application/json"})
        response = self._connection.getresponse()
        said = response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {said[:200]!r}")
        return dict(json.loads(said))

    def state(self) -> dict[str, object]:
        return self._ask("GET", self._path)

    def push(self, lines: list[str]) -> None:
        """Push, and wait until it is ingested."""
        version = self._ask("POST", self._path + "/push", {"data": lines})["data_version"]
        self._wait(lambda state: state["pending"] == 0 and state["data_version"] != version)

    def _wait(self, done: Callable[[dict[str, object]], bool]) -> None:
        deadline = time.monotonic() + 900
        while not done(self.state()):
            if time.monotonic() > deadline:
                raise SystemExit("a push was not ingested")
            time.sleep(0.05)

    def add_flash(self, query: str) -> None:
        self._ask("POST", self._path + "/flash", {"query": query, "max_tokens": 4})

    def settle(self, queries: int) -> None:
        """Wait until the standing questions are answered and the ready position is known."""
        deadline = time.monotonic() + 900
        while time.monotonic() < deadline:
            entries = self._ask("GET", self._path + "/flash")["data"]
            assert isinstance(entries, list)
            if sum(bool(entry["fresh"]) for entry in entries) == queries and self.state()["ready"]:
                return
            time.sleep(0.05)
        raise SystemExit("flash queries were not answered")

    def question(self, prompt: str, **fields: object) -> tuple[float, dict[str, object]]:
        """Seconds of one question with an answer of one token, and the reply."""
        began = time.perf_counter()
        reply = self._ask("POST", self._path + "/generate", {"prompt": prompt, "max_tokens": 1, **fields})
        return time.perf_counter() - began, reply

    def delete(self) -> None:
        self._ask("DELETE", self._path)
        self._connection.close()


def lines(seed: int) -> Iterator[str]:
    """An endless feed that nobody has seen before."""
    draw = random.Random(seed)
    while True:
        yield f"{draw.choice(SYMBOLS)} {draw.uniform(20, 900):.2f} {draw.uniform(-5, 5):+.2f}%"


def fill(session: Session, feed: Iterator[str], resident: int) -> list[str]:
    """Push until at least `resident` tokens are held; what was pushed."""
    pushed: list[str] = []
    while (missing := resident - int(str(session.state()["data_end"]))) > 0:
        batch = [next(feed) for _ in range(max(1, missing // 16))]
        session.push(batch)
        pushed += batch
    return pushed


def stateless(server: Server, text: str, question: str) -> float:
    reply = chat(server, [{"role": "user", "content": f"{text}\n{question}"}], 1)
    if reply.error is not None:
        raise SystemExit(f"{server.name}: {reply.error}")
    return reply.first


def by_resident(server: Server, peer: Server | None, sizes: list[int], repeat: int) -> None:
    names = ["session", "with prefix cache", "cold"]
    if peer is not None:
        names.append(f"{peer.name}, prefix cache")
    print("first token, seconds, by resident tokens (medians)")
    print(f"{'tokens':>8}" + "".join(f"{name:>28}" for name in names) + f"{'cold / session':>18}")
    for size in sizes:
        figures: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(repeat):
            feed = lines(1000 * size + turn)
            session = Session(server, f"bench-{size}-{turn}")
            text = "\n".join(fill(session, feed, size))
            session.question("Say one word.")  # the first takes the sequence it runs in
            figures["session"].append(session.question(f"Which symbol moved most? ({turn})")[0])
            session.delete()
            cold = "\n".join(line for line, _ in zip(lines(7 + 1000 * size + turn), text.split("\n"), strict=False))
            figures["cold"].append(stateless(server, cold, "Which symbol moved most?"))
            figures["with prefix cache"].append(stateless(server, cold, f"Which moved least? ({turn})"))
            if peer is not None:
                stateless(peer, cold, "Which symbol moved most?")
                figures[names[-1]].append(stateless(peer, cold, f"Which moved least? ({turn})"))
        medians = [statistics.median(figures[name]) for name in names]
        shown = "".join(f"{median:28.3f}" for median in medians)
        print(f"{size:8}{shown}{medians[2] / medians[0]:18.1f}", flush=True)


def hits(server: Server) -> None:
    session = Session(server, "bench-hits")
    query = "Which symbol moved most?"
    session.push([line for line, _ in zip(lines(5), range(20), strict=False)])
    session.add_flash(query)
    session.settle(1)
    seconds, replies = zip(*(session.question(query) for _ in range(HITS)), strict=True)
    if not all(reply.get("flash") for reply in replies):
        raise SystemExit("a flash query was not answered from memory")
    print(f"flash hit over HTTP, median of {HITS}: {statistics.median(seconds) * 1000:.1f} ms")
    with Vocabulary(embedded_model()) as vocabulary:
        word = vocabulary.piece(int(str(session.state()["ready_token"]))).decode().strip()
    fast = {"fast_answer": [word], "gap_threshold": 0.0}
    seconds, replies = zip(*(session.question("Up or down?", **fast) for _ in range(HITS)), strict=True)
    if not all(reply.get("speculative") for reply in replies):
        raise SystemExit(f"{word!r} was not answered from the ready position")
    print(f"fast_answer hit over HTTP, median of {HITS}: {statistics.median(seconds) * 1000:.1f} ms")
    session.delete()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", metavar="PATH")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--resident", default="250,500,1000,2000,4000")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(superfluid(options.threads, 2, CONTEXT))
        peer = None
        if options.llama_server:
            peer = stack.enter_context(llama_server(options.llama_server, options.threads, 2, CONTEXT))
        by_resident(server, peer, [int(size) for size in options.resident.split(",")], options.repeat)
        hits(server)


if __name__ == "__main__":
    main()
