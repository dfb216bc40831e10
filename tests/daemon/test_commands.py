"""Commands of the program against a real daemon: tools, permissions, blocks, pins, completions and exports."""

from __future__ import annotations

import json

import pytest

from superfluid_cli.__main__ import main
from tests.cli.secret_shapes import texts
from tests.cli.test_redaction import leaks
from tests.support.daemon import FAKE, Daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("commands"), worker_argv=FAKE) as daemon:
        yield daemon


@pytest.fixture
def cli(daemon, capsys):
    def run(*arguments, code=0):
        """What it prints; its complaint where it is to fail."""
        capsys.readouterr()
        *group, last = [word for word in (("session", *arguments) if arguments[0] != "complete" else arguments)]
        ended = main([*group, last, "--socket", str(daemon.socket)])
        said = capsys.readouterr()
        assert ended == code, said.err
        return said.out if not code else said.err

    return run


def test_calls_that_are_not_there(cli):
    session = cli("new").strip()
    assert cli("tools", session) == ""
    assert cli("ledger", session) == ""
    for verb, *words in (("result", "it"), ("outcome", "failed"), ("cancel-call",)):
        assert "tool call 1 is unknown or already closed" in cli(verb, session, "1", *words, code=1)
    assert "unknown session 999" in cli("tools", "999", code=4)


def test_a_permission_holds_the_session_up(cli):
    session = cli("new").strip()
    cli("append", session, "--role", "user", "Hello.")
    request = cli("ask-permission", session, "May I?").strip()
    assert "open permission request" in cli("generate", session, "--max-tokens", "2", code=1)
    cli("permit", session, request, "--deny")
    cli("generate", session, "--max-tokens", "2")
    assert "unknown or already answered" in cli("permit", session, request, code=1)


def test_a_pin_is_in_the_log(cli):
    session = cli("new").strip()
    deadline = cli("pin", session, "10m").strip()
    assert f"deadline_unix_ms {deadline}" in cli("read", session)
    cli("unpin", session)
    assert "pinned" not in cli("show", session)


def test_a_model_without_markers_completes_nothing(cli):
    assert "no FIM dialect" in cli("complete", "a", "b", code=1)


def test_an_export_shows_no_secret(cli):
    session = cli("new", "--title", texts()["github"][0]).strip()
    for text, _ in texts().values():
        cli("append", session, "--role", "user", text)
        cli("append", session, text)
        cli("block", session, "artifact", text)
        cli("ask-permission", session, text)
    for form in ("jsonl", "otlp-jsonl"):
        for content in ((), ("--include-content",)):
            out = cli("export", session, "--format", form, *content)
            assert len(out.splitlines()) >= (1 if form == "otlp-jsonl" else 4 * len(texts()))
            for line in out.splitlines():
                shown = json.dumps(json.loads(line), ensure_ascii=False)
                assert not [secret for _, secret in texts().values() if leaks(shown, secret)]
