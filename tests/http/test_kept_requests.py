"""Stateless requests that are logged with `keep_requests`: what is there to read, who sees it, and when it goes."""

import json
import math
import sqlite3
from contextlib import ExitStack, closing

import pytest

from superfluid.protocol import requests, responses
from superfluid.protocol.codes import Finish, PurgeMode, Role
from superfluid.protocol.records import Appended, Generated, Message
from superfluid.sessions.heads import FIRST_REQUEST
from superfluid.sessions.state import SessionState
from superfluid_cli.client import Client, ServerSaid
from tests.http.server import Server, eventually, fake, request
from tests.support.daemon import create, drawn, generate

HEADER = "x-superfluid-session-id"
MARK = "an albatross of quite another kind"


@pytest.fixture(scope="module")
def keeper(tmp_path_factory):
    """A daemon that keeps requests for ever."""
    server = Server(
        tmp_path_factory.mktemp("keeper"),
        worker_argv=fake(delay_us=200),
        keep_requests=math.inf,
        max_queue=64,
        web={"port": 0},
    )
    yield server
    server.close()


@pytest.fixture
def client(keeper):
    with keeper.daemon.client() as client:
        yield client


def kept(response):
    """The sessions that a response names."""
    assert response.status_code == 200, response.text
    return [int(part) for part in response.headers[HEADER].split(", ")]


def read(client: Client, session):
    return client.ask(requests.Read(session, 0), responses.Events).events


def state_of(client: Client, session):
    state = SessionState(session)
    for event in read(client, session):
        state.apply(event)
    return state


def every(client: Client):
    """All requests that are kept, by the list that holds archived sessions too."""
    sessions = client.ask(requests.Sessions(True), responses.SessionList).sessions
    return {entry.id for entry in sessions if entry.id >= FIRST_REQUEST}


def gone(client: Client, session):
    try:
        read(client, session)
    except ServerSaid as said:
        return f"session {session} was purged" in str(said)
    return False


def files(server):
    """The bytes of everything in the sessions directory."""
    paths = [path for path in server.daemon.sessions.rglob("*") if path.is_file()]
    return {path.name: path.read_bytes() for path in paths}


# --- what is there ------------------------------------------------------------------------------------------------


def test_a_chat_can_be_read_back_and_is_in_no_list(keeper, client):
    own = create(client)
    response = keeper.chat("Who goes there?", max_tokens=7)
    (session,) = kept(response)
    assert session >= FIRST_REQUEST
    assert create(client) == own + 1  # the ids of others stay dense
    state = state_of(client, session)
    assert state.archived
    assert [(said.role, said.text) for said in state.said] == [
        (Role.USER, "Who goes there?"),
        (Role.ASSISTANT, response.json()["choices"][0]["message"]["content"]),
    ]
    assert state.last_finish == Finish.LENGTH
    inspection = client.ask(requests.Inspect(session), responses.Inspection).inspection
    assert inspection.tokens == tuple(state.tokens)
    assert session not in client.ask(requests.List(), responses.Sessions).ids
    assert session not in {node[0] for node in client.ask(requests.Tree(), responses.Tree).nodes}
    assert session not in {s.id for s in client.ask(requests.Sessions(False), responses.SessionList).sessions}
    assert session in every(client)


def test_the_browser_transport_reads_it_too(keeper):
    (session,) = kept(keeper.chat("Is anybody there?"))
    token = (keeper.daemon.sessions / "web-token").read_text()
    response = keeper.http.post(
        keeper.daemon.web_url() + "/web/rpc",
        json={"Read": {"session": session, "cursor": 0}},
        headers={"authorization": f"Bearer {token}", "x-superfluid-csrf": token},
    )
    assert "Is anybody there?" in json.dumps(response.json()["Events"])


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])
def test_every_choice_is_a_session(keeper, client, stream):
    response = keeper.chat("Say three things.", n=3, stream=stream, temperature=0.9, seed=5, max_tokens=9)
    sessions = kept(response)
    assert len(set(sessions)) == 3
    if stream:
        texts = ["", "", ""]
        for line in response.text.splitlines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    texts[choice["index"]] += choice["delta"].get("content") or ""
    else:
        texts = [choice["message"]["content"] for choice in response.json()["choices"]]
    assert [state_of(client, session).said[-1].text for session in sessions] == texts


def test_completions_and_messages(keeper, client):
    body = {"prompt": ["Once upon", [300, 301, 302]], "max_tokens": 5, "temperature": 0}
    response = keeper.http.post("/v1/completions", json=body)
    texts = [choice["text"] for choice in response.json()["choices"]]
    for session, text, prompt in zip(kept(response), texts, ("Once upon", None), strict=True):
        events = [event.body for event in read(client, session)]
        assert [body.text for body in events if isinstance(body, Appended)] == [prompt]
        assert "".join(body.text for body in events if isinstance(body, Generated)) == text

    body = {"messages": [{"role": "user", "content": "Ahoy."}], "system": "Be brief.", "max_tokens": 5}
    response = keeper.http.post("/v1/messages", json=body)
    (session,) = kept(response)
    said = [(said.role, said.text) for said in state_of(client, session).said]
    text = response.json()["content"][0]["text"]
    assert said == [(Role.SYSTEM, "Be brief."), (Role.USER, "Ahoy."), (Role.ASSISTANT, text)]


def test_what_a_stop_string_cut_off_is_no_part_of_the_session(keeper, client):
    whole = keeper.chat("Go on and on.", max_tokens=24).json()["choices"][0]["message"]["content"]
    stop = whole[len(whole) // 2 :][:3]
    response = keeper.chat("Go on and on.", max_tokens=24, stop=stop)
    text = response.json()["choices"][0]["message"]["content"]
    assert text == whole[: whole.index(stop)]
    (session,) = kept(response)
    state = state_of(client, session)
    assert (state.said[-1].text, state.last_finish) == (text, Finish.END_OF_TURN)

    # The session goes on from just what was answered.
    told = [
        {"role": "user", "content": "Go on and on."},
        {"role": "assistant", "content": text},
        {"role": "user", "content": "And then?"},
    ]
    body = {"messages": told, "max_tokens": 4, "temperature": 0}
    response = keeper.http.post("/v1/chat/completions", json=body, headers={HEADER: str(session)})
    assert response.status_code == 200, response.text
    later = [event.body for event in read(client, session)][state.events :]
    assert [body.text for body in later if isinstance(body, Message)] == ["And then?"]

    body = {"prompt": "Once upon a", "max_tokens": 24, "temperature": 0}
    whole = keeper.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    stop = whole[len(whole) // 2 :][:3]
    response = keeper.http.post("/v1/completions", json={**body, "stop": stop})
    text = response.json()["choices"][0]["text"]
    (session,) = kept(response)
    events = read(client, session)
    assert events[-2].body.text == text == whole[: whole.index(stop)]
    state = state_of(client, session)
    assert tuple(state.tokens) == events[-3].body.span + events[-2].body.span


def test_a_client_that_leaves_leaves_a_cancelled_reply(keeper, client):
    before = every(client)
    so_far = keeper.metric("superfluid_decode_tokens_total")
    with keeper.connection() as stream:
        body = {"messages": [{"role": "user", "content": "Talk."}], "max_tokens": 1500, "ignore_eos": True}
        stream.sendall(request("/v1/chat/completions", body))
        eventually(lambda: keeper.metric("superfluid_decode_tokens_total") > so_far + 20)
    eventually(keeper.idle)
    (session,) = every(client) - before
    eventually(lambda: state_of(client, session).last_finish == Finish.CANCELLED)


def test_what_is_refused_or_is_no_request_leaves_nothing(keeper, client):
    before = every(client)
    assert keeper.chat("word " * 3000).status_code == 400
    assert keeper.chat([{"type": "image_url"}]).status_code == 400
    counted = keeper.http.post(
        "/v1/messages/count_tokens", json={"messages": [{"role": "user", "content": "How long is this?"}]}
    )
    assert counted.status_code == 200
    keeper.http.post("/v1/sessions", json={"id": "feed"})
    assert keeper.http.post("/v1/sessions/feed/push", json={"data": ["a line"]}).status_code == 200
    asked = keeper.http.post("/v1/sessions/feed/generate", json={"prompt": "What is there?", "max_tokens": 3})
    assert asked.status_code == 200, asked.text
    assert HEADER not in asked.headers
    assert every(client) == before


def test_a_full_queue_leaves_nothing_of_what_it_refuses(keeper, client):
    before = every(client)
    with ExitStack() as stack:
        for _ in range(4 + 64):
            stream = stack.enter_context(keeper.connection())
            body = {"messages": [{"role": "user", "content": "Talk."}], "max_tokens": 1500, "ignore_eos": True}
            stream.sendall(request("/v1/chat/completions", body))
        eventually(lambda: keeper.metric("superfluid_queue_depth") == 64)
        begun = every(client)
        assert keeper.chat().status_code == 429
        assert every(client) == begun
    eventually(keeper.idle)
    assert len(begun - before) == 4 + 64


def test_a_fork_outlives_what_it_was_forked_from(keeper, client):
    (session,) = kept(keeper.chat("Something to go on from."))
    events = read(client, session)
    child = client.ask(requests.Fork(session, len(events), None), responses.Created).session
    assert child < FIRST_REQUEST
    client.ask(requests.Purge(session, 0, PurgeMode.REROOT), responses.Purged)
    assert gone(client, session)
    assert state_of_child(client, child) == [Role.USER, Role.ASSISTANT]
    assert child in client.ask(requests.List(), responses.Sessions).ids


def state_of_child(client, child):
    inspection = client.ask(requests.Inspect(child), responses.Inspection).inspection
    assert inspection.summary.parent is None
    return [body.role if isinstance(body, Message) else Role.ASSISTANT for body in _said(inspection.events)]


def _said(events):
    return [event.body for event in events if isinstance(event.body, Message | Generated)]


# --- when it goes -------------------------------------------------------------------------------------------------


def test_requests_are_purged_after_their_time(servers):
    server = servers(keep_requests=1.0)
    sessions = kept(server.chat(MARK, n=2)) + kept(server.chat(MARK))
    with server.daemon.client() as client:
        eventually(lambda: all(gone(client, session) for session in sessions))
        eventually(lambda: not any(MARK.encode() in data for data in files(server).values()))
        (last,) = kept(server.chat("Once more."))
        eventually(lambda: gone(client, last))
    assert last > max(sessions)


def test_over_kills_and_restarts(servers):
    """What was killed is whole as far as it got; a start purges what is over; no id is given twice."""
    server = servers(keep_requests=3600.0, worker_argv=fake(delay_us=2000))
    done, damaged, unarchived, named = (kept(server.chat(f"{MARK}, number {n}"))[0] for n in range(4))
    with server.daemon.client() as client:
        assert client.ask(requests.SetMeta(unarchived, 1, None, False), responses.Meta).version == 2
        client.call(requests.Name(named, "keepsake"))
    so_far = server.metric("superfluid_decode_tokens_total")
    with server.connection() as stream:
        body = {"messages": [{"role": "user", "content": MARK}], "max_tokens": 1500, "ignore_eos": True}
        stream.sendall(request("/v1/chat/completions", body))
        eventually(lambda: server.metric("superfluid_decode_tokens_total") > so_far + 40)
        server.daemon.kill()
    server.close()

    server = servers(park=True)  # keeps no more, and what is there for as long as was said then
    before = rows(server)
    assert server.chat(MARK).status_code == 200
    assert HEADER not in server.chat(MARK, n=2).headers
    assert rows(server) == before
    with server.daemon.client() as client:
        (killed,) = every(client) - {done, damaged, unarchived, named}
        state = state_of(client, killed)
        assert state.archived
        assert state.said[0].text == MARK
        assert state.last_finish == Finish.OPEN
        assert client.ask(requests.Inspect(killed), responses.Inspection).inspection.tokens == tuple(state.tokens)
        assert len(drawn(generate(client, killed, 5))) == 5
    server.daemon.stop()
    server.close()
    (park,) = (server.daemon.sessions / "park").glob(f"*-{killed}.park")
    with closing(sqlite3.connect(log_of(server))) as log, log:
        log.execute("UPDATE records SET digest = zeroblob(8) WHERE session = ? AND event = 2", (damaged,))

    server = servers(park=True, keep_requests=0.5)
    with server.daemon.client() as client:
        eventually(lambda: gone(client, done) and gone(client, killed))  # what cannot be purged holds up nobody
        eventually(lambda: not park.exists())
        with pytest.raises(ServerSaid, match="damaged"):
            read(client, damaged)
        assert set(client.ask(requests.List(), responses.Sessions).ids) == {unarchived, named}
        assert [state_of(client, session).said[0].text for session in (unarchived, named)] == [
            f"{MARK}, number {n}" for n in (2, 3)
        ]
        assert not any(f"{MARK}, number 0".encode() in data for data in files(server).values())
        (another,) = kept(server.chat())
        assert another > killed


def log_of(server):
    (path,) = server.daemon.sessions.glob("*.db")
    return path


def rows(server):
    """How much is in the log."""
    with closing(sqlite3.connect(f"file:{log_of(server)}?mode=ro", uri=True)) as log:
        return [log.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("records", "heads", "facts")]
