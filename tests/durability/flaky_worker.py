"""A fake worker with moods: `python -m tests.durability.flaky_worker MOOD --fake=... --fd N --parent P`."""

import os
import signal
import sys
import time
from pathlib import Path

from superfluid.engine.__main__ import _die_with, main


def run(mood: Path, arguments: list[str]) -> int:
    _die_with(int(arguments[arguments.index("--parent") + 1]))
    while mood.exists():
        if mood.read_text() == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
