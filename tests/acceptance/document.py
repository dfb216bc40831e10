"""The names of the session API's documentation: every request, response, record and field.

What the tables of the document name comes first; the records and nested fields that only the wire knows follow.
"""

from __future__ import annotations

PARAMS = ("temperature", "top_p", "min_p", "top_k", "seed")

REQUESTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Create": (("parent", "params"), ("Created",)),
    "Append": (("session", "text", "span"), ("Committed",)),
    "AppendMessage": (("session", "role", "text"), ("Committed",)),
    "AppendSystem": (("session", "text", "tools"), ("Committed",)),
    "AppendBlock": (("session", "role", "kind", "payload"), ("Committed",)),
    "AppendImage": (("session", "role", "blob", "pre_text", "post_text"), ("Committed",)),
    "Read": (("session", "cursor"), ("Events",)),
    "List": ((), ("Sessions",)),
    "Sessions": (("include_archived",), ("SessionList",)),
    "Tree": ((), ("Tree",)),
    "Inspect": (("session",), ("Inspection",)),
    "SetMeta": (("session", "expected_version", "title", "archived"), ("Meta",)),
    "Purge": (("session", "expected_generation", "mode"), ("Purged",)),
    "Generate": (("session", "max_tokens"), ("Delta", "Generated")),
    "Cancel": (("session",), ("Cancelling",)),
    "Subscribe": (("session", "cursor", "provisional"), ("Subscribed", "SubEvent", "SubProvisional", "SubEnded")),
    "Unsubscribe": (("sub",), ("Unsubscribed",)),
    "Complete": (("prefix", "suffix", "mode", "max_tokens"), ("Completion", "Throttled")),
    "Fork": (("session", "at_event", "params"), ("Created",)),
    "Rebase": (("session", "edits", "params"), ("Created",)),
    "Trim": (("session", "to_event"), ("Created",)),
    "AppendToolResult": (("session", "call_id", "content"), ("Committed",)),
    "AppendToolOutcome": (("session", "call_id", "outcome", "note"), ("Committed",)),
    "RequestToolCancel": (("session", "call_id"), ("Committed",)),
    "OpenToolCalls": (("session",), ("ToolCalls",)),
    "Ledger": (("session",), ("Ledger",)),
    "RequestPermission": (("session", "call_id", "text"), ("Committed",)),
    "RespondPermission": (("session", "request_id", "granted"), ("Committed",)),
    "SetQos": (("session", "class", "batch_invariant"), ("Committed",)),
    "SetBackgroundRate": (("divisor",), ("Ack",)),
    "Pin": (("session", "ttl_ms"), ("Pinned",)),
    "PutMedia": (("bytes", "mime"), ("Media",)),
    "GcMedia": ((), ("Gc",)),
    "SetLogLevel": (("directive",), ("Ack",)),
    "Metrics": ((), ("Text",)),
}
"""fields and replies, in the order of the document"""

RESPONSES: dict[str, tuple[str, ...]] = {
    "Created": ("session",),
    "Committed": ("event",),
    "Events": ("events",),
    "Sessions": ("ids",),
    "SessionList": ("sessions",),
    "Tree": ("nodes",),
    "Inspection": ("inspection",),
    "Meta": ("version",),
    "Purged": ("sessions",),
    "Delta": ("event",),
    "Generated": ("events", "tokens_generated", "finish", "warm_prefix"),
    "Cancelling": (),
    "Subscribed": ("sub",),
    "SubEvent": ("sub", "event"),
    "SubProvisional": ("sub", "channel", "text"),
    "SubEnded": ("sub", "reason"),
    "Unsubscribed": (),
    "Completion": ("text", "tokens", "cached", "expired"),
    "Throttled": ("retry_after_ms",),
    "ToolCalls": ("calls",),
    "Ledger": ("entries",),
    "Ack": (),
    "Pinned": ("deadline_unix_ms",),
    "Media": ("hash",),
    "Gc": ("kept", "removed"),
    "Text": ("text",),
    "Err": ("message",),
}

RECORDS: dict[str, tuple[str, ...]] = {
    # those that the document names
    "Created": ("parent", "params"),
    "Forked": ("parent", "fork_at", "params"),
    "Rebased": ("parent", "fork_at", "params", "edits"),
    "Message": ("role", "text", "span"),
    "GenerationPrompt": ("span",),
    "Generated": ("span", "text", "channel", "finish"),
    "ToolUse": ("name", "arguments"),
    "ToolResult": ("call_id", "content", "span"),
    "Appended": ("text", "span"),
    "ToolParseFailure": ("raw",),
    "EpochBump": (),
    # those that only the wire knows
    "GenerationFingerprint": ("digest",),
    "MetaUpdated": ("version", "title", "archived"),
    "ToolExpired": ("call_id", "reason"),
    "Purged": ("generation", "descendants"),
    "Rerooted": ("purged_parent", "prefix"),
    "QosSet": ("class", "batch_invariant"),
    "Block": ("role", "kind", "payload", "span", "visibility_version"),
    "PermissionRequest": ("call_id", "text"),
    "PermissionResponse": ("request_id", "granted"),
    "ToolCancelRequested": ("call_id",),
    "ToolOutcome": ("call_id", "outcome", "note"),
    "ToolReconciliation": ("call_id", "note"),
    "ToolLease": ("call_id", "deadline_unix_ms"),
    "Pinned": ("deadline_unix_ms",),
}

EDITS = {"Drop": ("from", "to"), "Replace": ("from", "to", "role", "text")}

EVENT = ("event_id", "epoch", "ts_unix_ms", "body")

INSPECTION = (
    "summary",
    "params",
    "epoch",
    "last_finish",
    "qos_class",
    "batch_invariant",
    "pin_deadline_unix_ms",
    "behavior_fingerprint",
    "open_tool_calls",
    "tier",
    "tokens",
    "events",
    "wal_version",
    "store_id",
)

SUMMARY = (
    "id",
    "parent",
    "fork_at",
    "title",
    "archived",
    "meta_version",
    "generation",
    "events",
    "tokens",
    "open_tool_calls",
)

LEDGER_ENTRY = ("name", "arguments", "state", "cancel_requested", "lease_deadline_unix_ms", "late_effects")

NULLABLE = {
    ("request", "Create", "parent"),
    ("request", "Append", "text"),
    ("request", "AppendSystem", "text"),
    ("request", "SetMeta", "title"),
    ("request", "SetMeta", "archived"),
    ("request", "Fork", "params"),
    ("request", "Rebase", "params"),
    ("record", "Created", "parent"),
    ("record", "Appended", "text"),
    ("record", "MetaUpdated", "title"),
    ("record", "MetaUpdated", "archived"),
}
"""fields that may be null: each is driven with a value and without"""

MEDIA = {"PutMedia", "AppendImage", "GcMedia"}
"""requests that this version answers with an error"""

REASONS = {"unsubscribed", "lagged", "publisher closed", "purged"}
FINISHES = {0, 1, 2, 4, 5}
"""how a generation of the session API ends; 3, a grammar's end, is not to be had on it"""
