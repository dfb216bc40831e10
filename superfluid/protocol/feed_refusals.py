"""Refusals about names, feeds and flash queries: the part of the error table that is an extension, see `refusals`."""

from __future__ import annotations

from superfluid.protocol.refusals import Refusal


class UnknownFlash(Refusal):
    code = "unknown_flash_query"
    status = 404

    def __init__(self, session: int, flash_id: int) -> None:
        super().__init__(f"session {session} has no flash query {flash_id}")


class FlashExists(Refusal):
    code = "flash_query_exists"
    status = 409

    def __init__(self, session: int) -> None:
        super().__init__(f"session {session} has this very flash query already")


class TooManyFlashes(Refusal):
    code = "too_many_flash_queries"

    def __init__(self, most: int) -> None:
        super().__init__(f"a session has at most {most} flash queries; remove one first")


class UnknownName(Refusal):
    code = "unknown_name"
    status = 404
    exit_code = 4

    def __init__(self, name: str) -> None:
        super().__init__(f"no session is named {name!r}")


class NameTaken(Refusal):
    code = "name_taken"
    status = 409

    def __init__(self, name: str) -> None:
        super().__init__(f"session {name!r} exists already")


class BadName(Refusal):
    code = "bad_name"

    def __init__(self, name: str) -> None:
        shown = name if len(name) <= 40 else name[:37] + "..."
        super().__init__(f"name {shown!r}: it must be 1 to 128 characters of A-Z a-z 0-9 _ -, not digits alone")


class BadWindow(Refusal):
    code = "bad_window"

    def __init__(self, window: int, most: int) -> None:
        super().__init__(
            f"window is {window}; it must be 1 to {most} tokens: the context less what is kept free for questions"
        )


class TooManyLive(Refusal):
    code = "too_many_live_sessions"
    status = 403

    def __init__(self, most: int) -> None:
        super().__init__(f"this server permits at most {most} live session(s); delete one first")
