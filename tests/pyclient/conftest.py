"""The client's sources on the path, a clean environment, and a fake daemon to talk to."""

import socket
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "clients" / "python"
sys.path.insert(0, str(SOURCES))

from superfluid_client import Client, Sampling, Session  # noqa: E402

from tests.pyclient.fake_web import TOKEN, FakeWeb  # noqa: E402


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Where the client looks for what it is not told: an empty directory."""
    for name in ("SUPERFLUID_WEB_URL", "SUPERFLUID_WEB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SUPERFLUID_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def web():
    with FakeWeb() as web:
        yield web


@pytest.fixture
def client(web):
    return Client(web.url, TOKEN, timeout=20)


@pytest.fixture
def session(client):
    return Session(client, 1, Sampling(temperature=0.5, top_p=0.9, min_p=0.1, top_k=3, seed=11))


@pytest.fixture
def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
