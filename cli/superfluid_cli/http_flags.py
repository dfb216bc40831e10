"""Options of `serve` that are about its HTTP listener."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from superfluid_cli import values
from superfluid_cli.flags import option

DEFAULT = ("127.0.0.1", 8453)

_QOS = ("interactive", "completion", "agent", "background")


def address(text: str) -> tuple[str, int]:
    """`HOST:PORT`; an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not host or (":" in host and not bracketed) or not re.fullmatch(r"[0-9A-Za-z.:_-]+", host):
        raise ValueError(f"expected HOST:PORT, as in 127.0.0.1:8453 or [::1]:8453, got {text!r}")
    return host, values.whole(0, 65535, "a port, which is a whole number")(port)


def key(text: str) -> str:
    """A key that a header can carry."""
    if not re.fullmatch(r"[!-~]{1,1024}", text):
        raise ValueError("expected 1 to 1024 visible ASCII characters without spaces")
    return text


def host_name(text: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*", text):
        raise ValueError(f"expected a host name such as llm.example.org, got {text!r}")
    return text.lower()


def origin(text: str) -> str:
    """An origin as a browser sends it."""
    parts = urlsplit(text)
    if not parts.scheme or not parts.netloc or parts.path.rstrip("/") or parts.query or parts.fragment:
        raise ValueError(f"expected an origin such as https://app.example.org, got {text!r}")
    return text.lower().rstrip("/")


def qos(text: str) -> int:
    """The number of a scheduling class; the same words as `superfluid.protocol.codes.qos_named` knows."""
    from superfluid.protocol.codes import qos_named

    found = qos_named(text)
    if found is None:
        raise ValueError(f"expected one of {', '.join(_QOS)}, got {text!r}")
    return int(found)


Http = Annotated[
    Any, option("--http", metavar="HOST:PORT", parser=address, help="Where to serve HTTP.", default="127.0.0.1:8453")
]
NoHttp = Annotated[bool, option("--no-http", help="Serve no HTTP.")]
ApiKey = Annotated[
    str | None,
    option("--api-key", metavar="KEY", parser=key, help="What HTTP requests must show, except to /health."),
]
HttpHost = Annotated[
    list[str] | None,
    option(
        "--http-host", metavar="NAME", parser=host_name, help="A name by which HTTP clients may call this server."
    ),
]
HttpOrigin = Annotated[
    list[str] | None,
    option("--http-origin", metavar="URL", parser=origin, help="A web page's origin that may send HTTP requests."),
]
DefaultQos = Annotated[
    int,
    option(
        "--http-default-qos",
        metavar="CLASS",
        parser=qos,
        help=f"Scheduling class of HTTP requests: {', '.join(_QOS)}.",
        default="agent",
    ),
]
KeepRequests = Annotated[
    float,
    option(
        "--keep-requests",
        metavar="TIME|forever",
        parser=values.kept,
        help="Log each stateless request, and its reply, and purge it such a time after its end; 0 logs none.",
        default="0",
    ),
]
NoQosHeader = Annotated[bool, option("--no-http-qos-header", help="Ignore the header x-superfluid-qos.")]
Temperature = Annotated[
    float | None,
    option(
        "--temperature",
        metavar="F",
        parser=values.fraction(0, 2),
        help="Temperature of HTTP requests that name none; 0 is greedy.",
        default="0.7, on messages and sessions 0.6",
    ),
]
TopP = Annotated[
    float | None,
    option(
        "--top-p",
        metavar="F",
        parser=values.fraction(0, 1),
        help="Their top-p.",
        default="0.95, on messages and sessions 0.9",
    ),
]
TopK = Annotated[
    int, option("--top-k", parser=values.whole(0, (1 << 31) - 1), help="Their top-k; 0 is all.", default=True)
]
MinP = Annotated[
    float, option("--min-p", metavar="F", parser=values.fraction(0, 1), help="Their min-p.", default=True)
]
