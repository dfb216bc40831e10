"""Runs of a reply: every token in one of them, markers in no text, and the same however the tokens were batched."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superfluid.model.callformat import CallFormat
from superfluid.model.channels import Channels, Run, channels_of
from superfluid.protocol.codes import Channel

TEXT, THINK, TOOL = Channel.TEXT, Channel.REASONING, Channel.TOOL_CALL
HERMES = CallFormat("hermes", "<tool_call>", "</tool_call>")
LLAMA = CallFormat("llama3", "<|python_tag|>", None, bare=True, parallel=False)
MISTRAL = CallFormat("mistral", "[TOOL_CALLS]", None)
# ids from 256 up are tokens of their own; below, a token is a byte
CONTROL = {
    "<|im_end|>": 256,
    "<think>": 257,
    "</think>": 258,
    "<tool_call>": 259,
    "</tool_call>": 260,
    "<|python_tag|>": 261,
    "[TOOL_CALLS]": 262,
}
END = CONTROL["<|im_end|>"]
WORDS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "a</think>b<tool_call>{",
    "</tool_call>\n",
    "<tool",
    ">x",
]
SPELLED = channels_of("</think>", {}, HERMES)
BY_TOKEN = channels_of("</think>", CONTROL, HERMES)


def _piece(token: int) -> bytes:
    if token < 256:
        return bytes([token])
    return WORDS[token - 300].encode() if token >= 300 else b""


def _split(channels: Channels, *batches, before=(), flush=True) -> list[Run]:
    splitter = channels.splitter(_piece, before)
    runs: list[Run] = []
    shown: list[tuple[Channel, str]] = []
    for batch in batches:
        runs += splitter.runs()
        for token in batch:
            shown += splitter.feed(token)
    if flush:
        shown += splitter.flush()
    runs += splitter.runs()
    assert _texts(shown) == _texts((run.channel, run.text) for run in runs)
    return runs


def _texts(pieces):
    """Texts of the stretches of one channel."""
    return [
        (channel, "".join(text for _, text in group))
        for channel, group in itertools.groupby((p for p in pieces if p[1]), key=lambda p: p[0])
    ]


def _merged(runs):
    """Neighbours of one channel put together, where no call ends between them."""
    merged: list[Run] = []
    for run in runs:
        if merged and merged[-1].channel == run.channel and merged[-1].call is None:
            last = merged.pop()
            run = Run(run.channel, last.tokens + run.tokens, last.text + run.text, run.call)
        merged.append(run)
    return merged


def _tokens(runs):
    return [token for run in runs for token in run.tokens]


def test_without_markers_everything_is_text():
    assert channels_of("a template", CONTROL, None) == Channels()
    text = "<think>x</think><tool_call>{}</tool_call>é".encode()
    assert _split(Channels(), text[:-1], [text[-1], END]) == [
        Run(TEXT, tuple(text[:-1]), text[:-2].decode()),
        Run(TEXT, (text[-1], END), "é"),
    ]
    assert _split(Channels(), b"\xc3", flush=False) == [Run(TEXT, (0xC3,), "")]
    assert _split(Channels(), b"\xc3") == [Run(TEXT, (0xC3,), "\ufffd")]


def test_markers_that_are_tokens():
    think, unthink, call, uncall = (CONTROL[text] for text in list(CONTROL)[1:5])
    tokens = [think, *b"hm", unthink, *b"\n", call, *b"{}", uncall, call, *b"{1", uncall, END]
    assert _split(BY_TOKEN, tokens) == [
        Run(THINK, (think, *b"hm", unthink), "hm"),
        Run(TEXT, tuple(b"\n"), "\n"),
        Run(TOOL, (call, *b"{}", uncall), "{}", "{}"),
        Run(TOOL, (call, *b"{1", uncall), "{1", "{1"),
        Run(TEXT, (END,), ""),
    ]


def test_a_marker_that_is_a_token_is_never_spelled():
    text = b"<think>x</think><tool_call>"
    assert _split(BY_TOKEN, text) == [Run(TEXT, tuple(text), text.decode())]


def test_markers_that_are_spelled():
    assert _split(SPELLED, b"a<think>b</think>c<tool_call>{}</tool_call>") == [
        Run(TEXT, tuple(b"a<think"), "a"),
        Run(THINK, tuple(b">b</think>"), "b"),
        Run(TEXT, tuple(b"c<tool_call"), "c"),
        Run(TOOL, tuple(b">{}</tool_call>"), "{}", "{}"),
    ]


def test_a_token_with_the_end_of_one_block_and_the_beginning_of_the_next():
    assert _split(SPELLED, [300, 304, *b"}", 305, END]) == [
        Run(THINK, (300, 304), "a"),
        Run(TEXT, (), "b"),
        Run(TOOL, (*b"}", 305), "{}", "{}"),
        Run(TEXT, (END,), "\n"),
    ]


def test_what_may_become_a_marker_is_held_back():
    splitter = SPELLED.splitter(_piece)
    shown = [splitter.feed(token) for token in b"a<toy<tool"]
    assert shown == [[(TEXT, "a")], [], [], [], [(TEXT, "<toy")], [], [], [], [], []]
    assert splitter.flush() == [(TEXT, "<tool")]
    assert splitter.runs() == (Run(TEXT, tuple(b"a<toy<tool"), "a<toy<tool"),)


def test_inside_a_block_only_its_end_counts():
    assert _texts((r.channel, r.text) for r in _split(SPELLED, b"<think><tool_call></tool_call><think></think>")) == [
        (THINK, "<tool_call></tool_call><think>")
    ]
    (run,) = [r for r in _split(SPELLED, b"<tool_call><think></think></tool_call></think>") if r.call is not None]
    assert run.call == "<think></think>"


def test_a_half_character_before_a_marker_stays_in_its_channel():
    runs = _split(BY_TOKEN, [0xC3, CONTROL["<think>"], 0xA9, CONTROL["</think>"]])
    assert [(r.channel, r.text) for r in runs] == [(TEXT, "\ufffd"), (THINK, "\ufffd")]


def test_an_unterminated_call_ends_with_the_turn():
    splitter = SPELLED.splitter(_piece)
    for token in b'<tool_call>{"name": "f</tool':
        splitter.feed(token)
    assert splitter.channel is TOOL
    splitter.runs()
    splitter.feed(END)
    assert splitter.flush() == [(TOOL, "</tool")]
    assert splitter.runs() == (Run(TOOL, (END,), "</tool", '{"name": "f</tool'),)
    (last,) = _split(channels_of("", {}, MISTRAL), b"[TOOL_CALLS] \n")[-1:]
    assert (last.channel, last.call) == (TOOL, None)


def test_a_call_to_the_end_of_the_turn():
    runs = _split(channels_of("", CONTROL, MISTRAL), [CONTROL["[TOOL_CALLS]"], *b'[{"name": "f"}]', END])
    assert runs == [Run(TOOL, (262, *b'[{"name": "f"}]', END), '[{"name": "f"}]', '[{"name": "f"}]')]


@pytest.mark.parametrize("lead", ["", "\n\n "])
def test_a_call_without_marker(lead):
    text = '{"name": "f", "parameters": {"a": 1}}'
    runs = _split(channels_of("", CONTROL, LLAMA), (lead + text).encode(), [END])
    assert [run.call for run in runs if run.call is not None] == [text]
    assert _texts((run.channel, run.text) for run in runs) == [*([(TEXT, lead)] if lead else []), (TOOL, text)]
    assert _tokens(runs) == [*(lead + text).encode(), END]


@pytest.mark.parametrize(
    "text", ['{"name": "Bob", "age": 3}', 'So: {"name": "f", "parameters": {}}', '{"name": "f"', "{", " \n"]
)
def test_other_json_stays_text(text):
    for channels in (channels_of("", CONTROL, LLAMA), channels_of("", CONTROL, LLAMA).without_calls()):
        assert _texts((r.channel, r.text) for r in _split(channels, text.encode())) == [(TEXT, text)]
    assert BY_TOKEN.without_calls() == channels_of("</think>", CONTROL, None)


def test_a_header_that_opens_the_reasoning():
    opened = Channels(SPELLED.blocks, opened=(1, 2))
    assert [r.channel for r in _split(opened, b"x</think>y", before=(0, 1, 2))] == [THINK, TEXT]
    assert [r.channel for r in _split(opened, b"x", before=(0, 1))] == [TEXT]
    assert [r.channel for r in _split(SPELLED, b"x", before=(0, 1))] == [TEXT]


FORMATS = (None, HERMES, LLAMA, MISTRAL)
PIECES = [
    *CONTROL,
    *("a", "é", "🎉", "<", "</", "{", "<tool", "<think"),
    '{"name": "f", "parameters": {}}',
    '{"name": "f", "age"',
    "\n",
]
STREAMS = st.lists(
    st.one_of(
        st.sampled_from(PIECES).map(lambda text: list(text.encode())),
        st.sampled_from([*CONTROL.values(), *range(300, 300 + len(WORDS)), 0xC3, 0x80, 0xFF]).map(
            lambda token: [token]
        ),
    ),
    max_size=12,
).map(lambda lists: [token for tokens in lists for token in tokens])
CHANNELS = st.sampled_from(
    [
        Channels(),
        *(
            channels_of(s, c, f)
            for s in ("", "</think>")
            for c in ({}, CONTROL)
            for f in (None, HERMES, LLAMA, MISTRAL)
        ),
    ]
)


@settings(max_examples=400)
@given(CHANNELS, STREAMS, st.lists(st.integers(0, 10_000)))
def test_batches_do_not_matter(channels, tokens, cuts):
    places = [0, *sorted(cut % (len(tokens) + 1) for cut in cuts), len(tokens)]
    whole = _split(channels, tokens)
    parts = _split(channels, *(tokens[start:end] for start, end in itertools.pairwise(places)))
    assert _tokens(whole) == _tokens(parts) == tokens
    assert _merged(parts) == _merged(whole)
    if not channels.blocks:
        assert len(whole) <= 1


@settings(max_examples=200)
@given(CHANNELS, STREAMS, st.integers(0, 10_000))
def test_a_continued_turn_goes_on_as_the_uncut_one(channels, tokens, cut):
    cut %= len(tokens) + 1
    first = _split(channels, tokens[:cut], flush=False)
    restored = channels.splitter(_piece)
    restored.restore(tokens[:cut])
    for token in tokens[cut:]:
        restored.feed(token)
    restored.flush()
    assert _merged([*first, *restored.runs()]) == _merged(_split(channels, tokens))
