"""Sessions that are not logged: whoever guesses the id of one gets no further than with any other id."""

from __future__ import annotations

import pytest
import trio

from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import Drop
from superfluid.protocol.refusals import UnknownSession
from tests.daemon.still import Still
from tests.support.daemon import GREEDY

VERBS = {
    "create": lambda still, session: still.branching.create(session, GREEDY),
    "fork": lambda still, session: still.branching.fork(session, 1, None),
    "trim": lambda still, session: still.branching.trim(session, 1),
    "rebase": lambda still, session: still.branching.rebase(session, (Drop(1, 2),), None),
    "read": lambda still, session: still.book.read(session, 0),
    "now": lambda still, session: still.book.now(session),
    "set_meta": lambda still, session: still.keeping.set_meta(session, 0, "a title", None),
    "set_qos": lambda still, session: still.keeping.set_qos(session, 0, False),
    "purge": lambda still, session: still.keeping.purge(session, 0, PurgeMode.REROOT),
}


@pytest.mark.parametrize("verb", VERBS)
def test_nobody_gets_at_them(log, verb):
    async def story() -> None:
        still = Still(log)
        with still.book.passing(GREEDY) as state:
            with pytest.raises(UnknownSession):
                await VERBS[verb](still, state.id)
            assert state.events == 1
            async with still.book.writing(state.id, even_fenced=True) as same:
                assert same is state
        assert log.heads() == ()

    trio.run(story)
