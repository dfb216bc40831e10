"""The rules of wire-facts, section 8, one by one: bounds, order of checks, and the texts that clients match on."""

import math

import pytest

from superfluid.protocol import records
from superfluid.protocol.codes import Qos, Role
from superfluid.protocol.records import Drop, GenParams, Replace
from superfluid.protocol.refusals import (
    BadEdits,
    BadPoint,
    BadRole,
    MetaConflict,
    ProtocolRefusal,
    PurgeConflict,
    SystemTooLate,
)
from superfluid.protocol.wire import U64_MAX, single
from superfluid.sessions import decide
from tests.sessions.world import World


@pytest.fixture
def world():
    return World()


@pytest.fixture
def session(world):
    """Five events: Created, a user message, a header, a reply that ended, a title."""
    session = world.create(None, GenParams(temperature=0.5, seed=7)).head.id
    world.write(
        session,
        records.Message(Role.USER, "hi", (1, 2)),
        records.GenerationPrompt((3,)),
        records.Generated((4, 5), "yo", 0, 1),
        records.MetaUpdated(1, "t", None),
    )
    return session


# --- create -------------------------------------------------------------------------------------------------------


def test_create_inherits_nothing_but_lineage(world, session):
    head = world.create(session).head
    assert (head.parent, head.fork_at, head.own_from, head.events, head.tokens, head.epoch) == (
        session,
        0,
        0,
        1,
        0,
        1,
    )
    assert world.states[head.id].params == GenParams()
    assert world.heads.descendants(session) == (head.id,)


@pytest.mark.parametrize(
    ("params", "word"),
    [
        (GenParams(temperature=-0.1), "temperature"),
        (GenParams(temperature=math.nan), "temperature"),
        (GenParams(temperature=math.inf), "temperature"),
        (GenParams(temperature=1e39), "temperature"),
        (GenParams(top_p=1.1), "top_p"),
        (GenParams(top_p=math.nan), "top_p"),
        (GenParams(min_p=-1e-9), "min_p"),
    ],
)
def test_parameters_that_cannot_be_sampled_with(params, word):
    with pytest.raises(ProtocolRefusal, match=f"^protocol: params.{word} is"):
        decide.create(None, params)


def test_parameters_are_as_the_log_gives_them_back():
    body = decide.create(None, GenParams(temperature=0.7, top_p=1.0, min_p=0.05, seed=U64_MAX))
    assert body.params == GenParams(single(0.7), 1.0, single(0.05), 0, U64_MAX)
    assert decide.check_params(body.params) == body.params


# --- fork and trim ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [decide.fork, decide.trim])
@pytest.mark.parametrize("at", [0, 6, 2**64 - 1])
def test_points_outside_the_log(world, session, rule, at):
    args = (None,) if rule is decide.fork else ()
    with pytest.raises(BadPoint, match=rf"fork point {at} is outside session {session}: 1\.\.=5"):
        rule(world.states[session], at, *args)


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_fork_starts_at_its_point(world, session, at):
    head = world.fork(session, at).head
    state = world.states[head.id]
    assert world.timelines[head.id][:at] == world.timelines[session][:at]
    assert world.timelines[head.id][at].event_id == at
    assert (state.events, state.epoch, state.parent, state.fork_at) == (at + 1, 1, session, at)
    assert state.params == GenParams(temperature=0.5, seed=7)


def test_a_fork_may_bring_its_own_parameters(world, session):
    assert decide.fork(world.states[session], 2, GenParams(top_k=4)).params == GenParams(top_k=4)
    with pytest.raises(ProtocolRefusal):
        decide.fork(world.states[session], 2, GenParams(top_p=2.0))


def test_what_a_fork_inherits_and_what_not(world, session):
    world.write(
        session,
        records.GenerationFingerprint(77),
        records.ToolUse("f", "{}"),
        records.PermissionRequest(0, "may I"),
        records.QosSet(Qos.BACKGROUND, True),
        records.Pinned(99),
        records.EpochBump(),
        records.Generated((6,), "", 0, 2),
    )
    world.write(session, records.QosSet(Qos.INTERACTIVE, True))
    whole = world.states[session]
    state = world.states[world.fork(session, whole.events - 1).head.id]
    assert (state.fingerprint, state.last_finish, list(state.tokens)) == (77, 2, list(whole.tokens))
    assert (state.qos, state.batch_invariant) == (Qos.INTERACTIVE, True), "the parent's values as they are now"
    assert (state.calls, state.permissions, state.open_calls) == ({}, set(), ())
    assert (state.title, state.archived, state.meta_version, state.generation) == (None, False, 0, 0)
    assert (state.pin_deadline_ms, state.epoch) == (0, 1)


def test_blocks_count_and_survive_forks_of_forks(world):
    session = world.create().head.id
    world.write(
        session,
        records.Block(Role.USER, 7, "{}", (8, 8, 8), 2),
        records.Block(Role.USER, 4, "{}", (), 2),
        records.Appended(None, (9,)),
    )
    child = world.fork(session, 3).head.id
    assert list(world.states[child].tokens) == [8, 8, 8]
    grandchild = world.fork(child, 4).head.id
    assert list(world.states[grandchild].tokens) == [8, 8, 8]
    assert world.states[grandchild].roles == [Role.USER]


def test_trim_to_the_end_is_a_plain_fork(world, session):
    assert isinstance(world.trim(session, 5).events[0].body, records.Forked)
    change = world.trim(session, 3)
    assert change.events[0].body == records.Rebased(session, 3, GenParams(temperature=0.5, seed=7), (Drop(3, 5),))
    assert change.events[0].event_id == 3
    assert len(change.events) == 1


# --- edits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ((), "no edits"),
        ((Drop(0, 2),), "never include Created"),
        ((Drop(0, 0),), "never include Created"),
        ((Drop(2, 2),), "empty range"),
        ((Drop(3, 2),), "empty range"),
        ((Drop(9, 9),), "empty range"),
        ((Drop(1, 6),), "beyond the parent's committed events"),
        ((Drop(2, 4), Drop(3, 5)), "must be sorted and non-overlapping"),
        ((Drop(3, 4), Drop(1, 2)), "must be sorted and non-overlapping"),
        ((Drop(2, 4), Drop(3, 9)), "beyond the parent's committed events"),
        ((Replace(1, 2, 0, ""), Replace(0, 1, 9, "")), "never include Created"),
    ],
)
def test_edits_that_make_no_sense(world, session, edits, reason):
    with pytest.raises(BadEdits, match=f"^rebase edit spec invalid: .*{reason}"):
        decide.check_edits(world.states[session], edits)


@pytest.mark.parametrize("role", [3, 4, 2**32 - 1])
def test_a_replacing_message_speaks_for_a_client(world, session, role):
    with pytest.raises(BadRole, match=f"unknown message role {role}"):
        decide.check_edits(world.states[session], (Drop(1, 2), Replace(2, 3, role, "")))


@pytest.mark.parametrize("edits", [(Drop(1, 5),), (Drop(1, 2), Drop(2, 3), Replace(3, 5, 2, "x")), (Drop(4, 5),)])
def test_edits_may_touch_and_reach_the_end(world, session, edits):
    decide.check_edits(world.states[session], edits)


# --- appends ------------------------------------------------------------------------------------------------------


def test_append_takes_the_span_as_given_else_the_text():
    assert decide.append("t", (1, 2), (9,)) == records.Appended("t", (1, 2))
    assert decide.append(None, (1, 2), ()) == records.Appended(None, (1, 2))
    assert decide.append("t", (), (9,)) == records.Appended("t", (9,))
    for text in (None, ""):
        with pytest.raises(ProtocolRefusal, match=r"^protocol: append"):
            decide.append(text, (), ())


@pytest.mark.parametrize("role", [3, 4, 255, 2**32 - 1])
def test_roles_that_no_client_may_use(role):
    for rendered in ((1,), ()):
        with pytest.raises(BadRole, match=f"unknown message role {role}"):
            decide.message(role, "x", rendered)


@pytest.mark.parametrize("role", [0, 1, 2])
def test_roles_that_a_client_may_use(role):
    assert decide.message(role, "", (1,)) == records.Message(role, "", (1,))
    with pytest.raises(ProtocolRefusal, match=r"^protocol: "):
        decide.message(role, "x", ())


def test_system_comes_before_any_token(world):
    session = world.create().head.id
    world.write(
        session,
        records.EpochBump(),
        records.QosSet(1, False),
        records.MetaUpdated(1, "t", None),
        records.Pinned(5),
        records.Block(Role.USER, 4, "{}", (), 2),
    )
    decide.check_system(world.states[session])
    world.write(session, records.Block(Role.USER, 1, "{}", (1,), 2))
    text = f"session {session} already has a prompt; AppendSystem must come before any other turn"
    with pytest.raises(SystemTooLate, match=text):
        decide.check_system(world.states[session])
    child = world.fork(session, 7).head.id
    with pytest.raises(SystemTooLate):
        decide.check_system(world.states[child])
    decide.check_system(world.states[world.fork(session, 6).head.id])


# --- metadata, quality of service, pins, purges -------------------------------------------------------------------


def test_metadata_has_a_version(world, session):
    state = world.states[session]
    with pytest.raises(MetaConflict, match=f"session {session} is at metadata version 1, not at the expected 0"):
        decide.set_meta(state, 0, "x", None)
    assert decide.set_meta(state, 1, None, True) == records.MetaUpdated(2, None, True)
    world.write(session, records.MetaUpdated(2, None, True), records.MetaUpdated(3, "", None))
    assert (state.title, state.archived, state.meta_version) == ("", True, 3)


def test_classes_of_service():
    for class_ in range(4):
        assert decide.set_qos(class_, True) == records.QosSet(class_, True)
    with pytest.raises(ProtocolRefusal, match=r"^protocol: unknown QoS class 4"):
        decide.set_qos(4, False)


def test_pins_saturate_and_clear():
    assert decide.pin(5, 100).deadline_unix_ms == 105
    assert decide.pin(0, 100).deadline_unix_ms == 0
    assert decide.pin(U64_MAX, 100).deadline_unix_ms == U64_MAX


def test_purges_name_the_generation():
    decide.check_purge(0, 4, 0)
    with pytest.raises(PurgeConflict, match="session 4 is at generation 0, not at the expected 3"):
        decide.check_purge(0, 4, 3)
