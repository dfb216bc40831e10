"""A scripted random workload on one daemon, and a ledger of what its clients saw committed."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

from superfluid.protocol import records, requests, responses
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Drop, Event, Replace
from superfluid_cli.client import Client
from superfluid_cli.exits import ConnectionBroken, NoDaemon, ServerSaid
from tests.durability.house import Beside, Following, err
from tests.support.daemon import GREEDY, SAMPLED, Daemon

WORDS = ("river", "lantern", "orbit", "salt", "Ünïcode", "seven", "copper", "<|im_end|>", "quiet", "🙂")


@dataclass
class Ledger:
    """What clients saw: events by session and id, sessions made, sessions purged, and purges without an answer."""

    events: dict[int, dict[int, Event]] = field(default_factory=dict)
    parents: dict[int, int | None] = field(default_factory=dict)
    purged: set[int] = field(default_factory=set)
    asked: dict[int, PurgeMode] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def saw(self, session: int, *events: Event) -> None:
        with self.lock:
            known = self.events.setdefault(session, {})
            for event in events:
                assert known.setdefault(event.event_id, event) == event, "one event, told in two ways"

    def made(self, session: int, parent: int | None) -> None:
        with self.lock:
            assert session not in self.parents, "an id was given twice"
            self.parents[session] = parent
            self.events.setdefault(session, {})

    def living(self) -> list[int]:
        with self.lock:
            return [session for session in self.parents if session not in self.purged]

    def may_be_purged(self, session: int) -> bool:
        """Whether a purge that got no answer may have taken it."""
        if session in self.asked:
            return True
        above = self.parents[session]
        while above is not None:
            if self.asked.get(above) is PurgeMode.CASCADE:
                return True
            above = self.parents[above]
        return False


class Clients:
    """Several clients that do random things until the daemon is gone, each by a seed of its own."""

    def __init__(self, daemon: Daemon, ledger: Ledger, seed: str, count: int) -> None:
        self._ledger = ledger
        self._daemon = daemon
        self._threads = [Beside(self._live, random.Random(f"{seed}.{number}")) for number in range(count)]

    def finish(self) -> None:
        for thread in self._threads:
            thread.result()

    def _live(self, chance: random.Random) -> None:
        followers = []
        try:
            with Client(self._daemon.socket, 120.0) as client:
                while True:
                    try:
                        self._act(client, chance, followers)
                    except ServerSaid as refusal:
                        self._judge(str(refusal))
        except (ConnectionBroken, NoDaemon, OSError):
            pass  # the daemon is gone
        except AssertionError as fault:
            if "the daemon closed" not in str(fault):
                raise
        for session, follower in followers:
            follower.cut()
            self._ledger.saw(session, *follower.events)

    def _judge(self, refusal: str) -> None:
        """Refusals that random requests may earn, and no others."""
        fine = ("was purged", "is generating", "has no content", "no generation in flight", "metadata version")
        also = ("outside session", "rebase edit spec", "in use", "already has a prompt", "did not quiesce")
        if not any(part in refusal for part in (*fine, *also)):
            self._ledger.faults.append(refusal)

    def _act(self, client: Client, chance: random.Random, followers: list[tuple[int, Following]]) -> None:
        living = self._ledger.living()
        if not living or chance.random() < 0.12:
            self._create(client, chance)
            return
        session = chance.choice(living[-12:])
        acts = (
            (self._say, 6),
            (self._append, 3),
            (self._generate, 6),
            (self._fork, 3),
            (self._trim, 1),
            (self._rebase, 2),
            (self._title, 2),
            (self._read, 2),
            (self._cancel, 1),
            (self._purge, 1),
        )
        (act,) = chance.choices([act for act, _ in acts], [weight for _, weight in acts])
        if len(followers) < 2 and chance.random() < 0.2:
            followers.append((session, Following(self._daemon, session, provisional=chance.random() < 0.5)))
        act(client, chance, session)

    def _text(self, chance: random.Random) -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(1, 30)))

    def _create(self, client: Client, chance: random.Random) -> None:
        params = chance.choice((GREEDY, SAMPLED))
        made = client.ask(requests.Create(None, params), responses.Created).session
        self._ledger.made(made, None)

    def _say(self, client: Client, chance: random.Random, session: int) -> None:
        asked = requests.AppendMessage(session, chance.choice((0, 1, 1, 2)), self._text(chance))
        self._ledger.saw(session, client.ask(asked, responses.Committed).event)

    def _append(self, client: Client, chance: random.Random, session: int) -> None:
        span = tuple(chance.choices(range(17, 40000), k=chance.randint(1, 20))) if chance.random() < 0.5 else ()
        asked = requests.Append(session, self._text(chance), span)
        self._ledger.saw(session, client.ask(asked, responses.Committed).event)

    def _generate(self, client: Client, chance: random.Random, session: int) -> None:
        for reply in client.generate(session, chance.randint(1, 60)):
            events = (reply.event,) if isinstance(reply, responses.Delta) else reply.events
            self._ledger.saw(session, *events)

    def _fork(self, client: Client, chance: random.Random, session: int) -> None:
        at = chance.randint(1, client.summary(session).events)
        made = client.ask(requests.Fork(session, at, None), responses.Created).session
        self._ledger.made(made, session)

    def _trim(self, client: Client, chance: random.Random, session: int) -> None:
        at = chance.randint(1, client.summary(session).events)
        made = client.ask(requests.Trim(session, at), responses.Created).session
        self._ledger.made(made, session)

    def _rebase(self, client: Client, chance: random.Random, session: int) -> None:
        start = chance.randint(1, client.summary(session).events)
        end = start + chance.randint(1, 3)
        edit = Drop(start, end) if chance.random() < 0.5 else Replace(start, end, 1, self._text(chance))
        made = client.ask(requests.Rebase(session, (edit,), None), responses.Created).session
        self._ledger.made(made, session)

    def _title(self, client: Client, chance: random.Random, session: int) -> None:
        version = client.summary(session).meta_version
        archived = chance.choice((None, True, False))
        client.ask(requests.SetMeta(session, version, self._text(chance), archived), responses.Meta)

    def _read(self, client: Client, chance: random.Random, session: int) -> None:
        cursor = chance.randint(0, 20)
        self._ledger.saw(session, *client.ask(requests.Read(session, cursor), responses.Events).events)

    def _cancel(self, client: Client, chance: random.Random, session: int) -> None:
        client.call(requests.Cancel(session))

    def _purge(self, client: Client, chance: random.Random, session: int) -> None:
        mode = chance.choice((PurgeMode.REROOT, PurgeMode.REROOT, PurgeMode.CASCADE))
        with self._ledger.lock:
            self._ledger.asked[session] = mode if session not in self._ledger.asked else PurgeMode.CASCADE
        gone = client.ask(requests.Purge(session, 0, mode), responses.Purged).sessions
        with self._ledger.lock:
            self._ledger.purged.update(gone)


def check(daemon: Daemon, ledger: Ledger) -> None:
    """Everything that was seen committed is there, bit for bit, and the sessions make sense."""
    assert not ledger.faults, ledger.faults
    with daemon.client() as client:
        listed = set(client.ask(requests.List(), responses.Sessions).ids)
        assert not listed & ledger.purged
        for session, seen in ledger.events.items():
            if session in ledger.purged or (session not in listed and ledger.may_be_purged(session)):
                ledger.purged.add(session)
                _check_purged(client, session)
                continue
            assert session in listed, f"session {session} is lost"
            events = client.read(session)
            for event in seen.values():
                assert event.event_id < len(events), f"session {session}: event {event.event_id} is lost"
                assert events[event.event_id] == event
        for session in listed:
            parent = _check_sound(client, session)
            # What a client did not hear of any more was made all the same.
            ledger.parents.setdefault(session, parent)
            ledger.events.setdefault(session, {})
    ledger.asked.clear()


def _check_purged(client: Client, session: int) -> None:
    assert "was purged" in err(client, requests.Read(session, 0)), f"session {session} is back"


def _check_sound(client: Client, session: int) -> int | None:
    """Returns the session's parent."""
    inspection = client.ask(requests.Inspect(session), responses.Inspection).inspection
    events = inspection.events
    assert [event.event_id for event in events] == list(range(len(events)))
    assert inspection.tokens == tuple(token for event in events for token in records.span_of(event.body))
    assert inspection.summary.events == len(events)
    assert inspection.summary.tokens == len(inspection.tokens)
    own = [event.epoch for event in events[inspection.summary.fork_at :]]
    assert own == sorted(own)
    return inspection.summary.parent
