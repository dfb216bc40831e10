"""The token: minted at every start, for this user's eyes, and nowhere else."""

import re

import pytest

from superfluid.transports.web.token import mint
from tests.web.server import fake


def mode(path):
    return path.stat().st_mode & 0o777


def test_each_start_mints_another(webs):
    web = webs()
    first = web.token
    assert re.fullmatch(r"[0-9a-f]{64}", first)
    assert mode(web.token_file) == 0o600
    assert web.rpc("List") == {"Sessions": {"ids": []}}
    web.daemon.stop()
    web.token_file.chmod(0o644)
    web.start()
    assert re.fullmatch(r"[0-9a-f]{64}", web.token)
    assert web.token != first
    assert mode(web.token_file) == 0o600
    old = [f"Authorization: Bearer {first}", f"X-Superfluid-CSRF: {first}", "Content-Type: application/json"]
    assert web.request("POST", "/web/rpc", old, b'"List"')[0] == 401
    assert web.rpc("List") == {"Sessions": {"ids": []}}


def test_the_log_does_not_tell_it(webs):
    web = webs(log_filter="debug", worker_argv=fake())
    session = web.session()
    web.stream(session=session, max_tokens=4)
    web.post("/web/rpc", {"Frobnicate": web.token})
    web.request("GET", f"/web/{web.token}", web.auth)
    assert web.daemon.stop() == 0
    logs = [path.read_text() for path in (web.daemon.sessions / "logs").iterdir()]
    assert logs
    assert all(web.token not in text for text in [*logs, web.daemon.said()])


def test_whoever_holds_an_old_file_open_does_not_see_it(tmp_path):
    path = tmp_path / "web-token"
    path.write_text("old")
    with path.open() as old:
        token = mint(path)
        assert old.read() == "old"
    assert (path.read_text(), mode(path)) == (token, 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "web-token").symlink_to(tmp_path / "elsewhere")
    mint(tmp_path / "web-token")
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_nothing_is_left_where_it_cannot_be_written(tmp_path):
    (tmp_path / "web-token").mkdir()
    with pytest.raises(IsADirectoryError):
        mint(tmp_path / "web-token")
    assert [path.name for path in tmp_path.iterdir()] == ["web-token"]
