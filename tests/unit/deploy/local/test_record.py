"""What is known of a stack."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from noetl.deploy.local import record
from noetl.deploy.local.control import Asked, ask_for, purge, standing, write_notes
from noetl.deploy.local.place import Place
from noetl.deploy.local.record import Plan, Stack, load_stack, make_stack, save_stack, with_ports
from noetl.errors import InvalidInput, NotFound, Unavailable


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(record, "_SYSTEM_DATA", tmp_path / "data")
    place = Place(tmp_path / "home")
    place.create()
    return place


@pytest.fixture
def stack(place: Place, tmp_path: Path) -> Stack:
    stack = make_stack(place, Plan(), port=None, directory=tmp_path)
    save_stack(place, stack)
    return stack


def test_a_new_stack_has_ports_and_passwords_of_its_own(place: Place, stack: Stack) -> None:
    assert len(set(stack.ports.values())) == 4
    assert stack.database_password in stack.postgres
    assert stack.nats_password in stack.nats
    assert stack.database_password != stack.nats_password
    assert stat.S_IMODE(place.record.stat().st_mode) == 0o600
    assert load_stack(place) == stack


def test_who_has_a_port_keeps_it(stack: Stack) -> None:
    one = with_ports(stack, ["outbox"])
    two = with_ports(one, ["outbox", "worker-0"])
    assert {name: two.ports[name] for name in one.ports} == one.ports
    assert len(set(two.ports.values())) == 6


def test_a_record_of_something_else_is_refused(place: Place) -> None:
    place.record.write_text('{"home": 1}')
    with pytest.raises(InvalidInput, match="does not describe a stack"):
        load_stack(place)


def test_a_port_that_is_taken_is_said(place: Place, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Unavailable, match=f"port {port} is used by another program") as refused:
            make_stack(place, Plan(), port=port, directory=tmp_path)
    assert refused.value.hint == "choose another with --port"


def test_the_next_start_keeps_everything_but_ports_that_others_took(place: Place, stack: Stack, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", stack.ports["postgres"])):
        again = ask_for(place, Asked(workers=3), tmp_path)
    assert again.plan == Plan(workers=3)
    assert again.ports["postgres"] != stack.ports["postgres"]
    assert f"port={again.ports['postgres']} " in again.postgres
    assert (again.nats, again.url) == (stack.nats, stack.url)
    assert again.database_password == stack.database_password


def test_another_port_of_the_server_is_another_address(place: Place, stack: Stack, tmp_path: Path) -> None:
    port = with_ports(stack, ["other"]).ports["other"]
    assert ask_for(place, Asked(port=port), tmp_path).url == f"http://127.0.0.1:{port}"


def test_what_was_not_asked_for_stays(place: Place, tmp_path: Path) -> None:
    ask_for(place, Asked(workers=3, spark=True), tmp_path)
    assert ask_for(place, Asked(projectors=2), tmp_path).plan == Plan(workers=3, projectors=2, spark=True)


def test_a_stack_that_does_not_run_is_down(place: Place, stack: Stack) -> None:
    found = standing(place)
    assert found is not None
    assert (found.report.phase, found.supervisor, found.pids, found.is_well) == ("down", None, {}, False)


def test_there_is_nothing_to_note_of_a_stack_that_there_is_not(place: Place) -> None:
    with pytest.raises(NotFound):
        write_notes(place)


def test_a_shell_is_told_how_to_reach_it(place: Place, stack: Stack) -> None:
    write_notes(place)
    text = place.environment.read_text()
    assert f"export NOETL_DATABASE='{stack.postgres}'\n" in text
    assert f"export NOETL_HOME={place.home}\n" in text
    assert not place.token.exists()


def test_a_purge_deletes_what_is_the_stacks_and_nothing_else(place: Place, stack: Stack) -> None:
    (place.home / "mine.txt").write_text("")
    purge(place, stack)
    assert [path.name for path in place.home.iterdir()] == ["mine.txt"]
    assert not Path(stack.database_root).exists()


def test_a_purge_takes_an_empty_home_with_it(place: Place, stack: Stack) -> None:
    purge(place, stack)
    assert not place.home.exists()
