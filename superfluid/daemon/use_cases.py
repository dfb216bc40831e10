"""All use cases of a daemon, one field a noun: what transports are given."""

from __future__ import annotations

from dataclasses import dataclass

from superfluid.daemon.feeds.asking import Asking
from superfluid.daemon.feeds.evaluating import Evaluating
from superfluid.daemon.feeds.feeds import Feeds
from superfluid.daemon.feeds.flashing import Flashing
from superfluid.daemon.feeds.ingesting import Ingesting
from superfluid.daemon.feeds.turning import Turning
from superfluid.daemon.replies.completing import Completing
from superfluid.daemon.replies.conversing import Conversing
from superfluid.daemon.sessions.appending import Appending
from superfluid.daemon.sessions.branching import Branching
from superfluid.daemon.sessions.generating import Generating
from superfluid.daemon.sessions.keeping import Keeping
from superfluid.daemon.sessions.pinning import Pinning
from superfluid.daemon.sessions.reading import Reading
from superfluid.daemon.sessions.tooling import Tooling
from superfluid.daemon.watching import Watching


@dataclass(frozen=True, slots=True)
class UseCases:
    appending: Appending
    asking: Asking
    branching: Branching
    completing: Completing
    conversing: Conversing
    evaluating: Evaluating
    feeds: Feeds
    flashing: Flashing
    generating: Generating
    ingesting: Ingesting
    keeping: Keeping
    pinning: Pinning
    reading: Reading
    tooling: Tooling
    turning: Turning
    watching: Watching
