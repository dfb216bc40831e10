"""Hypothesis strategies for every type of the vocabulary, derived from the fields as the codecs are."""

import functools

from hypothesis import strategies as st

from superfluid.protocol import records, shapes
from superfluid.protocol.responses import StoreId
from superfluid.protocol.wire import single

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@functools.cache
def values(annotation, depth=1):
    """Values of `annotation`; records nest `depth` levels."""
    scalar = shapes.scalar_of(annotation)
    if scalar is not None:
        if scalar.bits == 0:
            return st.floats(width=32, allow_nan=False, allow_infinity=False).map(single)
        return st.integers(0, scalar.maximum) | st.integers(0, min(300, scalar.maximum))
    if (inner := shapes.optional_of(annotation)) is not None:
        return st.none() | values(inner, depth)
    if shapes.is_sum(annotation):
        variants = shapes.variants_of(annotation)
        if depth == 0:
            variants = tuple(v for v in variants if v is not records.Rerooted)
        return st.one_of(
            [values(variant, depth - 1 if variant is records.Rerooted else depth) for variant in variants]
        )
    if shapes.is_enum(annotation):
        return st.sampled_from(list(annotation))
    if (item := shapes.vector_of(annotation)) is not None:
        return st.lists(values(item, depth), max_size=3).map(tuple)
    if (items := shapes.tuple_of(annotation)) is not None:
        return st.tuples(*[values(item, depth) for item in items])
    if annotation is StoreId:
        return st.binary(min_size=16, max_size=16).map(StoreId)
    if shapes.is_record(annotation):
        return st.builds(
            annotation,
            *[st.deferred(lambda a=f.annotation: values(a, depth)) for f in shapes.fields_of(annotation)],
        )
    return {str: _TEXT, bool: st.booleans(), bytes: st.binary(max_size=8)}[annotation]
