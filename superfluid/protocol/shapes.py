"""How a dataclass field looks on the wire, read from its annotation: the one place both encodings derive from."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from superfluid.protocol import feed_responses, records, requests, responses, ticks
from superfluid.protocol.wire import Scalar

SUMS: Mapping[Any, str] = {
    requests.Request: "Request",
    responses.Response: "Response",
    records.EventBody: "EventBody",
    records.RebaseEdit: "RebaseEdit",
    responses.Tier: "Tier",
    feed_responses.FeedNews: "FeedNews",
    ticks.WorkerRequest: "WorkerRequest",
    ticks.WorkerReply: "WorkerReply",
}
"""The tagged unions, whose variant index is the place in the union."""

EXTENSIONS = 128
"""First variant index of what the original protocol does not have; it appends its own below (decision 2)."""

CORE: Mapping[Any, int] = {requests.Request: 35, responses.Response: 27, records.EventBody: 25}
"""How many variants of a union are the original protocol's; those after them are extensions."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its Python name, its name in JSON, its resolved annotation, and whether it may be missing."""

    attribute: str
    key: str
    annotation: Any
    has_default: bool


@functools.cache
def fields_of(cls: Any) -> tuple[Field, ...]:
    """The fields of a dataclass in wire order. A trailing underscore (`from_`, `class_`) is Python's need only."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(
        Field(
            attribute=field.name,
            key=field.name.rstrip("_"),
            annotation=hints[field.name],
            has_default=field.default is not dataclasses.MISSING,
        )
        for field in dataclasses.fields(cls)
    )


@functools.cache
def variants_of(union: Any) -> tuple[type, ...]:
    """The classes of a tagged union, in order."""
    return typing.get_args(union)


@functools.cache
def indices_of(union: Any) -> Mapping[int, type]:
    """The classes of a tagged union by variant index: their place, and for our own extensions from 128 up."""
    variants = variants_of(union)
    core = CORE.get(union, len(variants))
    return {place if place < core else EXTENSIONS + place - core: cls for place, cls in enumerate(variants)}


def scalar_of(annotation: Any) -> Scalar | None:
    """The scalar behind `Annotated[int, Scalar(...)]`, None for anything else."""
    if typing.get_origin(annotation) is typing.Annotated:
        (scalar,) = annotation.__metadata__
        assert isinstance(scalar, Scalar)
        return scalar
    return None


def optional_of(annotation: Any) -> Any | None:
    """`T` of `T | None`, None for anything else."""
    if annotation in SUMS or typing.get_origin(annotation) not in (types.UnionType, typing.Union):
        return None
    inner = tuple(arg for arg in typing.get_args(annotation) if arg is not type(None))
    if len(inner) == len(typing.get_args(annotation)):
        return None
    return functools.reduce(lambda left, right: left | right, inner)


def is_sum(annotation: Any) -> bool:
    return annotation in SUMS


def is_enum(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Enum)


def is_record(annotation: Any) -> bool:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def vector_of(annotation: Any) -> Any | None:
    """`T` of `tuple[T, ...]`, None for anything else."""
    args = typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple and len(args) == 2 and args[1] is Ellipsis:
        return args[0]
    return None


def tuple_of(annotation: Any) -> tuple[Any, ...] | None:
    """The item types of a fixed-length tuple, None for anything else."""
    if typing.get_origin(annotation) is tuple and vector_of(annotation) is None:
        return typing.get_args(annotation)
    return None
