"""The options of `superfluid serve` for its browser transport."""

import dataclasses
from pathlib import Path

import pytest

from superfluid.daemon.config import WebConfig
from tests.cli.test_serve import INFO, Cli, StandIn, daemon

__all__ = ["daemon"]


def test_off_by_default(cli: Cli, daemon: StandIn) -> None:
    assert cli("serve", "--web-origin", "http://localhost:5173").code == 0
    assert daemon.configs[0].web is None


@pytest.mark.parametrize(
    ("place", "host", "port"),
    [("127.0.0.1:8455", "127.0.0.1", 8455), ("[::1]:1", "::1", 1), ("localhost:0", "localhost", 0)],
)
def test_places(cli: Cli, daemon: StandIn, place: str, host: str, port: int) -> None:
    flags = ["--web", place, "--web-origin", "http://localhost:5173", "--web-origin", "https://App.example/"]
    assert cli("serve", *flags).code == 0
    assert daemon.configs[0].web == WebConfig(host, port, ("http://localhost:5173", "https://app.example"))


def test_environment(cli: Cli, daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERFLUID_WEB", "127.0.0.1:7")
    monkeypatch.setenv("SUPERFLUID_WEB_ORIGIN", "http://a http://b:1")
    assert cli("serve").code == 0
    assert daemon.configs[0].web == WebConfig("127.0.0.1", 7, ("http://a", "http://b:1"))


@pytest.mark.parametrize(
    "place",
    ["0.0.0.0:1", "127.0.0.2:1", "192.168.1.7:1", "example.org:1", "8455", "127.0.0.1", "localhost:x", "::1:1"],
)
def test_places_off_this_machine(cli: Cli, daemon: StandIn, place: str) -> None:
    assert (cli("serve", "--web", place).code, daemon.configs) == (2, [])


def test_the_ready_block_names_address_and_token_file(cli: Cli, daemon: StandIn) -> None:
    info = dataclasses.replace(INFO, web="http://127.0.0.1:8455", web_token=Path("/s/sessions/web-token"))
    daemon.behave = lambda observer: observer.ready(info)
    said = cli("serve", "--web", "127.0.0.1:8455").err
    assert "session api on http://127.0.0.1:8455, token in /s/sessions/web-token" in said
