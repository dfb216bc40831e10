"""The JSON encoding: externally tagged, declaration order, short single precision (spec: wire-facts, section 6).

cattrs dispatches on types; the hooks derive everything else from the dataclass fields, as postcard does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from cattrs import Converter
from cattrs.dispatch import StructureHook, UnstructureHook

from superfluid.protocol import shapes
from superfluid.protocol.errors import DecodeError
from superfluid.protocol.responses import StoreId
from superfluid.protocol.wire import Scalar, shortest_single, single


def to_json(annotation: Any, value: Any) -> Any:
    """`value` of type `annotation` as JSON-ready Python: dicts, lists, strings, numbers, None."""
    return _CONVERTER.unstructure(value, annotation)


def from_json(annotation: Any, data: Any) -> Any:
    """The value of type `annotation` that parsed JSON spells. Raises DecodeError naming the field and what it wants.

    Unknown fields are ignored, missing optional ones are None, as in serde.
    """
    return _CONVERTER.structure(data, annotation)


def dumps(annotation: Any, value: Any) -> str:
    """`value` as one line of JSON without spaces."""
    return json.dumps(to_json(annotation, value), ensure_ascii=False, separators=(",", ":"))


def loads(annotation: Any, text: str | bytes) -> Any:
    """The value that `text` spells. Raises DecodeError, also where it is no JSON."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise DecodeError(f"not JSON: {fault}") from None
    return from_json(annotation, data)


def _shown(value: Any) -> str:
    # Half a surrogate pair could not be sent in a reply.
    text = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 60 else text[:57] + "..."


def _expected(what: str, value: Any) -> DecodeError:
    return DecodeError(f"expected {what}, got {_shown(value)}")


def _at(place: str, fault: DecodeError) -> DecodeError:
    """`fault` with `place` put before its path; a path and its text are divided by a colon."""
    path, colon, text = str(fault).partition(": ")
    if colon and path.startswith((".", "[")):
        return DecodeError(f"{place}{path}: {text}")
    return DecodeError(f"{place}: {fault}")


def _scalar_in(scalar: Scalar, value: Any) -> int | float:
    if scalar.bits == 0:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _expected("a number", value)
        return single(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= scalar.maximum:
        raise _expected(f"a whole number from 0 to {scalar.maximum}", value)
    return value


def _float_out(value: float) -> float | None:
    return shortest_single(value) if math.isfinite(value) else None


def _sum_in(annotation: Any, converter: Converter) -> StructureHook:
    name = shapes.SUMS[annotation]
    variants = {variant.__name__: variant for variant in shapes.variants_of(annotation)}

    def structure(value: Any, _: Any) -> Any:
        if isinstance(value, str):
            tag, payload = value, None
        elif isinstance(value, dict) and len(value) == 1:
            ((tag, payload),) = value.items()
        else:
            raise _expected(f"one {name} as {{name: fields}} or a name alone", value)
        variant = variants.get(tag)
        if variant is None:
            raise DecodeError(f"{tag!r} is no {name}; one of {', '.join(variants)}")
        if payload is None and shapes.fields_of(variant):
            raise DecodeError(f"{tag} has fields: {', '.join(f.key for f in shapes.fields_of(variant))}")
        try:
            return converter.structure({} if payload is None else payload, variant)
        except DecodeError as fault:
            raise _at(f".{tag}", fault) from None

    return structure


def _sum_out(converter: Converter) -> Callable[[Any], Any]:
    def unstructure(value: Any) -> Any:
        variant: Any = type(value)
        if not shapes.fields_of(variant):
            return variant.__name__
        return {variant.__name__: converter.unstructure(value, variant)}

    return unstructure


def _record_in(annotation: Any, converter: Converter) -> StructureHook:
    fields = shapes.fields_of(annotation)

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise _expected("an object" + (f" with {', '.join(f.key for f in fields)}" if fields else ""), value)
        values: list[Any] = []
        for field in fields:
            if field.key not in value:
                if shapes.optional_of(field.annotation) is None:
                    raise DecodeError(f".{field.key}: missing")
                values.append(None)
                continue
            try:
                values.append(converter.structure(value[field.key], field.annotation))
            except DecodeError as fault:
                raise _at(f".{field.key}", fault) from None
        return annotation(*values)

    return structure


def _record_out(annotation: Any, converter: Converter) -> UnstructureHook:
    fields = shapes.fields_of(annotation)
    return lambda value: {
        field.key: converter.unstructure(getattr(value, field.attribute), field.annotation) for field in fields
    }


def _items_in(value: Any, types: tuple[Any, ...] | None, item: Any, converter: Converter) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _expected("an array", value)
    if types is not None and len(value) != len(types):
        raise _expected(f"an array of {len(types)}", value)
    items = []
    for place, part in enumerate(value):
        try:
            items.append(converter.structure(part, types[place] if types is not None else item))
        except DecodeError as fault:
            raise _at(f"[{place}]", fault) from None
    return tuple(items)


def _enum_in(annotation: Any, value: Any) -> Any:
    for member in annotation:
        if member.value == value:
            return member
    raise _expected(f"one of {', '.join(member.value for member in annotation)}", value)


def _plain_in(annotation: Any, value: Any) -> Any:
    if annotation is str and isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DecodeError("expected text, got half of a surrogate pair") from None
        return value
    if annotation is bool and isinstance(value, bool):
        return value
    if annotation is bytes and isinstance(value, list):
        try:
            return bytes(value)
        except (TypeError, ValueError):
            raise _expected("an array of numbers from 0 to 255", value) from None
    raise _expected({str: "text", bool: "true or false", bytes: "an array of numbers"}[annotation], value)


def _store_id_in(value: Any, _: Any) -> StoreId:
    if not isinstance(value, list) or len(value) != 16:
        raise _expected("an array of 16 numbers", value)
    return StoreId(_plain_in(bytes, value))


def _build() -> Converter:
    converter = Converter(detailed_validation=False)

    def both(
        matches: Callable[[Any], bool],
        structure: Callable[[Any], StructureHook],
        unstructure: Callable[[Any], UnstructureHook],
    ) -> None:
        converter.register_structure_hook_factory(matches, structure)
        converter.register_unstructure_hook_factory(matches, unstructure)

    # cattrs asks the hook registered last first: general shapes before special ones.
    both(shapes.is_record, lambda t: _record_in(t, converter), lambda t: _record_out(t, converter))
    both(shapes.is_enum, lambda t: lambda value, _: _enum_in(t, value), lambda t: lambda value: value.value)
    both(
        lambda t: shapes.vector_of(t) is not None,
        lambda t: lambda value, _: _items_in(value, None, shapes.vector_of(t), converter),
        lambda t: lambda value: [converter.unstructure(part, shapes.vector_of(t)) for part in value],
    )
    both(
        lambda t: shapes.tuple_of(t) is not None,
        lambda t: lambda value, _: _items_in(value, shapes.tuple_of(t), None, converter),
        lambda t: (
            lambda value: [
                converter.unstructure(part, item) for part, item in zip(value, shapes.tuple_of(t) or (), strict=True)
            ]
        ),
    )
    both(
        lambda t: shapes.optional_of(t) is not None,
        lambda t: lambda value, _: None if value is None else converter.structure(value, _inner(t)),
        lambda t: lambda value: None if value is None else converter.unstructure(value, _inner(t)),
    )
    both(
        lambda t: shapes.scalar_of(t) is not None,
        lambda t: lambda value, _: _scalar_in(_known_scalar(t), value),
        lambda t: _float_out if _known_scalar(t).bits == 0 else lambda value: value,
    )
    both(shapes.is_sum, lambda t: _sum_in(t, converter), lambda _: _sum_out(converter))
    both(lambda t: t is StoreId, lambda _: _store_id_in, lambda _: lambda value: list(value.value))
    for plain in (str, bool, bytes):
        converter.register_structure_hook(plain, lambda value, annotation: _plain_in(annotation, value))
    converter.register_unstructure_hook(bytes, list)
    return converter


def _inner(annotation: Any) -> Any:
    return shapes.optional_of(annotation)


def _known_scalar(annotation: Any) -> Scalar:
    scalar = shapes.scalar_of(annotation)
    assert scalar is not None
    return scalar


_CONVERTER = _build()
