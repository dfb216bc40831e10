"""Feed subscriptions of a connection: what they leave behind, and that no frame is cut."""

from __future__ import annotations

import trio

from superfluid.daemon.activity import Activity
from superfluid.protocol import responses
from superfluid.protocol.responses import Response
from superfluid.transports.following import Following
from tests.feeds.house import House, run


def test_a_frame_that_is_half_sent_when_its_subscription_ends_is_sent_whole(tmp_path):
    async def story(house: House):
        session = await house.cases.feeds.open("slow", None, False)
        sent: list[Response] = []
        sending, readable = trio.Event(), trio.Event()

        async def send(response: Response) -> None:
            if isinstance(response, responses.FeedEvent):
                sending.set()
                await readable.wait()
            sent.append(response)

        following = Following(house.cases, Activity(), send)
        async with trio.open_nursery() as connection:
            await following.start(session, connection)
            await sending.wait()
            (subscribed,) = sent
            assert following.stop(subscribed.sub)
            readable.set()
        assert [type(response) for response in sent] == [
            responses.Subscribed,
            responses.FeedEvent,
            responses.SubEnded,
        ]
        assert sent[-1].reason == "unsubscribed"
        assert not following.stop(subscribed.sub)
        assert not house.cases.feeds._events.followed(session)

    run(tmp_path, story)


def test_a_client_that_leaves_before_the_first_event_is_no_follower(tmp_path):
    async def story(house: House):
        session = await house.cases.feeds.open("left", None, False)
        events = house.cases.feeds.subscribe(session)
        await events.aclose()
        assert not house.cases.feeds._events.followed(session)

    run(tmp_path, story)
