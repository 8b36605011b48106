from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InvalidName
from noetl.kernel.ids import EPOCH_MS, compose
from noetl.kernel.names import FrameCoordinates, Home, ResultCoordinates, day_of, shard_label, shard_of
from tests.unit.kernel.names.strategies import coordinates

EXECUTION = compose(EPOCH_MS + 86_400_000 * 31, node=7, sequence=1)
HOME = Home(env="prod", region="usw2", cell="usw2-a")
STEP = ResultCoordinates(tenant="acme", project="risk", execution_id=EXECUTION, step="score", run=2, attempt=1)
FRAME = msgspec.structs.replace(STEP, frame=FrameCoordinates(epoch=1, slot=0, index=3))
TASK = msgspec.structs.replace(FRAME, row=4, task="call api", visit=2)
PREFIX = (
    f"noetl/env=prod/region=usw2/cell=usw2-a/shard={shard_label(shard_of('acme', 'risk', EXECUTION))}"
    f"/tenant=acme/project=risk/date=2024-02-01/execution={EXECUTION}/results"
)


def test_names_follow_from_the_coordinates() -> None:
    head = f"noetl://acme/risk/results/{EXECUTION}/score~2"
    assert STEP.logical_uri() == f"{head}/0/0/1@v1"
    assert FRAME.logical_uri() == f"{head}/e1.s0.f3/0/1@v1"
    assert TASK.logical_uri() == f"{head}/e1.s0.f3/5/1~call%20api.2@v1"


def test_a_loop_and_its_first_iteration_have_different_names() -> None:
    first = msgspec.structs.replace(STEP, row=0)
    assert first.logical_uri() != STEP.logical_uri()
    assert first.physical_key(HOME) != STEP.physical_key(HOME)
    assert first.effect_key() != STEP.effect_key()


def test_object_keys_follow_from_coordinates_and_home() -> None:
    assert STEP.physical_key(HOME) == f"{PREFIX}/score~2/0/0/1.bin"
    assert TASK.physical_key(HOME) == f"{PREFIX}/score~2/e1.s0.f3/5/1~call%20api.2.bin"
    assert TASK.effect_object_key(HOME) == f"{PREFIX}/score~2/e1.s0.f3/5/effect~call%20api.2.bin"
    assert FRAME.effect_object_key(HOME) == f"{PREFIX}/score~2/e1.s0.f3/effect.bin"


@pytest.mark.parametrize("place", [STEP, FRAME, TASK, msgspec.structs.replace(STEP, step="s" * 300)])
def test_a_result_owns_its_key_in_every_home_and_no_other(place: ResultCoordinates) -> None:
    elsewhere = msgspec.structs.replace(HOME, env="prod", cell="a/b=c", root=EXECUTION - 5)
    assert place.owns(place.physical_key(HOME))
    assert place.owns(place.physical_key(elsewhere))
    for other in (
        msgspec.structs.replace(place, attempt=2).physical_key(HOME),
        msgspec.structs.replace(place, tenant="labs").physical_key(HOME),
        f"x/{place.physical_key(HOME)}",
        f"../{place.physical_key(HOME)}",
        place.physical_key(HOME).replace("noetl/env=", "noetl/env=../../env="),
        place.physical_key(HOME) + ".meta.json",
        "acme/aa/bb/aabb",
        "",
    ):
        assert not place.owns(other)


def test_the_key_of_the_same_work_under_another_tenant() -> None:
    home = msgspec.structs.replace(HOME, cell="a/b=c" * 60, root=EXECUTION - 5)
    moved = msgspec.structs.replace(TASK, tenant="labs")
    assert moved.key_beside(TASK.physical_key(home), home.root) == moved.physical_key(home)


@pytest.mark.parametrize("place", [STEP, msgspec.structs.replace(FRAME, row=0)])
def test_only_tasks_and_whole_frames_have_effect_objects(place: ResultCoordinates) -> None:
    with pytest.raises(InvalidName, match="neither a task nor a whole frame"):
        place.effect_object_key(HOME)


def test_a_called_execution_lives_in_the_shard_of_its_root() -> None:
    root = EXECUTION - 1
    home = msgspec.structs.replace(HOME, root=root)
    assert STEP.shard() == shard_of("acme", "risk", EXECUTION)
    assert STEP.shard(root) == shard_of("acme", "risk", root)
    assert f"/shard={shard_label(STEP.shard(root))}/" in STEP.physical_key(home)


def test_the_effect_key_leaves_out_the_attempt() -> None:
    assert TASK.effect_key() == f"acme/risk/{EXECUTION}/score~2/e1.s0.f3/5/effect~call%20api.2"
    assert msgspec.structs.replace(TASK, attempt=9).effect_key() == TASK.effect_key()


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(TASK, visit=3),
        msgspec.structs.replace(TASK, run=3),
        msgspec.structs.replace(TASK, row=5),
        msgspec.structs.replace(TASK, frame=FrameCoordinates(epoch=2, slot=0, index=3)),
        msgspec.structs.replace(TASK, task="call"),
    ],
)
def test_a_jump_a_re_entry_and_a_new_epoch_change_the_effect_key(other: ResultCoordinates) -> None:
    assert other.effect_key() != TASK.effect_key()


@pytest.mark.parametrize("name", ["~", "a~1", "..", ".", "a/b", "a b", "🚀", "x.1", "~1.2", "a\nb", "%2e", "effect"])
def test_steps_and_tasks_may_be_called_anything(name: str) -> None:
    place = msgspec.structs.replace(TASK, step=name, task=name)
    assert ResultCoordinates.parse(place.logical_uri()) == place


def test_a_long_name_still_fits_a_file_name_and_a_header() -> None:
    place = msgspec.structs.replace(TASK, step="s" * 1000, task="t" * 400)
    assert max(map(len, place.physical_key(HOME).split("/"))) <= 255
    assert max(map(len, place.effect_object_key(HOME).split("/"))) <= 255
    assert len(place.effect_key()) == 255
    assert msgspec.structs.replace(place, task="t" * 401).effect_key() != place.effect_key()
    assert msgspec.structs.replace(place, step="s" * 1001).physical_key(HOME) != place.physical_key(HOME)


def test_a_name_over_the_limit_is_refused() -> None:
    with pytest.raises(InvalidName, match="a name has at most 2048 bytes"):
        msgspec.structs.replace(TASK, step="🚀" * 200).logical_uri()


@given(coordinates())
def test_every_place_reads_back_from_its_name(place: ResultCoordinates) -> None:
    assert ResultCoordinates.parse(place.logical_uri()) == place


def _near(place: ResultCoordinates) -> st.SearchStrategy[ResultCoordinates]:
    """Places that differ from the first in few fields, where a collision would hide."""
    fields = st.sets(st.sampled_from(["step", "run", "frame", "row", "attempt", "task", "execution_id"]), max_size=2)
    return st.builds(_mix, st.just(place), coordinates(), fields)


def _mix(place: ResultCoordinates, other: ResultCoordinates, fields: set[str]) -> ResultCoordinates:
    changes = {field: getattr(other, field) for field in fields}
    return msgspec.structs.replace(place, **changes, **({"visit": other.visit} if "task" in fields else {}))


@given(coordinates().flatmap(lambda place: st.tuples(st.just(place), _near(place))))
def test_different_places_never_share_an_address(pair: tuple[ResultCoordinates, ResultCoordinates]) -> None:
    one, other = pair
    assert (one == other) == (one.logical_uri() == other.logical_uri())
    same_object = msgspec.structs.replace(one, version="v1") == msgspec.structs.replace(other, version="v1")
    assert same_object == (one.physical_key(HOME) == other.physical_key(HOME))
    same_effect = _without_attempt(one) == _without_attempt(other)
    assert same_effect == (one.effect_key() == other.effect_key())


@given(coordinates())
def test_the_keys_of_a_place_are_those_of_its_coordinates(place: ResultCoordinates) -> None:
    if place.task is not None and place.visit is not None:
        assert place.effect_keys().key(place.row, place.task, place.visit) == place.effect_key()


def _without_attempt(place: ResultCoordinates) -> ResultCoordinates:
    return msgspec.structs.replace(place, attempt=0, version="v1")


@given(coordinates(), st.integers(0, 2**63 - 1))
def test_keys_are_safe_paths(place: ResultCoordinates, root: int) -> None:
    home = Home(env="a/b", region="..r", cell="c d", root=root)
    parts = place.physical_key(home).split("/")
    assert len(parts) == 14
    assert not {"", ".", ".."} & set(parts)
    assert place.physical_key(home).isascii()


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("results/1/a~1/0/0@v1", "does not have the parts of a result name"),
        ("results/1/a~1/0/0/1", "does not have the parts of a result name"),
        ("datasets/1/a~1/0/0/1@v1", "does not have the parts of a result name"),
        ("results/x/a~1/0/0/1@v1", "execution 'x' is not a decimal number"),
        ("results/01/a~1/0/0/1@v1", "execution '01' is not a decimal number"),
        ("results/9223372036854775808/a~1/0/0/1@v1", "execution '9223372036854775808' is outside"),
        ("results/1/a/0/0/1@v1", "step 'a' has no run (write <step>~<run>)"),
        ("results/1/~1/0/0/1@v1", "step is empty"),
        ("results/1/a~/0/0/1@v1", "run '' is not a decimal number"),
        ("results/1/a~1/f3/0/1@v1", "frame 'f3' is neither e<epoch>.s<slot>.f<index> nor 0"),
        ("results/1/a~1/e1.s0.f03/0/1@v1", "frame index '03' is not a decimal number"),
        ("results/1/a~1/0/-1/1@v1", "row '-1' is not a decimal number"),
        ("results/1/a~1/0/0/first@v1", "attempt 'first' is not a decimal number"),
        ("results/1/a~1/0/0/1~call@v1", "task 'call' has no visit (write <attempt>~<task>.<visit>)"),
        ("results/1/a~1/0/0/1~.2@v1", "task is empty"),
        ("results/1/a~1/0/0/1~call.x@v1", "visit 'x' is not a decimal number"),
    ],
)
def test_a_broken_result_name_says_why(path: str, rule: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        ResultCoordinates.parse(f"noetl://t/p/{path}")
    assert str(refusal.value).startswith(f"'noetl://t/p/{path}' is not a valid name: ")
    assert rule in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"tenant": "execution"}, "a tenant cannot be called 'execution'"),
        ({"project": ""}, "project is empty"),
        ({"step": ""}, "step is empty"),
        ({"step": "a\ud800"}, "lone surrogate"),
        ({"run": -1}, "run '-1' is outside"),
        ({"row": -1}, "row index '-1' is outside"),
        ({"row": 2**63 - 1}, "row"),
        ({"execution_id": 2**63}, "execution '9223372036854775808' is outside"),
        ({"task": "a"}, "task and visit stand together or not at all"),
        ({"visit": 1}, "task and visit stand together or not at all"),
        ({"task": "", "visit": 1}, "task is empty"),
        ({"task": "a", "visit": -1}, "visit '-1' is outside"),
        ({"version": ".."}, "version '..' is a relative path"),
    ],
)
def test_coordinates_that_cannot_be_named_are_refused(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        msgspec.structs.replace(STEP, **changes)
    assert rule in str(refusal.value)


@pytest.mark.parametrize("changes", [{"env": ""}, {"region": ".."}, {"cell": "a\n"}, {"root": -1}])
def test_a_home_that_cannot_stand_in_a_key_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidName):
        msgspec.structs.replace(HOME, **changes)


def test_the_day_is_the_utc_day_inside_the_id() -> None:
    assert day_of(0) == "2024-01-01"
    assert day_of(compose(EPOCH_MS + 86_400_000 - 1, 1023, 4095)) == "2024-01-01"
    assert day_of(compose(EPOCH_MS + 86_400_000, 0, 0)) == "2024-01-02"
    assert day_of(compose(1_779_926_400_000, 0, 0)) == "2026-05-28"
    assert day_of(2**63 - 1) == "2093-09-06"
