"""Sessions that reason and call at once, are cut and cancelled at random, and lose workers: all come out alike."""

import random
import threading

from superfluid.protocol import records, requests, responses
from superfluid.protocol.records import span_of
from superfluid_cli.client import ServerSaid
from tests.support.daemon import generate, tokens_of
from tests.tools.talk import asked, events_of, ledger, open_calls, text_of

QUESTIONS = ("Is it raining?", "Twice?", "Say it badly.", "Break off.", "Break.", "Think.")
DEATHS = 3


def test_whatever_happens_to_replies_they_are_those_of_a_quiet_daemon(daemons):
    daemon = daemons(tool_lease_ms=3_600_000)
    daemon.start()
    faults: list[BaseException] = []

    with daemon.client() as client:
        quiet = {}
        for question in QUESTIONS:
            session = asked(client, question)
            generate(client, session, 500)
            quiet[question] = session
        sessions = [(asked(client, question), question) for question in QUESTIONS]

    def draw(session: int, seed: int) -> None:
        """To the end of the turn, in pieces; some are cancelled, some die with the worker."""
        randomly = random.Random(seed)
        try:
            with daemon.client() as own, daemon.client() as other:
                while True:
                    try:
                        deltas = own.generate(session, randomly.choice((1, 2, 5, 13, 40)))
                        for reply in deltas:
                            if isinstance(reply, responses.Generated) and reply.finish == 1:
                                return
                            if randomly.random() < 0.1:
                                cancel(other, session)
                    except ServerSaid as said:
                        if "generation failed" not in str(said):
                            raise
        except BaseException as fault:
            faults.append(fault)

    def cancel(client, session):
        try:
            client.ask(requests.Cancel(session), responses.Cancelling)
        except ServerSaid as said:
            if "no generation in flight" not in str(said):
                raise

    threads = [threading.Thread(target=draw, args=(session, session)) for session, _ in sessions]
    for thread in threads:
        thread.start()
    deaths = 0
    while deaths < DEATHS and any(thread.is_alive() for thread in threads):
        for worker in daemon.workers():
            worker.kill()
            worker.wait()
            deaths += 1
    assert deaths
    for thread in threads:
        thread.join()
    assert not faults

    with daemon.client() as client:
        for session, question in sessions:
            events, calm = events_of(client, session), events_of(client, quiet[question])
            bodies, wanted = ([event.body for event in log] for log in (events, calm))
            assert [event.event_id for event in events] == list(range(len(events)))
            assert _calls(bodies) == _calls(wanted)
            assert [text_of(bodies, channel) for channel in range(3)] == [
                text_of(wanted, channel) for channel in range(3)
            ]
            assert tokens_of(client, session) == tokens_of(client, quiet[question])
            assert tokens_of(client, session) == tuple(t for body in bodies for t in span_of(body))
            uses = [event.event_id for event in events if isinstance(event.body, records.ToolUse)]
            leases = {event.event_id: event.body for event in events if isinstance(event.body, records.ToolLease)}
            assert [leases[call + 1].call_id for call in uses] == uses
            assert len(leases) == len(uses)
            assert open_calls(client, session) == uses == list(ledger(client, session))


def _calls(bodies):
    return [body for body in bodies if isinstance(body, records.ToolUse | records.ToolParseFailure)]
