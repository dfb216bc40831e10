"""The options of `superfluid serve` for its HTTP listener."""

import dataclasses
import math

import pytest

from superfluid.daemon.config import HttpConfig, Observer
from superfluid.protocol.codes import Qos
from tests.cli.test_serve import INFO, Cli, StandIn, daemon

__all__ = ["daemon"]


def test_every_flag(cli: Cli, daemon: StandIn) -> None:
    flags = (
        "--http [::1]:80 --api-key sk-1 --http-host a.example --http-host B --http-origin https://app.example/ "
        "--http-default-qos Inline_Completion --no-http-qos-header --temperature 0 --top-p 0.5 --top-k 3 --min-p 0.1"
    )
    assert cli("serve", *flags.split()).code == 0
    assert daemon.configs[0].http == HttpConfig(
        host="::1",
        port=80,
        api_key="sk-1",
        hosts=("a.example", "b"),
        origins=("https://app.example",),
        default_qos=Qos.COMPLETION,
        qos_header=False,
        temperature=0.0,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
    )


def test_every_environment_variable(cli: Cli, daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HTTP": "localhost:0",
        "API_KEY": "sk-2",
        "HTTP_HOST": "a b",
        "HTTP_ORIGIN": "http://c http://d:1",
        "HTTP_DEFAULT_QOS": "3",
        "NO_HTTP_QOS_HEADER": "1",
        "TEMPERATURE": "1.5",
        "TOP_P": "1",
        "TOP_K": "40",
        "MIN_P": "0.05",
    }.items():
        monkeypatch.setenv(f"SUPERFLUID_{name}", value)
    assert cli("serve").code == 0
    assert daemon.configs[0].http == HttpConfig(
        "localhost", 0, "sk-2", ("a", "b"), ("http://c", "http://d:1"), Qos.BACKGROUND, False, 1.5, 1.0, 40, 0.05
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0.0), ("90", 90.0), ("1.5s", 1.5), ("24h", 86400.0), ("forever", math.inf)]
)
def test_keep_requests(cli: Cli, daemon: StandIn, monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    assert cli("serve").code == 0
    assert cli("serve", "--keep-requests", text).code == 0
    monkeypatch.setenv("SUPERFLUID_KEEP_REQUESTS", text)
    assert cli("serve").code == 0
    assert [config.keep_requests for config in daemon.configs] == [0.0, seconds, seconds]


@pytest.mark.parametrize("text", ["never", "", "-1", "inf", "nan", "1d", "Forever"])
def test_keep_requests_takes_a_time(cli: Cli, daemon: StandIn, text: str) -> None:
    result = cli("serve", "--keep-requests", text)
    assert result.code == 2
    assert "expected forever or a time such as 60, 30s, 2m or 1h" in result.err
    assert not daemon.configs


def test_no_http(cli: Cli, daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("serve", "--no-http").code == 0
    monkeypatch.setenv("SUPERFLUID_HTTP", "127.0.0.1:1")
    assert cli("serve", "--no-http").code == 0
    monkeypatch.setenv("SUPERFLUID_NO_HTTP", "1")
    assert cli("serve", "--http", "127.0.0.1:2").code == 0
    assert [config.http for config in daemon.configs] == [None, None, HttpConfig("127.0.0.1", 2)]


def test_http_and_no_http_contradict(cli: Cli, daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = cli("serve", "--http", "127.0.0.1:1", "--no-http")
    assert (ran.code, daemon.configs) == (2, [])
    assert "--http and --no-http" in ran.err
    monkeypatch.setenv("SUPERFLUID_HTTP", "127.0.0.1:1")
    monkeypatch.setenv("SUPERFLUID_NO_HTTP", "1")
    assert cli("serve").code == 2


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--http", "8453", "expected HOST:PORT"),
        ("--http", ":8453", "expected HOST:PORT"),
        ("--http", "::1:8453", "expected HOST:PORT"),
        ("--http", "http://localhost:1", "expected HOST:PORT"),
        ("--http", "localhost:65536", "from 0 to 65535"),
        ("--http", "localhost:", "expected a port"),
        ("--api-key", "", "visible ASCII"),
        ("--api-key", "two words", "visible ASCII"),
        ("--http-host", "http://a", "expected a host name"),
        ("--http-host", "a:80", "expected a host name"),
        ("--http-origin", "a.example", "expected an origin"),
        ("--http-origin", "https://a.example/page", "expected an origin"),
        ("--http-default-qos", "fast", "expected one of interactive"),
        ("--temperature", "2.1", "from 0 to 2"),
        ("--temperature", "nan", "from 0 to 2"),
        ("--top-p", "-1", "from 0 to 1"),
        ("--top-k", "1.5", "whole number"),
    ],
)
def test_values_that_make_no_sense(cli: Cli, daemon: StandIn, flag: str, value: str, expected: str) -> None:
    ran = cli("serve", flag, value)
    assert (ran.code, daemon.configs) == (2, [])
    assert expected in " ".join(ran.err.split())


def test_an_open_listener_is_warned_about(cli: Cli, daemon: StandIn) -> None:
    def behave(observer: Observer) -> None:
        observer.ready(dataclasses.replace(INFO, http="http://0.0.0.0:8453", http_open=True))

    daemon.behave = behave
    ran = cli("serve", "--http", "0.0.0.0:8453")
    assert "WARNING: whoever can reach http://0.0.0.0:8453 can use this server; set --api-key" in ran.err
    daemon.behave = lambda observer: observer.ready(INFO)
    assert "WARNING" not in cli("serve").err
