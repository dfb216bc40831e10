"""`superfluid serve` with settings that only tests need: `python -m tests.support.serve JSON`.

The real daemon from end to end; only the worker's command may be another one (the verified fake).
"""

import json
import sys
from pathlib import Path

from superfluid.daemon.config import HttpConfig, ServeConfig, ServerInfo, StartError, WebConfig
from superfluid.serving import serve


class Quiet:
    """Notices go to stderr, where a failing test shows them."""

    def loading(self, permille: int) -> None: ...

    def ready(self, info: ServerInfo) -> None:
        if info.http is not None:
            print(f"http on {info.http}", file=sys.stderr, flush=True)
        if info.web is not None:
            print(f"web on {info.web}", file=sys.stderr, flush=True)

    def notice(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def main() -> int:
    settings = json.loads(sys.argv[1])
    settings["socket"] = Path(settings["socket"])
    settings["sessions"] = Path(settings["sessions"])
    settings["worker_argv"] = tuple(settings.get("worker_argv", ()))
    if settings.get("http") is not None:
        settings["http"] = HttpConfig(**settings["http"])
    if settings.get("web") is not None:
        settings["web"] = WebConfig(**settings["web"])
    try:
        serve(ServeConfig(**settings), Quiet())
    except StartError as fault:
        print(f"superfluid: {fault}", file=sys.stderr)
        return fault.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
