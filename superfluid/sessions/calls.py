"""One tool call of a session and where it stands (spec: wire-facts, 8.16)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from superfluid.protocol.codes import LedgerState

_OPEN = (LedgerState.OPEN, LedgerState.CANCEL_REQUESTED)


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the model made; its id is its event's. It ends once; what comes later is counted."""

    name: str
    arguments: str
    state: LedgerState = LedgerState.OPEN
    cancel_requested: bool = False
    lease_deadline_ms: int | None = None
    late_effects: int = 0

    @property
    def is_open(self) -> bool:
        return self.state in _OPEN

    def settled(self, state: LedgerState) -> Call:
        return replace(self, state=state) if self.is_open else self

    def cancel_asked(self) -> Call:
        state = LedgerState.CANCEL_REQUESTED if self.state is LedgerState.OPEN else self.state
        return replace(self, cancel_requested=True, state=state)

    def leased(self, deadline_ms: int) -> Call:
        return replace(self, lease_deadline_ms=deadline_ms)

    def late(self) -> Call:
        """A result came for a call that had ended: of a cancelled one, something happened after all."""
        cancelled = self.state is LedgerState.CANCELLED
        state = LedgerState.CANCELLED_WITH_LATE_EFFECT if cancelled else self.state
        return replace(self, state=state, late_effects=self.late_effects + 1)
