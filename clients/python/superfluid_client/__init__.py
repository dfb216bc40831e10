"""Client of superfluid: sessions on a local model, kept by id, streamed, forked and continued."""

from superfluid_client.client import Client
from superfluid_client.codes import ASSISTANT, REASONING, SYSTEM, TEXT, TOOL, TOOL_CALL, USER
from superfluid_client.errors import SessionBusy, SuperfluidError
from superfluid_client.events import Event, ToolCall
from superfluid_client.rebase import drop_events, replace_events
from superfluid_client.sampling import Sampling
from superfluid_client.session import Session
from superfluid_client.stream import Chunk, Reply, Stream

__version__ = "0.1.0"

__all__ = [
    "ASSISTANT",
    "REASONING",
    "SYSTEM",
    "TEXT",
    "TOOL",
    "TOOL_CALL",
    "USER",
    "Chunk",
    "Client",
    "Event",
    "Reply",
    "Sampling",
    "Session",
    "SessionBusy",
    "Stream",
    "SuperfluidError",
    "ToolCall",
    "__version__",
    "drop_events",
    "replace_events",
]
