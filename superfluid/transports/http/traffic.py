"""What the generating routes of a listener have done since it started, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from superfluid.transports.http.choices import Choice


@dataclass(slots=True)
class Traffic:
    """Requests that made sense, by how they ended: every one that started is in one of the others once it is over."""

    started: int = 0
    ok: int = 0
    failed: int = 0
    cancelled: int = 0
    """whose client left"""
    prompt_tokens: int = 0
    prefix_cached_tokens: int = 0
    """of the prompts of requests that are on no session: what was computed for others before"""
    generated_tokens: int = 0

    def answered(self, choices: Sequence[Choice], *, on_session: bool) -> None:
        """A request is over, and these are its choices."""
        self.ok += 1
        self.prompt_tokens += sum(choice.prompt_tokens for choice in choices)
        if not on_session:
            self.prefix_cached_tokens += sum(choice.cached_tokens for choice in choices)
        self.generated_tokens += sum(choice.completion_tokens for choice in choices)
