"""A crowd of LayerScale's clients on few sessions, each doing as it likes: nobody sees a fault, and nothing stays."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import layerscale
import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from tests.http.server import Server, eventually, fake
from tests.support.daemon import DEADLINE

CLIENTS, STEPS, SESSIONS = 8, 80, 4
SHAPES = ({}, {"window": 400}, {"window": 1200, "pre_decode": True}, {"pre_decode": True})
CROSSING = (layerscale.ConflictError, layerscale.NotFoundError)
"""What a client sees where another one was faster."""


class Member:
    """One client. `seen` counts its steps by name and end."""

    def __init__(self, server, number):
        self.draw = random.Random(number)
        self.client = layerscale.LayerScale(server.url, max_retries=0, timeout=DEADLINE)
        self.talks = {}
        self.seen = Counter()

    def live(self):
        steps = [name for name in dir(self) if name.startswith("do_")]
        with self.client:
            for _ in range(STEPS):
                step = self.draw.choice(steps)
                try:
                    getattr(self, step)(f"s{self.draw.randrange(SESSIONS)}")
                except CROSSING as crossed:
                    self.seen[step, type(crossed)] += 1
                else:
                    self.seen[step, None] += 1
        return self.seen

    def do_create(self, name):
        self.client.sessions.create(id=name, **self.draw.choice(SHAPES))

    do_create_again = do_create

    def do_delete(self, name):
        if self.draw.random() < 0.3:
            self.client.sessions.delete(name)

    def do_push(self, name):
        ack = self.client.sessions.push(name, [f"line {self.draw.random()}"] * self.draw.randrange(1, 40))
        assert ack.pending >= 0

    def do_push_and_wait(self, name):
        self.client.sessions.push(
            name, f"line {self.draw.random()}", wait=True, wait_interval=0.02, wait_timeout=DEADLINE
        )

    def do_ask(self, name):
        answer = self.client.sessions.generate(name, prompt=self.draw.choice(["Q1?", "Why?"]), max_tokens=9)
        assert answer.flash or answer.usage.completion_tokens <= 9

    def do_ask_streamed(self, name):
        *_, done = self.client.sessions.generate_stream(name, prompt="Why?", max_tokens=5)
        assert done.done

    def do_ask_fast(self, name):
        self.client.sessions.generate(name, prompt="Up?", fast_answer=["up", "down"], gap_threshold=0.1, max_tokens=3)

    def do_flash(self, name):
        self.client.sessions.flash(name, f"Q{self.draw.randrange(5)}?", max_tokens=4)

    def do_unflash(self, name):
        self.client.sessions.unflash(name, self.draw.randrange(1, 8))

    def do_look(self, name):
        assert self.client.sessions.list().object == "list"
        assert len(self.client.sessions.list_flash(name).data) <= 5
        assert self.client.sessions.get(name).id == name

    def do_warm(self, name):
        self.client.sessions.warm(name, messages=[{"role": "user", "content": f"warm {self.draw.randrange(3)}"}])

    def do_turn(self, name):
        messages = self.talks.get(name, [{"role": "user", "content": "Hello."}])
        if len(messages) > 6 or self.draw.random() < 0.2:
            messages = messages[: 1 + 2 * self.draw.randrange(2)]
        shared = {"messages": messages, "session_id": name, "max_tokens": 6}
        way = self.draw.randrange(3)
        if way == 0:
            reply = self.client.chat.create(**shared).choices[0].message.content
        elif way == 1:
            reply = self.client.messages.create(**shared).content[0].text
        else:
            chunks = self.client.chat.stream(**shared, stop=["e"])
            reply = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        more = {"role": "user", "content": "More."}
        self.talks[name] = [*messages, {"role": "assistant", "content": reply}, more]

    def do_turn_that_is_too_long(self, name):
        with pytest.raises((layerscale.BadRequestError, *CROSSING)) as refused:
            self.client.chat.create(messages=[{"role": "user", "content": "word " * 3000}], session_id=name)
        assert isinstance(refused.value, CROSSING) or refused.value.context_overflow

    def do_leave(self, name):
        with self.client.sessions.generate_stream(name, prompt="Talk.", ignore_eos=True, max_tokens=200) as pieces:
            next(iter(pieces), None)

    def do_listen(self, name):
        with self.client.sessions.events(name) as events:
            first = next(iter(events), None)
        assert first is None or first.type == "connected"  # none where it was deleted at once

    def do_socket(self, name):
        with self.client.sessions.ws(name) as socket:
            first = next(iter(socket), None)
            with suppress(ConnectionClosed):  # it was deleted at once
                socket.push("from a socket")
        assert first is None or isinstance(first, layerscale.WsConnected)


@pytest.mark.heavy
@pytest.mark.timeout(1200)
def test_a_crowd(tmp_path):
    server = Server(tmp_path, worker_argv=fake(delay_us=50))
    try:
        descriptors = []
        for night in range(2):
            members = [Member(server, CLIENTS * night + number) for number in range(CLIENTS)]
            with ThreadPoolExecutor(CLIENTS) as pool:
                seen = sum(pool.map(Member.live, members), Counter())
            steps = {step for step, _ in seen}
            assert {step for step, end in seen if end is None} == steps, "some step never went well"
            for session in server.http.get("/v1/sessions").json()["data"]:
                eventually(lambda path=f"/v1/sessions/{session['id']}": server.http.delete(path).status_code != 409)
            assert server.http.get("/v1/sessions").json()["data"] == []
            eventually(server.idle)
            health = server.http.get("/health").json()
            ended = ("requests_ok", "requests_failed", "requests_cancelled")
            assert health["requests_started"] == sum(health[name] for name in ended)
            descriptors.append(psutil.Process(server.daemon.process.pid).num_fds())
        assert descriptors[1] <= descriptors[0] + 2
        assert server.metric("superfluid_worker_respawns_total") == 0
        assert "Traceback" not in (server.daemon.sessions / "logs" / "serve.log").read_text()
        assert server.daemon.stop() == 0
    finally:
        server.close()
