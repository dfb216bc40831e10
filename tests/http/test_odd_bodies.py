"""Bodies made at random from what is odd: whatever a client sends, it is its own fault or it is answered."""

import json
import random
from collections import Counter

import pytest

from tests.http.server import Server, fake

ROUNDS = 2000
TEXTS = [
    "", "x", "\x00", "\U0001f600", "\ud83d", "\udc00 x", "\u202e", "a" * 300, "<|im_end|>", "<|im_start|>system\n",
    "word " * 400, "line\nline\r\n\n", " ", "\n", "\u2028\x85", "\ufffd\uffff", "é" * 50, "<|endoftext|>", "{{ x }}",
    "{% raw %}",
]  # fmt: skip
VALUES = [
    None, True, False, 0, 1, -1, 2, 256, 257, 1.5, -0.0, 1e308, 2**31, 2**32, 2**53, 2**63, 2**64, 10**40, "feed", [],
    ["x"], [""], [None], [[]], {}, {"type": "text"}, {"type": "auto"}, {"type": "disabled"}, ["up", "down"],
    "word " * 3000, *TEXTS,
]  # fmt: skip
SAMPLING = ["max_tokens", "temperature", "top_p", "top_k", "seed", "stream", "ignore_eos"]
CHAT = ["stop", "n", "logit_bias", "stream_options", "tools", "model", "chat_template_kwargs", "reasoning_effort"]
ROUTES = {
    "/v1/chat/completions": ["messages", *CHAT, *SAMPLING],
    "/v1/completions": ["prompt", "stop", "n", "echo", "logprobs", *SAMPLING],
    "/v1/messages": ["messages", "system", "stop_sequences", "tools", "thinking", "metadata", *SAMPLING],
    "/v1/messages/count_tokens": ["messages", "system", "tools"],
    "/v1/sessions": ["id", "window", "pre_decode"],
    "/v1/sessions/feed/push": ["data"],
    "/v1/sessions/feed/generate": ["prompt", "stop", "fast_answer", "gap_threshold", "reasoning_effort", *SAMPLING],
    "/v1/sessions/feed/flash": ["query", "max_tokens"],
    "/v1/sessions/feed/warm": ["messages", "tools", "chat_template_kwargs"],
}


class Maker:
    """Bodies, most of which are nearly right."""

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def text(self):
        return "".join(self.draw.choices(TEXTS, k=self.draw.randrange(1, 3)))

    def value(self, depth=0):
        if depth < 2 and self.draw.random() < 0.15:
            return [self.value(depth + 1) for _ in range(self.draw.randrange(4))]
        if depth < 2 and self.draw.random() < 0.15:
            names = self.draw.choices(["role", "content", "type", "text"], k=2)
            return {name: self.value(depth + 1) for name in names}
        return self.draw.choice(VALUES)

    def messages(self, path):
        roles = ["user", "assistant"] if "messages" in path else ["user", "assistant", "system", "user"]
        return [
            {
                "role": self.draw.choice(roles),
                "content": self.draw.choice([self.text(), [{"type": "text", "text": self.text()}] * 2]),
            }
            for _ in range(self.draw.randrange(1, 6))
        ]

    def body(self, path):
        fields = ROUTES[path]
        right = {
            "messages": lambda: self.messages(path),
            "prompt": self.text,
            "query": self.text,
            "data": lambda: self.draw.choice([self.text(), [self.text()] * self.draw.randrange(1, 9)]),
            "max_tokens": lambda: self.draw.choice([1, 2, 30]),
        }
        body = {name: make() for name, make in right.items() if name in fields}
        if self.draw.random() < 0.4:
            body[self.draw.choice(fields)] = self.value()
        if body.get("ignore_eos"):
            body["max_tokens"] = 5
        return body


@pytest.mark.heavy
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
def test_odd_bodies(tmp_path, seed):
    server, maker, seen = Server(tmp_path, worker_argv=fake()), Maker(seed), Counter()
    draw = random.Random(seed)
    try:
        for _ in range(ROUNDS):
            if draw.random() < 0.01:
                server.http.delete("/v1/sessions/feed")
            if server.http.get("/v1/sessions/feed").status_code == 404:
                shape = draw.choice([{}, {"window": 300, "pre_decode": True}, {"window": 1000}])
                assert server.http.post("/v1/sessions", json={"id": "feed", **shape}).status_code == 201
            path = draw.choice([*ROUTES])
            body = maker.body(path)
            kind = {"content-type": "application/json"}
            turn = {"x-superfluid-session-id": "feed"} if draw.random() < 0.5 and "/sessions" not in path else {}
            reply = server.http.post(path, content=json.dumps(body).encode(), headers=kind | turn)
            assert reply.status_code < 500, (path, body, reply.text)
            assert '"api_error"' not in reply.text, (path, body, reply.text)
            seen[path, reply.is_success] += 1
            if path == "/v1/sessions" and reply.is_success:
                server.http.delete(f"/v1/sessions/{reply.json()['id']}")
        assert len(seen) == 2 * len(ROUTES), "some route was never right, or never wrong"
        assert server.metric("superfluid_worker_respawns_total") == 0
        assert "Traceback" not in (server.daemon.sessions / "logs" / "serve.log").read_text()
    finally:
        server.close()
