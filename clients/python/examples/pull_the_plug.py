"""Kill the server with SIGKILL in the middle of a reply, start it again, and let it finish that reply.

It starts a server of its own on a directory of its own, and removes both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from superfluid_client import Client, Sampling, Session, SuperfluidError

START_S = 300.0
STOP_S = 60.0
SYSTEM = "You are a storyteller."
PROMPT = "Tell me a long story about a lighthouse keeper and a storm."


class Server:
    """`superfluid serve` on one directory and one port; started, killed and started again."""

    def __init__(self, program: str, model: str | None, root: Path) -> None:
        self._sessions = root / "sessions"
        self._log = root / "serve.out"
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._argv = [program, "serve", *([model] if model is not None else [])]
        self._argv += ["--sessions", str(self._sessions), "--socket", str(root / "sf.sock")]
        self._argv += ["--web", f"127.0.0.1:{port}", "--no-http", "--no-tui"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Client:
        """Run it until it answers; a client with the token of this start. Raises RuntimeError where it does not."""
        token_file = self._sessions / "web-token"
        token_file.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server left with {self._process.returncode}:\n{self._tail()}")
            if token_file.exists() and token_file.stat().st_size:
                client = Client(self.url, token_file=token_file)
                if client.health():
                    return client
            time.sleep(0.05)
        raise RuntimeError(f"the server did not answer within {START_S:.0f} s:\n{self._tail()}")

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Let it go in peace."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


def interrupted(server: Server, session: Session, after: int, max_tokens: int) -> str:
    """The text that was shown before the server was killed, `after` pieces into the reply."""
    shown: list[str] = []
    for chunk in session.stream(max_tokens):
        if chunk.kind == "text":
            shown.append(chunk.text)
            show(chunk.text)
        if len(shown) >= after:
            server.kill()
            break
    else:
        raise RuntimeError(f"the reply ended after {len(shown)} pieces, before the plug was pulled: lower --after")
    return "".join(shown)


def durable(session: Session) -> str:
    """What the log holds of the replies."""
    return "".join(message["content"] for message in session.messages() if message["role"] == "assistant")


def show(text: str) -> None:
    print(text, end="", flush=True)


def note(text: str) -> None:
    print(f"\n--- {text}\n", flush=True)


def run(server: Server, after: int, max_tokens: int) -> None:
    client = server.start()
    session = client.session(Sampling(temperature=0.8, seed=2026), system=SYSTEM)
    session.user(PROMPT)
    note(f"session {session.id} on {server.url}")
    shown = interrupted(server, session, after, max_tokens)
    note(f"SIGKILL after {after} pieces; starting the server again")

    started = time.monotonic()
    again = server.start().get(session.id)
    kept = durable(again)
    redrawn = max(0, len(shown) - len(kept))
    note(f"back after {time.monotonic() - started:.1f} s; the log kept {len(kept)} of {len(shown)} characters shown")
    show(kept)
    reply = again.generate(max_tokens, on_text=show)
    note(
        f"kept {len(kept)} characters, drew {redrawn} of those shown again; "
        f"{reply.tokens} tokens more, finish: {reply.finish}"
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", help="what to serve: a GGUF file; default: the embedded model")
    parser.add_argument("--superfluid", metavar="PATH", default="superfluid", help="the program; default: from PATH")
    parser.add_argument("--after", type=int, default=80, help="pieces of text until the plug is pulled")
    parser.add_argument("--max-tokens", type=int, default=600)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    program = shutil.which(os.path.expanduser(args.superfluid))
    if program is None:
        print(f"{args.superfluid}: no such program; give it with --superfluid", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="superfluid-") as root:
        server = Server(program, args.model, Path(root))
        try:
            run(server, args.after, args.max_tokens)
        except (SuperfluidError, RuntimeError) as error:
            print(f"\n{error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        finally:
            server.stop()
    return 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


if __name__ == "__main__":
    sys.exit(main())
