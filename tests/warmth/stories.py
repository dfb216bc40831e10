"""Texts whose continuation the test models are sure of, and text that is in their way."""

from superfluid.protocol import requests, responses
from tests.support.daemon import GREEDY, create, generate, tokens_of

SENTENCES = (
    "The farmer walks to the market in the morning and buys bread, milk and eggs for the week. ",
    "The children play in the park until the sun goes down and the street lights come on. ",
    "A train leaves the station every hour and carries people to the city and back again. ",
    "In the evening the rain falls on the roof and the cat sleeps beside the warm fire. ",
)
"""18 to 19 tokens each, with every model here."""

RECALL = "Remember it. The secret word is"
RECALL_BEGINNING = " Remember the beginning: the secret word is"


def filler(sentences, first=0):
    """So many sentences, from number `first` on."""
    return "".join(SENTENCES[(first + number) % len(SENTENCES)] for number in range(sentences))


def secret(word):
    return f"The secret word is {word}. Everyone knows the secret word is {word}. "


def append(client, session, text=None, tokens=()):
    """The tokens that a raw append put on the input."""
    event = client.ask(requests.Append(session, text, tuple(tokens)), responses.Committed).event
    return event.body.span


def told(client, *parts, params=GREEDY):
    """A session that was told some texts."""
    session = create(client, params)
    for part in parts:
        append(client, session, part)
    return session


def events(client, session):
    """How many events a session has."""
    return len(client.read(session))


def fork(client, session, at=None, params=None):
    """A session that has the events before `at`, all of them by default."""
    at = events(client, session) if at is None else at
    return client.ask(requests.Fork(session, at, params), responses.Created).session


def length(client, session):
    return len(tokens_of(client, session))


def text_of(summary):
    return "".join(event.body.text for event in summary.events)


def asked(client, session, question, max_tokens=2):
    """The answer to a question, and how many of the tokens before it were warm."""
    append(client, session, question)
    summary = generate(client, session, max_tokens)
    return text_of(summary), summary.warm_prefix


def others_take_turns(client, others):
    """Each other session, made where `others` is still empty, has a turn, which needs a sequence."""
    if not others:
        others += [told(client, f"Number {number} of the others. " + filler(4, number)) for number in range(3)]
    for other in others:
        generate(client, other, 2)
