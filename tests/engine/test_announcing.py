"""When tokens are announced: the first of a lane before the next round, others when it is time, never twice."""

from hypothesis import given
from hypothesis import strategies as st

from superfluid.engine.announcing import PAUSE_MOST, Announcing

ROUNDS = st.lists(
    st.tuples(
        st.floats(0.001, 0.3),  # seconds of the round
        st.integers(1, 12),  # lanes that draw
        st.booleans(),  # whether one draws its first token
        st.booleans(),  # whether the tick ends with it
    ),
    min_size=1,
    max_size=40,
)


@given(ROUNDS)
def test_every_token_is_told_once_and_in_time(rounds):
    now = 0.0
    frames = []
    announcing = Announcing(frames.append, lambda: now)
    drawn, untold, tick, last = 0, [], 1, 0.0
    for seconds, lanes, first, ends in rounds:
        now += seconds
        tokens = [(lane, drawn + lane) for lane in range(lanes)]
        drawn += lanes
        untold += tokens
        announcing.drew(tick, tokens, first=first)
        assert not frames  # not before it is known that another round follows
        if ends:
            announcing.told()  # the outcome says it
            untold, tick, last = [], tick + 1, now
            continue
        announcing.tell()
        if frames:
            (frame,) = frames
            assert (frame.tick, list(frame.tokens)) == (tick, untold)
            frames.clear()
            untold, last = [], now
        else:
            assert not first
            assert now - last < PAUSE_MOST


def test_the_more_lanes_draw_the_rarer_it_is():
    def told(lanes):
        now = 0.0
        frames = []
        announcing = Announcing(frames.append, lambda: now)
        for _ in range(100):
            now += 0.01
            announcing.drew(1, [(lane, 7) for lane in range(lanes)], first=False)
            announcing.tell()
        return len(frames)

    assert told(1) == told(2) > told(3) > told(4) >= told(5) == told(16) >= 7
