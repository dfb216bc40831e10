"""Many requests at once, against any number of OpenAI-compatible servers in one run, interleaved.

    python benchmarks/serving.py --llama-server PATH          superfluid beside llama-server, both started here
    python benchmarks/serving.py --server NAME=URL ...        servers that run already
    options: --scenario NAME (repeatable), --repeat 5, --threads 2, --lanes 8, --context 2048

Each turn begins with a fresh process of every server that is started here; a step of a scenario is done by one server
after another, while the others have nothing to do. Prints the median of each figure for each server and the ratio of
the first server to each other.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator

from servers import Reply, Server, at_once, chat, llama_server, superfluid

Figures = dict[str, float]

PARTS = 3
"""How often a server's streams are measured a turn, with the others' between: a machine may change its speed by a
tenth from one few seconds to the next."""

WORDS = (
    "river stone light quiet market window copper garden signal harbor number winter letter paper engine silver "
    "morning bridge answer forest candle travel music simple circle needle valley orange pocket ladder"
).split()


def words(count: int, seed: int) -> str:
    """Seeded word soup: nobody has seen it before, and every server gets the same."""
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(count))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def throughput(server: Server, turn: int) -> Iterator[Figures]:
    """Aggregate tokens a second of 1, 2, 4 and 8 streams of 128 tokens, three times over, turn about."""
    for streams in (1, 2, 4, 8):
        tokens, wall = 0, 0.0
        for part in range(PARTS):
            prompts = [words(20, 1000 * turn + 100 * part + 10 * streams + place) for place in range(streams)]
            began = time.perf_counter()
            replies = at_once([lambda text=text: chat(server, [user(text)], 128) for text in prompts])
            wall += time.perf_counter() - began
            tokens += sum(reply.completion for reply in checked(replies))
            yield {f"tokens/s at {streams}": tokens / wall}


def agents(server: Server, turn: int) -> Iterator[Figures]:
    """Eight agents with 700-word prompts, and a chat that arrives two seconds later."""
    alone = chat(server, [user(words(8, 77 + turn))], 16, qos="interactive")
    chats: list[Reply] = []

    def arrive() -> None:
        time.sleep(2)
        chats.append(chat(server, [user(words(8, 99 + turn))], 16, qos="interactive"))

    late = threading.Thread(target=arrive)
    began = time.perf_counter()
    late.start()
    prompts = [words(700, 500 * turn + place) for place in range(8)]
    replies = at_once([lambda text=text: chat(server, [user(text)], 64, qos="background") for text in prompts])
    late.join()
    wall = time.perf_counter() - began
    checked([*replies, *chats, alone])
    yield {
        "chat alone, first token s": alone.first,
        "chat among agents, first token s": chats[0].first,
        "agents, wall s": wall,
        "longest pause of a stream s": max(reply.longest_pause for reply in [*replies, *chats]),
    }


def shared(server: Server, turn: int) -> Iterator[Figures]:
    """Sixteen requests at once that share a 700-word system prompt."""
    system = {"role": "system", "content": words(700, 31 * turn + 5)}
    questions = [words(8, 900 * turn + place) for place in range(16)]
    began = time.perf_counter()
    replies = at_once([lambda text=text: chat(server, [system, user(text)], 16) for text in questions])
    wall = time.perf_counter() - began
    checked(replies)
    yield {"prompt tokens computed": sum(reply.computed for reply in replies), "wall s": wall}


def resend(server: Server, turn: int) -> Iterator[Figures]:
    """A conversation sent whole again for six turns: the most prompt tokens that a later turn computes."""
    messages = [{"role": "system", "content": words(200, turn + 3)}]
    computed, first = [], []
    for step in range(6):
        messages.append(user(words(12, 40 * turn + step)))
        (reply,) = checked([chat(server, messages, 48)])
        messages.append({"role": "assistant", "content": reply.text})
        computed.append(reply.computed)
        first.append(reply.first)
    yield {
        "computed, worst later turn": max(computed[1:]),
        "first token s, later turns": statistics.median(first[1:]),
    }


SCENARIOS: dict[str, Callable[[Server, int], Iterator[Figures]]] = {
    "throughput": throughput,
    "agents": agents,
    "shared": shared,
    "resend": resend,
}


def checked(replies: list[Reply]) -> list[Reply]:
    for reply in replies:
        if reply.error is not None:
            raise SystemExit(f"a request failed: {reply.error}")
    return replies


def run(servers: list[Server], scenarios: list[str], repeat: int) -> None:
    for name in scenarios:
        print(f"\n{name}: {SCENARIOS[name].__doc__}")
        figures: dict[str, list[Figures]] = {server.name: [] for server in servers}
        for turn in range(repeat):
            # Turn about, so that what the machine does meanwhile meets all alike; and each time another process,
            # as one may be a tenth slower than the next for as long as it lives.
            ordered = servers if turn % 2 == 0 else servers[::-1]
            for server in ordered:
                if server.restart is not None:
                    server.restart()
                chat(server, [user("warm up")], 8)
                figures[server.name].append({})
            for step in zip(*(SCENARIOS[name](server, turn) for server in ordered), strict=True):
                for server, found in zip(ordered, step, strict=True):
                    figures[server.name][-1] |= found
            print(f"  {name} {turn + 1}/{repeat}", end="\r", file=sys.stderr, flush=True)
        show(servers, figures)


def show(servers: list[Server], figures: dict[str, list[Figures]]) -> None:
    names = list(figures[servers[0].name][0])
    for name in names:
        medians = [statistics.median(run[name] for run in figures[server.name]) for server in servers]
        shown = "  ".join(f"{server.name} {value:9.3f}" for server, value in zip(servers, medians, strict=True))
        ratios = "  ".join(f"ratio {medians[0] / other:.2f}" for other in medians[1:] if other)
        print(f"  {name:34} {shown}  {ratios}")
    mean = [name for name in names if name.startswith("tokens/s")]
    for server in servers[1:]:
        if mean:
            ratio = statistics.geometric_mean(
                statistics.median(run[name] for run in figures[servers[0].name])
                / statistics.median(run[name] for run in figures[server.name])
                for name in mean
            )
            print(f"  geometric mean against {server.name}: {ratio:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", default=[], metavar="NAME=URL")
    parser.add_argument("--llama-server", metavar="PATH")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--context", type=int, default=2048)
    options = parser.parse_args()
    wanted = options.scenario or list(SCENARIOS)
    with contextlib.ExitStack() as stack:
        servers = [Server(*pair.split("=", 1)) for pair in options.server]
        shape = (options.threads, options.lanes, options.context)
        if not servers:
            servers.append(stack.enter_context(superfluid(*shape)))
        if options.llama_server:
            servers.append(stack.enter_context(llama_server(options.llama_server, *shape)))
        run(servers, wanted, options.repeat)


if __name__ == "__main__":
    main()
