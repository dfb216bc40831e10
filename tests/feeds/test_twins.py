"""A session that was asked fifty questions and answered twenty standing ones is the twin of one that was asked
nothing: over the wire, on the fake worker and on the embedded model."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from superfluid.protocol import records, requests, responses
from superfluid.protocol.feed_responses import FeedReport
from superfluid_cli.client import Client
from tests.durability.house import until
from tests.feeds.pushing import report, settled
from tests.support.daemon import FAKE, GREEDY, Daemon, tokens_of
from tests.warmth.stories import SENTENCES, secret

QUESTIONS = 50
QUERIES = 20
WHAT = "What is the secret word?"


def question(client: Client, session: int, text: str, most: int = 3) -> responses.Answer:
    asked = requests.Ask(session, text, most, GREEDY, (), (), 2.0)
    *_, answer = client.question(asked)
    assert isinstance(answer, responses.Answer)
    return answer


def pushed(client: Client, session: int, *lines: str) -> FeedReport:
    client.ask(requests.Push(session, lines), responses.Pushed)
    return settled(client, session)


def fresh(client: Client, session: int) -> tuple[responses.FlashEntry, ...]:
    """The standing questions once all are answered over what there is now."""

    def all_fresh() -> bool:
        return all(entry.fresh for entry in client.ask(requests.FlashList(session), responses.Flashes).entries)

    until(all_fresh)
    return client.ask(requests.FlashList(session), responses.Flashes).entries


def seen(client: Client, session: int) -> FeedReport:
    """The session object, but for its name and its times."""

    def quiet() -> bool:
        now = report(client, session)
        status = client.ask(requests.Status(), responses.StatusReport)
        return not (now.busy or status.running or any(status.queue))

    until(quiet)
    return replace(report(client, session), session=0, name=None, created=0, last_used=0)


def work(client: Client) -> tuple[int, int]:
    """Tokens that the worker has computed: of input, and drawn."""
    text = client.ask(requests.Metrics(), responses.Text).text
    found = dict(line.split() for line in text.splitlines() if line[:1] != "#" and line.count(" ") == 1)
    return int(float(found["superfluid_prefill_tokens_total"])), int(float(found["superfluid_decode_tokens_total"]))


def turn(daemon: Daemon, name: str, *said: tuple[str, str]) -> dict:
    """A chat turn over HTTP on the session of that name."""
    reply = httpx.post(
        f"{daemon.url()}/v1/chat/completions",
        json={
            "messages": [{"role": role, "content": text} for role, text in said],
            "temperature": 0,
            "max_tokens": 12,
        },
        headers={"x-superfluid-session-id": name},
        timeout=120,
    )
    assert reply.status_code == 200, reply.text
    return reply.json()


def lived(daemon: Daemon, name: str, *, asked: bool) -> list[object]:
    """One life of a session, and all that can be seen of it from outside."""
    saw: list[object] = []
    with daemon.client() as client:
        session = client.ask(requests.Open(name, 400, False), responses.Opened).session
        if asked:
            for number in range(QUERIES - 1):
                client.ask(requests.FlashAdd(session, f"What of number {number}?", 2), responses.Flash)
            client.ask(requests.FlashAdd(session, WHAT, 12), responses.Flash)
        pushed(client, session, SENTENCES[2].strip(), SENTENCES[0].strip())
        if asked:
            answers = fresh(client, session)
            assert [entry.data_version for entry in answers] == [1] * QUERIES
            for number in range(QUESTIONS):
                answer = question(client, session, f"Is it {number}?")
                assert answer.cached_tokens >= report(client, session).data_end - 1
        saw += [seen(client, session), tokens_of(client, session)]
        before, held = work(client), len(tokens_of(client, session))
        pushed(client, session, secret("tulip").strip(), SENTENCES[1].strip())
        if asked:
            answers = fresh(client, session)
            context = len(tokens_of(client, session))
            around = question(client, session, "?").prompt_tokens
            own = sum(entry.tokens + around for entry in answers)
            prefilled, drawn = (now - then for now, then in zip(work(client), before, strict=True))
            assert prefilled <= context - held + own + around + QUERIES < QUERIES * context // 2
            assert drawn <= 12 + 2 * (QUERIES - 1) + 3, "twenty answers, and that of one question"
        saw += [seen(client, session), tokens_of(client, session)]
        said = [("user", WHAT)]
        for _ in range(2):
            reply = turn(daemon, name, *said)
            usage = reply["usage"]
            computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
            text = reply["choices"][0]["message"]["content"]
            saw += [text, computed, usage, seen(client, session), tokens_of(client, session)]
            said += [("assistant", text), ("user", WHAT)]
            if asked:
                fresh(client, session)
        saw.append(question(client, session, WHAT + " ", 12).text)
        if asked:
            hit = question(client, session, WHAT, 12)
            assert hit.flash_id == QUERIES
            assert (hit.prompt_tokens, hit.completion_tokens, hit.cached_tokens) == (0, 0, 0)
        # how many records a reply is cut into is a matter of time
        aside = records.FlashAnswered | records.FlashAdded | records.Generated
        saw.append([event.body for event in client.read(session) if not isinstance(event.body, aside)])
    return saw


def told_alike(tmp_path, **settings: object) -> list[object]:
    """What both lives saw: each in a daemon of its own, so that neither finds KV of the other."""
    lives = []
    for asked in (True, False):
        folder = tmp_path / str(asked)
        folder.mkdir()
        with Daemon(folder, http={"port": 0}, **settings) as daemon:
            life = lived(daemon, "twin", asked=asked)
            lives.append([part if not isinstance(part, FeedReport) else replace(part, run=0) for part in life])
    for one, other in zip(*lives, strict=True):
        assert one == other
    return lives[0]


def test_questions_leave_a_twin(tmp_path):
    told_alike(tmp_path, worker_argv=FAKE, max_context=1024)


@pytest.mark.heavy
def test_questions_to_a_real_model_leave_a_twin(tmp_path):
    life = told_alike(tmp_path, max_context=1024)
    texts = [part for part in life if isinstance(part, str)]
    print(texts)
    assert all("tulip" in text for text in texts), texts
