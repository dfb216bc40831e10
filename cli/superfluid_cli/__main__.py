"""The way in: `superfluid`, `python -m superfluid_cli`."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Ctrl-C leaves no traceback, not even while modules load."""
    try:
        from superfluid_cli.program import run

        return run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
