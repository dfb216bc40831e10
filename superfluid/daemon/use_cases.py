"""All use cases of a daemon, one field a noun: what transports are given."""

from __future__ import annotations

from dataclasses import dataclass

from superfluid.daemon.appending import Appending
from superfluid.daemon.asking import Asking
from superfluid.daemon.branching import Branching
from superfluid.daemon.completing import Completing
from superfluid.daemon.conversing import Conversing
from superfluid.daemon.evaluating import Evaluating
from superfluid.daemon.feeds import Feeds
from superfluid.daemon.flashing import Flashing
from superfluid.daemon.generating import Generating
from superfluid.daemon.ingesting import Ingesting
from superfluid.daemon.keeping import Keeping
from superfluid.daemon.pinning import Pinning
from superfluid.daemon.reading import Reading
from superfluid.daemon.tooling import Tooling
from superfluid.daemon.turning import Turning
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
