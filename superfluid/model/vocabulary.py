"""The model's vocabulary: text into token ids and back, by llama.cpp with no weights loaded.

The only module of the daemon's side that reaches llama.cpp. Importing it sends that library's log, which would go to
stderr, to the logger "superfluid.model".
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from llama_cpp import llama_cpp as lib

from superfluid.model.controls import Strings
from superfluid.model.gguf import ModelError

_log = logging.getLogger("superfluid.model")
_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.DEBUG}
_last_complaint = ""
_PIECE_DEFINED = 512
_FIM_MARKERS = ("fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep")
_SPACES = " \t\r\n\v\f"

PIECE_BYTES = 64 * 1024
"""how much text `tokenize_long` gives to llama.cpp at once"""


@lib.llama_log_callback  # type: ignore[untyped-decorator, unused-ignore]
def _forward(level: int, text: bytes | None, _data: Any) -> None:
    """llama.cpp's log. Lives as long as the module: the library keeps the pointer. Carries no session text."""
    global _last_complaint
    line = (text or b"").decode("utf-8", "replace").strip()
    if level == 3 and line:
        _last_complaint = line
    if line.strip("."):
        _log.log(_LEVELS.get(level, logging.DEBUG), "llama.cpp: %s", line)


lib.llama_log_set(_forward, ctypes.c_void_p(0))


class Vocabulary:
    """The tokens of one model. Close it, or use it as a context manager; it may be used from any thread until then.

    Ids outside 0 to `size - 1` raise ValueError.
    """

    def __init__(self, path: Path) -> None:
        """Load it. Raises `ModelError` where llama.cpp does not take the file."""
        # The library has one log for the whole process; whoever loads last hears it.
        lib.llama_log_set(_forward, ctypes.c_void_p(0))
        params = lib.llama_model_default_params()
        params.vocab_only = True
        lib.llama_backend_init()
        self._model: Any = lib.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise ModelError(f"{path}: llama.cpp does not load it: {_last_complaint or 'no reason given'}")
        self._vocab: Any = lib.llama_model_get_vocab(self._model)
        self.size: int = lib.llama_vocab_n_tokens(self._vocab)
        # tokenising without a vocabulary aborts the process
        if self.size == 0 or lib.llama_vocab_type(self._vocab) == lib.LLAMA_VOCAB_TYPE_NONE:
            self.close()
            raise ModelError(f"{path}: is not a language model: it holds no vocabulary")
        self.bos = self._id_or_none(lib.llama_vocab_bos(self._vocab))
        self.eos = self._id_or_none(lib.llama_vocab_eos(self._vocab))
        self.adds_bos: bool = self.bos is not None and bool(lib.llama_vocab_get_add_bos(self._vocab))
        found = {name: self._id_or_none(getattr(lib, f"llama_vocab_{name}")(self._vocab)) for name in _FIM_MARKERS}
        self.fim: Mapping[str, int] = {name: token for name, token in found.items() if token is not None}
        """the markers for fill-in-the-middle that there are, by GGUF's names: by the keys of the file's header, else
        by the texts of the well-known ones"""
        self._survey()
        self.bos_text = "" if self.bos is None else self._raw_text(self.bos)
        self.eos_text = "" if self.eos is None else self._raw_text(self.eos)
        template: bytes | None = lib.llama_model_chat_template(self._model, None)
        self.template = template.decode("utf-8", "replace") if template else None
        architecture = self.metadata("general.architecture") or ""
        trained = self.metadata(f"{architecture}.context_length") or ""
        # llama_model_n_ctx_train is 0 in a vocabulary-only load
        self.context_train: int | None = int(trained) if trained.isdecimal() else None
        self.between: Callable[[], None] = _go_on
        """called between the pieces of a long text; what it raises ends the work"""
        self._pieces: dict[int, bytes] = {}
        # SentencePiece style: text at the start, or after a control token, counts as if a space came before it
        self.adds_space = (
            b"".join(self._bytes(token, special=True) for token in self.tokenize("a", special=False)) == b" a"
        )

    def _survey(self) -> None:
        """One walk over all tokens: what ends a turn, what is control, and a digest of who they are."""
        ends: set[int] = set()
        control: dict[str, int] = {}
        control_ids: set[int] = set()
        defined: list[str] = []
        strip_left: set[int] = set()
        strip_right: set[int] = set()
        lengths: set[int] = set()
        digest = hashlib.blake2b(digest_size=16)
        parsed = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN
        for token in range(self.size):
            attributes: int = lib.llama_vocab_get_attr(self._vocab, token)
            text: bytes = lib.llama_vocab_get_text(self._vocab, token)
            digest.update(b"%d %d %d " % (token, attributes, len(text)))
            digest.update(text)
            lengths.add(len(text))
            if lib.llama_vocab_is_eog(self._vocab, token):
                ends.add(token)
            if attributes & parsed:
                if text:
                    control.setdefault(text.decode("utf-8", "replace"), token)
                if attributes & lib.LLAMA_TOKEN_ATTR_CONTROL:
                    control_ids.add(token)
                if attributes & lib.LLAMA_TOKEN_ATTR_LSTRIP:
                    strip_left.add(token)
                if attributes & lib.LLAMA_TOKEN_ATTR_RSTRIP:
                    strip_right.add(token)
            elif attributes & lib.LLAMA_TOKEN_ATTR_USER_DEFINED:
                defined.append(text.decode("utf-8", "replace"))
        self.longest = max(1, *lengths)
        """bytes of text that a token stands for, at the most"""
        digest.update(b"%r %r %r" % (self.bos, self.eos, sorted(ends)))
        self.end_tokens = frozenset(ends)
        """every token that ends a generation"""
        self.control: Mapping[str, int] = MappingProxyType(control)
        """text of every token that is only read as one where text may spell special tokens (control, unknown)"""
        self.controls = Strings(control)
        self._defined = Strings(defined)
        self.control_ids = frozenset(control_ids)
        self.strip_left = frozenset(strip_left)
        """control tokens that swallow white space before them"""
        self.strip_right = frozenset(strip_right)
        self.identity: bytes = digest.digest()

    def close(self) -> None:
        """Give the memory back. The object is of no use afterwards; closing twice is fine."""
        if self._model:
            lib.llama_model_free(self._model)
            self._model = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def metadata(self, key: str) -> str | None:
        """A value of the file's header as text; None where there is none, or where it is an array."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            needed: int = lib.llama_model_meta_val_str(self._alive(), key.encode(), buffer, size)
            if needed < 0:
                return None
            if needed < size:
                return buffer.value.decode("utf-8", "replace")
            size = needed + 1

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """Token ids of `text`, never with a BOS in front. `special`: text may spell control tokens.

        Lone surrogates, which no UTF-8 can carry, count as "?".
        """
        self._alive()
        if not text:
            return []
        data = text.encode("utf-8", "replace")
        room = len(data) // 2 + 16
        while True:
            tokens = (lib.llama_token * room)()
            count: int = lib.llama_tokenize(self._vocab, data, len(data), tokens, room, False, special)
            if count >= 0:
                return list(tokens[:count])
            if -count <= room:
                raise ValueError(f"llama.cpp cannot tokenise {len(data)} bytes")
            room = -count

    def tokenize_after(self, before: str, text: str, *, special: bool) -> list[int]:
        """Token ids that `text` adds where `before` comes right before it.

        Only the space that some vocabularies put before text at a start, and white space swallowed by a control
        token, depend on that; where the two would merge over the seam, the seam wins.
        """
        if not before or not text or not (self.adds_space or self.strip_right):
            return self.tokenize(text, special=special)
        for context in (before[-64:], before[-1], "\n", "."):
            head = self.tokenize(context, special=special)
            both = self.tokenize(context + text, special=special)
            if both[: len(head)] == head:
                return both[len(head) :]
        return self.tokenize(text, special=special)

    def tokenize_long(self, text: str, *, special: bool, before: str = "") -> list[int]:
        """As `tokenize_after`, for any length and any content, in bounded time.

        Control tokens are found here, and text goes to llama.cpp in parts, because one call may take half a minute
        for 64 KiB: it seeks each special token in each part of the text that another one left. The ids are those of
        one call, but for two cases: over 64 KiB, the few tokens next to a cut, where a line end and what follows
        would have been one token (in a text with no line ends, anywhere it was cut); and special tokens that overlap
        each other in the text, of which the leftmost counts here, the longest there.
        """
        ids: list[int] = []
        before, previous = self.seam(before)
        for segment, token in self.segments(text, previous) if special else ((text, None),):
            for piece in self._parts(segment):
                if ids:
                    self.between()
                ids += self.tokenize_after(before, piece, special=False)
                before = piece[-64:]
            if token is not None:
                ids.append(token)
            before = ""
        return ids

    def _parts(self, text: str) -> Iterator[str]:
        """Plain text in pieces of at most 64 KiB and `_PIECE_DEFINED` user-defined tokens, at which it may be cut."""
        start = 0
        for count, (at, found) in enumerate(self._defined.occurrences(text), 1):
            if count % _PIECE_DEFINED == 0:
                yield from cut_at_lines(text[start : at + len(found)], PIECE_BYTES)
                start = at + len(found)
        yield from cut_at_lines(text[start:], PIECE_BYTES)

    def seam(self, before: str) -> tuple[str, int | None]:
        """What stands right before a text: plain text and None, or "" and the control token that ends `before`."""
        token: int | None = None
        end = 0
        for at, found in self.controls.occurrences(before):
            token, end = self.control[found], at + len(found)
        return (before[end:], None) if end < len(before) else ("", token)

    def segments(self, text: str, previous: int | None) -> Iterator[tuple[str, int | None]]:
        """`text` cut at the control tokens that it spells: plain text and the token after it, None at the end.

        `previous` is the control token right before the text. White space that a control token swallows is left out.
        """
        end = 0
        for at, found in (*self.controls.occurrences(text), (len(text), "")):
            token = self.control[found] if found else None
            segment = text[end:at]
            if previous in self.strip_right:
                segment = segment.lstrip(_SPACES)
            if token in self.strip_left:
                segment = segment.rstrip(_SPACES)
            yield segment, token
            previous, end = token, at + len(found)

    def piece(self, token: int) -> bytes:
        """What the token adds to a text: b"" for control and end tokens. May end in half a character."""
        found = self._pieces.get(token)
        if found is None:
            self._check(token)
            found = b"" if token in self.end_tokens else self._bytes(token, special=False)
            self._pieces[token] = found
        return found

    def spell(self, token: int) -> str:
        """The token for display, control tokens by their name."""
        self._check(token)
        return self._bytes(token, special=True).decode("utf-8", "replace")

    def _bytes(self, token: int, *, special: bool) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            count: int = lib.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            size = -count

    def _raw_text(self, token: int) -> str:
        text: bytes = lib.llama_vocab_get_text(self._vocab, token)
        return text.decode("utf-8", "replace")

    def _check(self, token: int) -> None:
        self._alive()
        if not 0 <= token < self.size:
            raise ValueError(f"token {token} is not in the vocabulary of {self.size}")

    def _id_or_none(self, token: int) -> int | None:
        return token if 0 <= token < self.size else None

    def _alive(self) -> Any:
        # a freed pointer would take the process down
        if self._model is None:
            raise ValueError("the vocabulary is closed")
        return self._model


def _go_on() -> None:
    pass


def cut_at_lines(text: str, most: int) -> Iterator[str]:
    """`text` in pieces of at most `most` bytes of UTF-8, cut after a line end where there is one.

    Best between a line end after a visible character and a visible character: tokenisers never look across that.
    """
    if 4 * len(text) <= most:
        if text:
            yield text
        return
    at = 0
    while at < len(text):
        end = at + most
        while len(text[at:end].encode("utf-8", "replace")) > most:
            excess = len(text[at:end].encode("utf-8", "replace")) - most
            end = min(end, len(text)) - max(1, excess // 4)
        if end < len(text):
            end = _line_end(text, at, end)
        yield text[at:end]
        at = end


def _line_end(text: str, start: int, end: int) -> int:
    """Where to cut `text[start:end]`, which more text follows."""
    fallback = 0
    found = text.rfind("\n", start + 1, end)
    # a few hundred candidates are enough to find a good one; blank text must not cost its square
    for _ in range(256):
        if found <= start:
            break
        fallback = fallback or found + 1
        if not text[found - 1].isspace() and not text[found + 1].isspace():
            return found + 1
        found = text.rfind("\n", start + 1, found)
    return fallback or end
