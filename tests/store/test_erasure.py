"""What a purge erases is in no file any more (design decision 4); what living sessions share stays readable.

Every record says a sentence and a span of tokens that nothing else says. They are looked for in all bytes of all
files of the directory: as text, as postcard writes token ids, and packed as snapshots hold them.
"""

import math
import random
import re
import shutil

import pytest

from superfluid.protocol import postcard, records
from superfluid.protocol.codes import PurgeMode
from superfluid.protocol.records import EventBody
from superfluid.protocol.ticks import pack, unpack
from superfluid.sessions.heads import Heads
from superfluid.store.errors import StillThere, StoreError
from superfluid.store.log import SessionLog
from tests.sessions.world import World
from tests.store.test_log import read_all

_SENTENCE = re.compile(rb"Zq[0-9a-f]{8}")
SIGNAL = 0x0BADC0DE
"""A token id that opens every marked span."""

_SIGNAL_VARINT = postcard.encode(EventBody, records.GenerationPrompt((SIGNAL,)))[2:]
_SIGNAL_PACKED = pack((SIGNAL,))
_PACKED = re.compile(b"(?=" + re.escape(_SIGNAL_PACKED) + b"(.{16}))", re.DOTALL)
_VARINTS = re.compile(b"(?=" + re.escape(_SIGNAL_VARINT) + rb"((?:[\x80-\xff]{3}[\x01-\x7f]){4}))")


def sentence(number):
    return f"Zq{number:08x}"


def span(number):
    """Five ids that take four bytes each in both encodings; the last one says whether the others are whole."""
    noise = random.Random(number)
    ids = [noise.randrange(1 << 21, 1 << 28) for _ in range(3)]
    return (SIGNAL, *ids, (1 << 21) + sum(ids) % (1 << 27))


def said_in(directory):
    """The sentences and spans in the files of a directory, in whatever form."""
    texts, packed, varints = said_in_forms(directory)
    return texts, packed | varints


def said_in_forms(directory):
    texts, packed, varints = set(), set(), set()
    for file in directory.iterdir():
        data = file.read_bytes()
        texts |= {found.decode() for found in _SENTENCE.findall(data)}
        packed |= {(SIGNAL, *unpack(found)) for found in set(_PACKED.findall(data))}
        for found in set(_VARINTS.findall(data)):
            varints.add((SIGNAL, *(read_varint(found[at : at + 4]) for at in range(0, 16, 4))))
    # A span cut in two by the end of a page reads on in whatever the next page begins with.
    return texts, *(
        {ids for ids in found if ids[4] == (1 << 21) + sum(ids[1:4]) % (1 << 27)} for found in (packed, varints)
    )


def read_varint(data):
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data))


class History:
    """A random history of many sessions in one log. `numbers` is what each event says, whoever inherits it."""

    def __init__(self, directory, seed):
        self.random = random.Random(seed)
        self.directory = directory
        self.log = SessionLog(directory / "model.db")
        self.world = World()
        self.said = 0
        self.log.commit([self.world.create() for _ in range(self.random.randint(2, 8))])

    def close(self):
        self.log.close()

    def body(self, session):
        self.said += 1
        text = self.text(sentence(self.said))
        tokens = span(self.said) * (1 if len(text) < 1000 else 3 + len(text) // 60 * self.random.randrange(2))
        match self.random.randrange(8):
            case 0:
                return records.MetaUpdated(self.world.states[session].meta_version + 1, text, None)
            case 1:
                return records.ToolUse(text, "{}")
            case 2:
                return records.Generated(tokens, text, 0, self.random.randrange(6))
            case 3:
                return records.Block(1, 2, text, tokens, 2)
            case _:
                return records.Message(1, text, tokens)

    def text(self, mark):
        """`mark` again and again, 10 bytes to 300 KB of it."""
        size = int(
            math.exp(self.random.uniform(math.log(10), math.log(300_000 if self.random.random() < 0.2 else 9000)))
        )
        return (mark * (size // len(mark) + 1))[: max(size, len(mark))]

    def change(self):
        session = self.random.choice(self.world.living())
        state = self.world.states[session]
        match self.random.randrange(12):
            case 0:
                return self.world.create(self.random.choice([None, session]))
            case 1 | 2:
                return self.world.fork(session, self.random.randint(1, state.events))
            case 3 if state.events > 2:
                start = self.random.randint(1, state.events - 1)
                return self.world.rebase(
                    session, (records.Drop(start, self.random.randint(start + 1, state.events)),)
                )
            case _:
                bodies = [self.body(session)]
                if isinstance(bodies[0], records.Message) and self.random.random() < 0.5:
                    bodies.append(self.body(session))
                return self.world.write(session, *bodies, with_snapshot=self.random.random() < 0.3)

    def step(self):
        if not self.world.living():
            self.log.commit([self.world.create()])
        match self.random.randrange(10):
            case 0:
                self.purge()
            case 1 if self.random.random() < 0.3:
                self.log.close()
                self.log = SessionLog(self.directory / "model.db")
                self.world.heads = Heads(self.log.heads())
            case _:
                self.log.commit([self.change() for _ in range(self.random.randint(1, 4))])

    def purge(self):
        purge = self.world.purge(
            self.random.choice(self.world.living()), self.random.choice([PurgeMode.REROOT, PurgeMode.CASCADE])
        )
        self.log.purge(purge.purged, purge.rerooted)
        self.check()

    def living_words(self):
        sentences, spans = set(), set()
        for events in self.world.timelines.values():
            for event in events:
                body = postcard.encode(EventBody, event.body)
                sentences |= {found.decode() for found in _SENTENCE.findall(body)}
                if span_found := getattr(event.body, "span", ()):
                    spans.add(span_found[:5])
        return sentences, spans

    def check(self):
        assert self.log.heads() == self.world.all_heads()
        assert read_all(self.log, self.world) == self.world.timelines
        sentences, spans = self.living_words()
        on_disk, spans_on_disk = said_in(self.directory)
        assert on_disk == sentences
        assert spans_on_disk == spans


@pytest.mark.parametrize("seed", range(50))
def test_nothing_of_a_purged_session_is_left(tmp_path, seed):
    history = History(tmp_path, seed)
    for _ in range(25):
        history.step()
    if history.world.living():
        history.purge()
    history.check()
    history.close()
    assert said_in(tmp_path) == history.living_words()


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(1000, 1010))
def test_nothing_is_left_of_long_histories(tmp_path, seed):
    history = History(tmp_path, seed)
    for _ in range(250):
        history.step()
    history.purge()
    history.close()


def test_the_search_finds_what_is_there(tmp_path):
    world = World()
    log = SessionLog(tmp_path / "model.db")
    log.commit([world.create(), world.create()])
    log.commit(
        [
            world.write(1, records.Message(1, sentence(1), span(1)), with_snapshot=True),
            world.write(2, records.MetaUpdated(1, sentence(2), None)),
        ]
    )
    expected = ({sentence(1), sentence(2)}, {span(1)}, {span(1)})
    assert said_in_forms(tmp_path) == expected
    log.truncate()
    assert said_in_forms(tmp_path) == expected
    log.close()


def test_sentences_after_the_fork_point_go_and_before_it_stay(tmp_path):
    world = World()
    log = SessionLog(tmp_path / "model.db")
    log.commit([world.create()])
    log.commit([world.write(1, records.Message(1, sentence(1), span(1)))])
    log.commit([world.fork(1, 2)])
    log.commit([world.write(1, records.Message(1, sentence(2), span(2)), with_snapshot=True)])
    log.commit([world.write(1, records.MetaUpdated(1, sentence(3), None))])
    purge = world.purge(1, PurgeMode.REROOT)
    log.purge(purge.purged, purge.rerooted)
    assert said_in(tmp_path) == ({sentence(1)}, {span(1)})
    assert read_all(log, world) == world.timelines
    assert world.timelines[2][1].body == records.Message(1, sentence(1), span(1))
    log.close()


def test_what_was_handed_down_twice_is_there_once(tmp_path):
    """A session takes over a `Rerooted` of the one that it was forked from: it reads as before, and its row repeats
    nothing, so that what is erased later has one place."""
    world = World()
    log = SessionLog(tmp_path / "model.db")
    log.commit([world.create()])
    log.commit([world.write(1, records.Message(1, sentence(1), span(1)))])
    log.commit([world.fork(1, 2)])
    log.commit([world.write(2, records.Message(1, sentence(2), span(2)))])
    for victim, heir in ((1, 2), (2, 3), (3, 4)):
        if victim > 1:
            log.commit([world.fork(victim, world.states[victim].events)])
            log.commit([world.write(heir, records.Message(1, sentence(heir), span(heir)))])
        purge = world.purge(victim, PurgeMode.REROOT)
        log.purge(purge.purged, purge.rerooted)
        assert read_all(log, world) == world.timelines
    log.truncate()
    assert (tmp_path / "model.db").read_bytes().count(sentence(1).encode()) == 1
    log.close()


def test_an_old_snapshot_and_an_old_title_go_too(tmp_path):
    world = World()
    log = SessionLog(tmp_path / "model.db")
    log.commit([world.create(), world.create()])
    for number in range(1, 30):
        log.commit(
            [
                world.write(1, records.MetaUpdated(number, sentence(number), None), with_snapshot=True),
                world.write(2, records.Message(1, "filler" * number * 20, (1,))),
            ]
        )
    purge = world.purge(1, PurgeMode.CASCADE)
    log.purge(purge.purged, purge.rerooted)
    assert said_in(tmp_path) == (set(), set())
    assert read_all(log, world) == world.timelines
    log.close()


def test_checksums_of_what_was_erased_go_too(tmp_path):
    """They would confirm a guess at a short text."""
    world = World()
    log = SessionLog(tmp_path / "model.db")
    log.commit([world.create()])
    log.commit([world.write(1, records.Message(1, "yes", (1,)), with_snapshot=True)])
    log.truncate()
    before = (tmp_path / "model.db").read_bytes()
    digests = [row[0] for row in log._read("SELECT digest FROM records UNION SELECT digest FROM snapshots", ())]
    assert len(digests) == 3
    assert all(digest in before for digest in digests)
    purge = world.purge(1, PurgeMode.CASCADE)
    log.purge(purge.purged, purge.rerooted)
    assert not any(digest in (tmp_path / "model.db").read_bytes() for digest in digests)
    log.close()


def test_a_purge_that_was_killed_before_it_truncated_is_finished_at_the_next_start(tmp_path, monkeypatch):
    crashed = tmp_path / "crashed"
    living = tmp_path / "living"
    living.mkdir()
    world = World()
    log = SessionLog(living / "model.db")
    log.commit([world.create()])
    log.commit([world.write(1, records.Message(1, sentence(1), span(1)))])
    purge = world.purge(1, PurgeMode.CASCADE)
    monkeypatch.setattr(SessionLog, "truncate", lambda self: shutil.copytree(living, crashed))
    log.purge(purge.purged, purge.rerooted)
    monkeypatch.undo()
    log.close()

    assert said_in(crashed) == ({sentence(1)}, {span(1)}), "the image is of the moment in between"
    log = SessionLog(crashed / "model.db")
    assert said_in(crashed) == (set(), set())
    assert log.heads() == world.all_heads()
    log.close()


def test_a_purge_that_cannot_truncate_says_so_and_can_be_finished(tmp_path):
    world = World()
    log = SessionLog(tmp_path / "model.db")
    log.commit([world.create()])
    log.commit([world.write(1, records.Message(1, sentence(1), span(1)))])
    log._writer.execute("PRAGMA busy_timeout = 0")
    log._reader.execute("BEGIN")
    log._reader.execute("SELECT count(*) FROM records").fetchall()
    purge = world.purge(1, PurgeMode.CASCADE)
    with pytest.raises(StillThere, match="could not be truncated"):
        log.purge(purge.purged, purge.rerooted)
    log._reader.execute("COMMIT")
    assert log.heads() == world.all_heads(), "the purge is durable all the same"
    log.truncate()
    assert said_in(tmp_path) == (set(), set())
    log.close()


def test_what_a_failed_commit_wrote_ahead_goes_with_the_purge(tmp_path):
    world = World()
    log = SessionLog(tmp_path / "model.db")
    log.commit([world.create()])
    before = world.copy()
    pages = log._writer.execute("PRAGMA page_count").fetchone()[0]
    log._writer.execute("PRAGMA cache_size = 10")  # so that pages spill into the write-ahead log before the commit
    log._writer.execute(f"PRAGMA max_page_count = {pages + 200}")
    bodies = [records.Message(1, sentence(n) * 3000, span(n)) for n in range(1, 60)]
    with pytest.raises(StoreError, match="full"):
        log.commit([world.write(1, *bodies)])
    assert said_in(tmp_path)[0], "the test is about what spilled"
    log._writer.execute("PRAGMA max_page_count = 1073741823")
    purge = before.purge(1, PurgeMode.CASCADE)
    log.purge(purge.purged, purge.rerooted)
    assert said_in(tmp_path) == (set(), set())
    log.close()
