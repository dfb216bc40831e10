"""A session in the daemon: append, generate, branch, read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

from superfluid_client.codes import ASSISTANT, SYSTEM, USER, Role, role_code
from superfluid_client.errors import IDLE, SuperfluidError
from superfluid_client.events import Event, EventOrId, ToolCall, fold, id_of
from superfluid_client.rebase import replace_events
from superfluid_client.sampling import Sampling
from superfluid_client.stream import Reply, Stream

if TYPE_CHECKING:
    from superfluid_client.client import Client

Tool = Union[str, Mapping[str, Any]]
"""A function tool as a dict, or as its JSON text."""


class Session:
    """A conversation that the daemon keeps by id. It holds nothing but the id: the log is read when it is needed."""

    def __init__(self, client: Client, id: int, sampling: Sampling) -> None:
        self.client = client
        self.id = id
        self.sampling = sampling
        self._cursor = 0

    def __repr__(self) -> str:
        return f"Session({self.id})"

    # Append

    def say(self, role: Role, text: str) -> Event:
        """Append a message."""
        return self._commit("AppendMessage", role=role_code(role), text=text)

    def system(self, text: str) -> Event:
        """Append a system message."""
        return self.say(SYSTEM, text)

    def user(self, text: str) -> Event:
        """Append a user message."""
        return self.say(USER, text)

    def assistant(self, text: str) -> Event:
        """Append an assistant message, as if the model had said it."""
        return self.say(ASSISTANT, text)

    def declare(self, *, system: str | None = None, tools: Iterable[Tool] = ()) -> Event:
        """Open the session with a system turn that declares tools; refused once anything was said."""
        spelled = [tool if isinstance(tool, str) else json.dumps(tool) for tool in tools]
        return self._commit("AppendSystem", text=system, tools=spelled)

    def append_tokens(self, tokens: Iterable[int], text: str | None = None) -> Event:
        """Append token ids as they are; `text` is what to show for them."""
        return self._commit("Append", text=text, span=list(tokens))

    def tool_result(self, call: ToolCall | int, content: str) -> Event:
        """Answer a call that the model made."""
        call_id = call.id if isinstance(call, ToolCall) else call
        return self._commit("AppendToolResult", call_id=call_id, content=content)

    def image(self, blob: str, *, before: str = "", after: str = "", role: Role = "user") -> Event:
        """Append an image by the hash that `PutMedia` gave it, between two texts."""
        return self._commit("AppendImage", role=role_code(role), blob=blob, pre_text=before, post_text=after)

    # Generate

    def stream(self, max_tokens: int = 1024, *, provisional: bool = True) -> Stream:
        """The next turn, or the rest of one that was cut, as it is drawn."""
        return Stream(self, max_tokens, provisional)

    def generate(self, max_tokens: int = 1024, *, on_text: Callable[[str], object] | None = None) -> Reply:
        """The next turn, or the rest of one that was cut. `on_text` gets the text as it is drawn."""
        stream = self.stream(max_tokens, provisional=on_text is not None)
        for chunk in stream:
            if on_text is not None and chunk.kind == "text":
                on_text(chunk.text)
        assert stream.reply is not None, "a stream that ends without a reply raises"
        return stream.reply

    def cancel(self) -> bool:
        """Stop the generation in flight; False where none was."""
        try:
            self._call("Cancel")
        except SuperfluidError as error:
            if IDLE in error.message:
                return False
            raise
        return True

    # Branch

    @property
    def head(self) -> int:
        """The id that the next event will have."""
        events = self.events(self._cursor)
        if events:
            self._cursor = events[-1].id + 1
        return self._cursor

    def fork(
        self, at: EventOrId | None = None, *, seed: int | None = None, sampling: Sampling | None = None
    ) -> Session:
        """A session that holds the events before `at`, or all of them; its sampling is this one's unless given."""
        if seed is not None:
            sampling = (sampling or self.sampling).with_seed(seed)
        at_event = self.head if at is None else id_of(at)
        return self._branch("Fork", sampling, at_event=at_event, params=_params(sampling))

    def fork_after(self, event: EventOrId, *, seed: int | None = None, sampling: Sampling | None = None) -> Session:
        """A session that holds the events up to and with `event`."""
        return self.fork(id_of(event) + 1, seed=seed, sampling=sampling)

    def rebase(self, edits: Iterable[Mapping[str, Any]], *, sampling: Sampling | None = None) -> Session:
        """A session with events dropped or replaced: see `drop_events` and `replace_events`."""
        return self._branch("Rebase", sampling, edits=list(edits), params=_params(sampling))

    def edit(self, event: EventOrId, text: str, *, role: Role | None = None) -> Session:
        """A session in which one message says something else and what followed is gone."""
        message = event if isinstance(event, Event) else self.event(event)
        if message.kind != "Message":
            raise ValueError(f"event {message.id} is a {message.kind}; only a Message can be edited")
        role = message.data["role"] if role is None else role
        return self.rebase([replace_events(message.id, self.head, role, text)])

    def trim(self, to_event: EventOrId) -> Session:
        """A session that holds the events before `to_event`."""
        return self._branch("Trim", None, to_event=id_of(to_event))

    # Read

    def events(self, cursor: int = 0) -> list[Event]:
        """The log, from event `cursor` on."""
        return [Event.from_wire(event) for event in self._call("Read", cursor=cursor)["events"]]

    def event(self, id: int) -> Event:
        """One event of the log."""
        events = self.events(id)
        if not events:
            raise SuperfluidError(f"session {self.id} has no event {id}")
        return events[0]

    def messages(self) -> list[dict[str, Any]]:
        """The log folded into messages, tool calls and tool results."""
        return fold(self.events())

    def inspect(self) -> dict[str, Any]:
        """Everything that the daemon knows about the session."""
        return self.client.inspect(self.id)

    def open_tool_calls(self) -> list[ToolCall]:
        """The calls that nobody has answered."""
        return [ToolCall(*call) for call in self._call("OpenToolCalls")["calls"]]

    # Manage

    def pin(self, ttl_s: float) -> int:
        """Hold the session's prefix in cache for so long, 0 to let go; the deadline in Unix milliseconds."""
        deadline: int = self._call("Pin", ttl_ms=int(ttl_s * 1000))["deadline_unix_ms"]
        return deadline

    def set_qos(self, qos: int, *, batch_invariant: bool = False) -> Event:
        """Set the scheduling class: 0 interactive, 1 completion, 2 agent, 3 background."""
        return self._commit("SetQos", **{"class": qos, "batch_invariant": batch_invariant})

    def set_meta(self, *, title: str | None = None, archived: bool | None = None) -> int:
        """Set what is given, leave the rest; the new version of the metadata."""
        version = self.inspect()["summary"]["meta_version"]
        reply = self._call("SetMeta", expected_version=version, title=title, archived=archived)
        changed: int = reply["version"]
        return changed

    def purge(self, *, cascade: bool = True) -> list[int]:
        """Erase the session; with its descendants, or else they are cut loose. The ids of what is gone."""
        generation = self.inspect()["summary"]["generation"]
        mode = "Cascade" if cascade else "Reroot"
        purged: list[int] = self._call("Purge", expected_generation=generation, mode=mode)["sessions"]
        return purged

    def _call(self, verb: str, **fields: Any) -> Any:
        _, payload = self.client.call(verb, {"session": self.id, **fields})
        return payload

    def _commit(self, verb: str, **fields: Any) -> Event:
        return Event.from_wire(self._call(verb, **fields)["event"])

    def _branch(self, verb: str, sampling: Sampling | None, **fields: Any) -> Session:
        return Session(self.client, self._call(verb, **fields)["session"], sampling or self.sampling)


def _params(sampling: Sampling | None) -> dict[str, Any] | None:
    return None if sampling is None else sampling.to_wire()
