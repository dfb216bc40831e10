"""What the log says of exceptions: their kinds and places, and nothing that they say (design decision 40)."""

import logging

from superfluid.daemon.logging_setup import Textless

SECRET = "a line of somebody's session"


def fails():
    raise ValueError(SECRET)


def logged(work):
    try:
        work()
    except Exception as fault:
        record = logging.LogRecord(
            "superfluid.http", logging.ERROR, "", 0, "it failed", (), (type(fault), fault, None)
        )
        record.exc_info = (type(fault), fault, fault.__traceback__)
        return Textless("%(levelname)s %(message)s").format(record)
    raise AssertionError("nothing was raised")


def test_an_exception_is_named_and_placed():
    text = logged(fails)
    assert text.startswith("ERROR it failed\n")
    assert text.endswith("\nValueError")
    assert "in fails" in text
    assert SECRET not in text.replace("raise ValueError(SECRET)", "")


def test_what_led_to_it_and_what_it_holds():
    def chained():
        try:
            fails()
        except ValueError as fault:
            raise KeyError(SECRET) from fault

    def grouped():
        try:
            chained()
        except KeyError as fault:
            raise ExceptionGroup(SECRET, [fault, OSError(SECRET)]) from None

    text = logged(grouped)
    assert SECRET not in text
    for kind in ("ExceptionGroup", "ValueError\nthen", "KeyError", "OSError"):
        assert kind in text
