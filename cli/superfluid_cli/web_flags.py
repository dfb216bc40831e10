"""Options of `serve` that are about its browser transport."""

from __future__ import annotations

from typing import Annotated, Any

from superfluid_cli import http_flags
from superfluid_cli.flags import option


def address(text: str) -> tuple[str, int]:
    """`HOST:PORT` of this machine."""
    if not text.startswith(("127.0.0.1:", "[::1]:", "localhost:")):
        raise ValueError(f"expected 127.0.0.1:PORT, [::1]:PORT or localhost:PORT, got {text!r}")
    return http_flags.address(text)


Web = Annotated[
    Any,
    option(
        "--web",
        metavar="127.0.0.1:PORT",
        parser=address,
        help="Where to serve the session API to browsers and programs of this machine. A token is written to "
        "web-token in the sessions directory.",
        default="off",
    ),
]
WebOrigin = Annotated[
    list[str] | None,
    option(
        "--web-origin",
        metavar="URL",
        parser=http_flags.origin,
        help="A web page's origin that may use the session API.",
    ),
]
