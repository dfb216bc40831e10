"""How long a cold `superfluid session list` takes beside a cold program of one Typer command.

Both are started anew each time, in turns, so that whatever else the machine does meets both alike. The daemon is a
socket in this process that answers with two sessions. Prints both medians and their ratio; exits 1 over the limit.

    python benchmarks/cli_latency.py [ROUNDS]
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from superfluid.protocol import postcard, requests, responses
from superfluid.protocol.frames import FrameReader, frame

LIMIT = 1.4
ROUNDS = 11
WARM_UP = 2

ONE_COMMAND = """\
import typer

app = typer.Typer()


@app.command()
def main(name: str = "world") -> None:
    print(f"Hello {name}")


app()
"""

REPLY = responses.SessionList(
    tuple(responses.SessionSummary(id_, None, 0, f"session {id_}", False, 0, 0, 9, 400, 0) for id_ in (1, 2))
)


def serve(listener: socket.socket) -> None:
    """Answer one request a connection, until the listener is closed."""
    answer = frame(postcard.encode(responses.Response, REPLY))
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            reader = FrameReader()
            while (payload := reader.next_frame()) is None:
                reader.feed(connection.recv(4096))
            assert postcard.decode(requests.Request, payload) == requests.Sessions(False)
            connection.sendall(answer)


def seconds(command: list[str], env: dict[str, str], expected: bytes) -> float:
    """One cold run, which must print what is expected."""
    start = time.perf_counter()
    ran = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    elapsed = time.perf_counter() - start
    assert expected in ran.stdout, ran.stdout
    return elapsed


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory(prefix="sf-") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder) / "s"
        listener.bind(str(path))
        listener.listen(8)
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        program = Path(folder) / "one.py"
        program.write_text(ONE_COMMAND)
        env = os.environ | {"SUPERFLUID_SOCKET": str(path)}
        ours = [sys.executable, "-m", "superfluid_cli", "session", "list"]
        theirs = [sys.executable, str(program)]
        pairs = [
            (seconds(theirs, env, b"Hello world"), seconds(ours, env, b"session 2")) for _ in range(rounds + WARM_UP)
        ][WARM_UP:]
        listener.shutdown(socket.SHUT_RDWR)
    typer_median = statistics.median(pair[0] for pair in pairs)
    our_median = statistics.median(pair[1] for pair in pairs)
    ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
    print(f"one Typer command        {typer_median * 1000:6.1f} ms")
    print(f"superfluid session list  {our_median * 1000:6.1f} ms")
    print(f"ratio, median of {rounds:<2} pairs {ratio:5.2f} (limit {LIMIT})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
