"""Options of `serve` that are about where KV lies, and about who waits for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from superfluid_cli import values
from superfluid_cli.flags import option

KV_TYPES = ("f16", "q8_0", "q4_0")


def kv_type(text: str) -> str:
    if text not in KV_TYPES:
        raise ValueError(f"expected one of {', '.join(KV_TYPES)}, got {text!r}")
    return text


def class_lanes(text: str) -> tuple[tuple[int, int], ...]:
    """`background=2,agent=6`: most lanes by class."""
    pairs = []
    for part in text.split(","):
        name, equals, number = part.partition("=")
        if not equals:
            raise ValueError(f"expected class=N, such as background=2, got {part.strip()!r}")
        pairs.append((values.qos(name), values.whole(1, 256)(number.strip())))
    return tuple(pairs)


KvType = Annotated[
    str,
    option(
        "--kv-type",
        metavar="TYPE",
        parser=kv_type,
        help="How KV is stored: f16, q8_0 or q4_0; the smaller ones hold more and lose some precision.",
        default="f16",
    ),
]
Park = Annotated[
    bool,
    option(
        "--park/--no-park",
        help="Keep KV of sessions that do not run on disk too, so that a restart is warm.",
        default="no-park",
    ),
]
ParkDir = Annotated[
    Path | None,
    option(
        "--park-dir",
        metavar="DIR",
        parser=values.path,
        help="Where KV lies on disk.",
        default="park in the sessions directory",
    ),
]
ParkBudget = Annotated[
    int,
    option(
        "--park-budget-gb",
        metavar="SIZE",
        parser=values.size(1 << 30),
        help="Disk that KV may take; GiB, or with a unit.",
        default="20",
    ),
]
PinBudget = Annotated[
    int,
    option(
        "--pin-budget-pct",
        parser=values.whole(0, 100),
        help="Hundredths of --kv-host-mb that pinned sessions may keep from others; no more than --pressure-low.",
        default=True,
    ),
]
ClassLanes = Annotated[
    Any,
    option(
        "--class-lanes",
        metavar="CLASS=N,...",
        parser=class_lanes,
        help="Most lanes of a class, such as background=2.",
        default="no caps",
    ),
]
MaxQueue = Annotated[
    int,
    option(
        "--max-queue",
        parser=values.whole(1, 100_000),
        help="Replies that may wait for a lane; one more is refused at once.",
        default=True,
    ),
]
OsPressure = Annotated[
    bool,
    option(
        "--os-pressure/--no-os-pressure",
        help="Let KV in host memory give way while the machine runs short.",
        default="os-pressure",
    ),
]
PressureHigh = Annotated[
    int,
    option(
        "--pressure-high",
        parser=values.whole(1, 100),
        help="Hundredths of memory in use from which on it gives way.",
        default=True,
    ),
]
PressureLow = Annotated[
    int,
    option(
        "--pressure-low",
        parser=values.whole(0, 99),
        help="Hundredths of memory in use below which it comes back.",
        default=True,
    ),
]
