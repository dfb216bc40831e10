"""The token bucket of completions (spec: wire-facts, 8.15)."""

import pytest

from superfluid.daemon.replies.bucket import LONGEST_WAIT, Bucket


def test_it_starts_full_and_fills_at_its_rate():
    bucket = Bucket(rate=2.0, burst=3.0)
    assert [bucket.take(100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(100.0) == pytest.approx(0.5)
    assert bucket.take(100.25) == pytest.approx(0.25)
    assert bucket.take(100.5) == 0.0
    assert bucket.take(100.5) == pytest.approx(0.5)


def test_it_holds_no_more_than_its_burst():
    bucket = Bucket(rate=1.0, burst=2.0)
    bucket.take(0.0)
    assert [bucket.take(1e6) for _ in range(3)][:2] == [0.0, 0.0]
    assert bucket.take(1e6) == pytest.approx(1.0)


def test_a_token_that_rounding_spoilt_counts():
    bucket = Bucket(rate=0.1, burst=1.0)
    bucket.take(0.0)
    for step in range(1, 100):
        bucket.take(step * 0.1)
    assert bucket.take(10.0) == 0.0


def test_nobody_waits_longer_than_a_day():
    bucket = Bucket(rate=1e-9, burst=1.0)
    bucket.take(0.0)
    assert bucket.take(0.0) == LONGEST_WAIT


def test_a_clock_that_steps_back_takes_nothing():
    bucket = Bucket(rate=1.0, burst=2.0)
    bucket.take(10.0)
    assert bucket.take(5.0) == 0.0


def test_no_rate_is_no_bound():
    bucket = Bucket(rate=0.0, burst=1.0)
    assert {bucket.take(0.0) for _ in range(1000)} == {0.0}
