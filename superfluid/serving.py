"""`superfluid serve`: the daemon with its transports."""

from __future__ import annotations

from superfluid.daemon.config import Observer, ServeConfig, web_token
from superfluid.daemon.server import run
from superfluid.daemon.transport import Transport
from superfluid.transports.holding import HeldBodies
from superfluid.transports.http.listener import HttpListener
from superfluid.transports.unix_socket import UnixSocket
from superfluid.transports.web.listener import WebListener


def serve(config: ServeConfig, observer: Observer) -> None:
    """Serve until SIGTERM or SIGINT, then drain. Raises StartError where it cannot start."""
    transports: list[Transport] = [UnixSocket(config.socket)]
    bodies = HeldBodies()
    if config.http is not None:
        transports.append(HttpListener(config.http, bodies))
    if config.web is not None:
        transports.append(WebListener(config.web, web_token(config), bodies))
    run(config, observer, transports)
