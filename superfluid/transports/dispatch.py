"""One request to one response: the verbs that answer once. Those that stream are each transport's own."""

from __future__ import annotations

import logging

from superfluid.daemon import logging_setup
from superfluid.daemon.replies.bucket import Bucket
from superfluid.daemon.replies.conversing import Turn
from superfluid.daemon.use_cases import UseCases
from superfluid.protocol import requests, responses
from superfluid.protocol.refusals import NotInThisBuild, Refusal
from superfluid.protocol.requests import Request
from superfluid.protocol.responses import Response
from superfluid.sessions.decide import check_role
from superfluid.sessions.senders import Numbered

_LOG = logging.getLogger("superfluid.dispatch")

STREAMS = (
    requests.Generate,
    requests.Subscribe,
    requests.Unsubscribe,
    requests.Ask,
    requests.FeedSubscribe,
)
"""Requests that are about more than one response."""


LONG_TEXT = 1 << 20
"""Characters to put on an input from which on that may take seconds; what is shorter is done whoever waits for it."""


def ends_with_its_client(request: Request) -> bool:
    """Whether it is given up where the client leaves, of the requests that are answered once."""
    match request:
        case requests.Complete() | requests.Warm():
            return True
        case requests.Append(text=text) | requests.AppendMessage(text=text) | requests.AppendSystem(text=text):
            return len(text or "") >= LONG_TEXT
        case requests.AppendBlock(payload=text) | requests.AppendToolResult(content=text):
            return len(text) >= LONG_TEXT
        case _:
            return False


async def answer(cases: UseCases, request: Request, bucket: Bucket) -> Response:
    """The response to a request that does not stream; a refusal becomes `Err`. `bucket` meters `Complete`."""
    try:
        return await _answer(cases, request, bucket)
    except Refusal as refusal:
        return responses.Err(str(refusal))
    except Exception:
        # A bug of ours. The client is told, keeps its connection, and nothing of the request was half done: records
        # are applied only once they are durable.
        _LOG.exception("%s failed", type(request).__name__)
        return responses.Err("protocol: internal error; the daemon's log says what happened")


async def _answer(cases: UseCases, request: Request, bucket: Bucket) -> Response:
    match request:
        case requests.Create(parent, params):
            return responses.Created(await cases.branching.create(parent, params))
        case requests.Fork(session, at_event, fork_params):
            return responses.Created(await cases.branching.fork(session, at_event, fork_params))
        case requests.Rebase(session, edits, rebase_params):
            return responses.Created(await cases.branching.rebase(session, edits, rebase_params))
        case requests.Trim(session, to_event):
            return responses.Created(await cases.branching.trim(session, to_event))
        case requests.Append(session, append_text, span):
            return responses.Committed(await cases.appending.append(session, append_text, span))
        case requests.AppendMessage(session, role, text):
            return responses.Committed(await cases.appending.message(session, role, text))
        case requests.AppendSystem(session, system_text, tools):
            return responses.Committed(await cases.appending.system(session, system_text, tools))
        case requests.AppendBlock(session, role, kind, payload):
            return responses.Committed(await cases.appending.block(session, role, kind, payload))
        case requests.AppendToolResult(session, call_id, content):
            return responses.Committed(await cases.appending.tool_result(session, call_id, content))
        case requests.AppendToolOutcome(session, call_id, outcome, note):
            return responses.Committed(await cases.tooling.outcome(session, call_id, outcome, note))
        case requests.RequestToolCancel(session, call_id):
            return responses.Committed(await cases.tooling.request_cancel(session, call_id))
        case requests.RequestPermission(session, call_id, question):
            return responses.Committed(await cases.tooling.request_permission(session, call_id, question))
        case requests.RespondPermission(session, request_id, granted):
            return responses.Committed(await cases.tooling.respond_permission(session, request_id, granted))
        case requests.OpenToolCalls(session):
            return responses.ToolCalls(await cases.tooling.open_calls(session))
        case requests.Ledger(session):
            return responses.Ledger(await cases.tooling.ledger(session))
        case requests.Cancel(session):
            cases.generating.cancel(session)
            return responses.Cancelling()
        case requests.Read(session, cursor):
            return responses.Events(await cases.reading.read(session, cursor))
        case requests.List():
            return responses.Sessions(cases.reading.list())
        case requests.Sessions(include_archived):
            return responses.SessionList(cases.reading.sessions(include_archived))
        case requests.Tree():
            return responses.Tree(cases.reading.tree())
        case requests.Inspect(session):
            return responses.Inspection(await cases.reading.inspect(session))
        case requests.SetMeta(session, expected_version, title, archived):
            return responses.Meta(await cases.keeping.set_meta(session, expected_version, title, archived))
        case requests.SetQos(session, class_, batch_invariant):
            return responses.Committed(await cases.keeping.set_qos(session, class_, batch_invariant))
        case requests.Pin(session, ttl_ms):
            return responses.Pinned(await cases.pinning.pin(session, ttl_ms))
        case requests.SetBackgroundRate(divisor):
            cases.keeping.set_background_rate(divisor)
            return responses.Ack()
        case requests.Purge(session, expected_generation, mode):
            return responses.Purged(await cases.keeping.purge(session, expected_generation, mode))
        case requests.Complete(prefix, suffix, fim_mode, max_tokens):
            return await cases.completing.complete(bucket, prefix, suffix, fim_mode, max_tokens)
        case requests.SetLogLevel(directive):
            logging_setup.direct(directive)
            return responses.Ack()
        case requests.Metrics():
            return responses.Text(cases.watching.metrics().decode())
        case requests.Status():
            return cases.watching.status()
        case requests.Open(name, window, pre_decode):
            opened = await cases.feeds.report(await cases.feeds.open(name, window, pre_decode))
            return responses.Opened(opened.session, opened.name or "")
        case requests.Name(session, new_name):
            return responses.Committed(await cases.feeds.name(session, new_name))
        case requests.Resolve(key):
            return responses.Resolved(cases.feeds.resolve(key))
        case requests.Names():
            return responses.Names(cases.feeds.names())
        case requests.FeedState(session):
            report = await cases.feeds.report(session)
            cases.feeds.touch(session)  # after the report, which tells of the use before this one
            return responses.Feed(report)
        case requests.Push(session, data):
            return cases.feeds.push(session, data)
        case requests.PushNumbered(session, data, sender, first):
            return cases.feeds.push(session, data, Numbered(sender, first))
        case requests.FlashAdd(session, query, flash_tokens):
            return responses.Flash(await cases.flashing.add(session, query, flash_tokens))
        case requests.FlashList(session):
            return responses.Flashes(*await cases.flashing.list(session))
        case requests.FlashRemove(session, flash):
            return responses.FlashGone(flash, await cases.flashing.remove(session, flash))
        case requests.Warm(session, turns):
            return await cases.turning.warm(session, tuple(Turn(check_role(role), text) for role, text in turns))
        case _ if isinstance(request, STREAMS):
            raise AssertionError("streams are the transport's own")
        case _:
            raise NotInThisBuild(type(request).__name__)
