"""`superfluid session events`, and the news of a feed that it and `flash watch` follow."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from pathlib import Path

from superfluid.protocol import responses
from superfluid.protocol.feed_responses import Connected, DataUpdated, FeedNews, FlashReady
from superfluid_cli import options, terminal
from superfluid_cli.client import Client
from superfluid_cli.counting import counted
from superfluid_cli.events import why_over
from superfluid_cli.interrupt import Alert
from superfluid_cli.values import IdOrName


def events(session: options.Session, json: options.Json = False, socket: options.Socket = None) -> None:
    """Print what happens to a feed, until Ctrl-C: data ingested, and answers of flash queries that changed.

    In a pipe, tab-separated: `connected`, version, flash queries; `data_updated`, version, tokens, pending;
    `flash_ready`, version, query id, logit gap, answer.
    """
    for news in follow(session, socket):
        terminal.line(_told(news, json))


def follow(session: IdOrName, socket: Path | None) -> Iterator[FeedNews]:
    """The news of a session's data until the subscription ends; a reader that was too slow begins again."""
    with options.reach(session, socket) as (client, id_), Alert(client):
        ended = ""
        while ended in ("", "lagged"):
            ended = yield from _once(client, id_)
    terminal.note(f"session {session}: {why_over(ended)}")


def _once(client: Client, session: int) -> Generator[FeedNews, None, str]:
    for message in client.feed_news(session):
        if isinstance(message, responses.SubEnded):
            return message.reason
        yield message.event
    raise AssertionError("a subscription ends with SubEnded")


def _told(news: FeedNews, json: bool) -> str:
    if json:
        from superfluid.protocol import jsonform

        return jsonform.dumps(FeedNews, news)
    fields: tuple[object, ...]
    match news:
        case Connected():
            fields = ("connected", news.data_version, news.flash_queries)
        case DataUpdated():
            fields = ("data_updated", news.data_version, news.tokens, news.pending)
        case FlashReady():
            fields = ("flash_ready", news.data_version, news.id, f"{news.confidence:.3f}", terminal.shown(news.value))
    if terminal.on_terminal(sys.stdout):
        return _in_words(news)
    return "\t".join(map(str, fields))


def _in_words(news: FeedNews) -> str:
    match news:
        case Connected():
            queries = counted(news.flash_queries, "flash query", "flash queries")
            return f"connected: data version {news.data_version}, {queries}"
        case DataUpdated():
            return (
                f"data version {news.data_version}: {counted(news.tokens, 'token')}, "
                f"{counted(news.pending, 'entry', 'entries')} pending"
            )
        case FlashReady():
            return f"flash {news.id} ({terminal.shown(news.query)}): {terminal.shown(news.value)}"
