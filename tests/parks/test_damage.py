"""A damaged, foreign or newer artifact is a miss: the answers are right, and nobody else notices."""

import os
import shutil

import pytest

from tests.support.daemon import Daemon
from tests.warmth.stories import RECALL, asked, filler, fork, secret, told

WORDS = ("tiger", "silver", "falcon", "dragon", "castle", "winter", "orange", "garden", "forest")


def xor_the_middle(path, other):
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        piece = file.read(4096)
        file.seek(path.stat().st_size // 2)
        file.write(bytes(byte ^ 0x5A for byte in piece))


def cut_to_half(path, other):
    os.truncate(path, path.stat().st_size // 2)


def cut_to_nothing(path, other):
    os.truncate(path, 0)


def flip_a_header_byte(path, other):
    with path.open("r+b") as file:
        file.seek(70)
        byte = file.read(1)
        file.seek(70)
        file.write(bytes([byte[0] ^ 1]))


def claim_a_newer_version(path, other):
    with path.open("r+b") as file:
        file.seek(8)
        file.write(b"\x63")


def swap_in_another_model_s(path, other):
    shutil.copy(other, path)


DAMAGES = [
    xor_the_middle,
    cut_to_half,
    cut_to_nothing,
    flip_a_header_byte,
    claim_a_newer_version,
    swap_in_another_model_s,
]
NOT_OURS = (claim_a_newer_version, swap_in_another_model_s)


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """What a stopped daemon left: sessions that know a word each, all parked; the session of each word."""
    directory = tmp_path_factory.mktemp("parked")
    with Daemon(directory, park=True) as daemon, daemon.client() as client:
        sessions = {word: told(client, secret(word) + filler(3, n)) for n, word in enumerate(WORDS)}
        for word, session in sessions.items():
            assert asked(client, session, RECALL) == (f" {word}.", 0)
        assert daemon.stop() == 0
    return directory, sessions


@pytest.fixture(scope="module")
def other_model_s(tmp_path_factory):
    """An artifact of a daemon whose KV is of another type, and so another model's to ours."""
    with Daemon(tmp_path_factory.mktemp("other"), park=True, kv_type="q8_0") as daemon, daemon.client() as client:
        asked(client, told(client, secret("raven") + filler(3)), RECALL)
        assert daemon.stop() == 0
        (path,) = (daemon.sessions / "park").glob("*.park")
        return path


@pytest.mark.parametrize("when", ["while it is stopped", "while it runs"])
def test_it_is_a_miss(left, other_model_s, tmp_path, when):
    directory, sessions = left
    shutil.copytree(directory / "sessions", tmp_path / "sessions")
    *victims, first, second, whole = WORDS
    paths = {word: next((tmp_path / "sessions" / "park").glob(f"*-{sessions[word]}.park")) for word in WORDS}
    broken = dict(zip(victims, DAMAGES, strict=True))

    def answers(client, word):
        """What the session answers, asked alone, in a fork of its own so that it stays as it is."""
        return asked(client, fork(client, sessions[word]), RECALL)

    if when == "while it is stopped":
        for word, damage in broken.items():
            damage(paths[word], other_model_s)
    with Daemon(tmp_path, park=True) as daemon, daemon.client() as client:
        before = [answers(client, word)[0] for word in (first, second)]
        assert before == [f" {first}.", f" {second}."]
        for word, damage in broken.items():
            if when == "while it runs":
                damage(paths[word], other_model_s)
            assert answers(client, word) == (f" {word}.", 0), damage
            assert [answers(client, word)[0] for word in (first, second)] == before
        assert {word for word in victims if paths[word].exists()} == {
            word for word, damage in broken.items() if damage in NOT_OURS
        }
        # And one that nobody touched serves.
        answer, warm = answers(client, whole)
        assert answer == f" {whole}."
        assert warm > 60
