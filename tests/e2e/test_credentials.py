"""`noetl credential` as its users run it: what is secret comes out with --reveal, and nowhere else."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pty
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cli import COMMAND, Home, Result

SECRET = "correct-horse/battery+staple"
POSTGRES = {"db_host": "localhost", "db_user": "shop", "db_name": "orders", "db_password": SECRET}


@pytest.fixture
def home(new_home: Home) -> Home:
    """A home with one credential, given as its users should."""
    stored = add(new_home, "warehouse", "--type", "postgres", "--stdin", "--tag", "eu", text=json.dumps(POSTGRES))
    assert stored.code == 0, stored
    return new_home


def add(home: Home, *args: str | Path, text: str = "") -> Result:
    process = home.start("credential", "add", *args, stdin=subprocess.PIPE)
    stdout, stderr = process.communicate(text.encode(), timeout=60)
    return Result(process.returncode, stdout.decode(), stderr.decode())


def reveal(home: Home, name: str) -> dict[str, str]:
    data: dict[str, str] = home.json("credential", "show", name, "--reveal")["data"]
    return data


def at_a_terminal(home: Home, *args: str, answers: list[tuple[str, str]]) -> tuple[int, str]:
    """Type each answer when its question is there; exit code and all that was on the screen."""
    child, terminal = pty.fork()
    if not child:
        os.chdir(home.path.parent)
        os.execvpe(COMMAND[0], [*COMMAND, *args], home.environment({"TERM": "dumb"}))
    screen = ""
    with contextlib.suppress(OSError):  # the other side is gone: that is how a terminal ends
        while data := os.read(terminal, 4096):
            screen += data.decode()
            if answers and screen.endswith(answers[0][0]):
                os.write(terminal, answers.pop(0)[1].encode() + b"\n")
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), screen


class TestWhatIsShown:
    @pytest.mark.parametrize(
        "args",
        [("list",), ("list", "--json"), ("show", "warehouse"), ("show", "warehouse", "--json"), ("rotate",),
         ("rotate", "--json"), ("remove", "warehouse"), ("remove", "warehouse", "--json")],
    )  # fmt: skip
    def test_no_command_prints_a_value(self, args: tuple[str, ...], home: Home) -> None:
        done = home.run("credential", *args)
        assert done.code == 0, done
        for value in (SECRET, base64.b64encode(SECRET.encode()).decode(), "localhost"):
            assert value not in done.stdout + done.stderr

    def test_the_names_of_fields_are_shown(self, home: Home) -> None:
        document = home.json("credential", "show", "warehouse")
        assert (document["type"], document["tags"], document["version"]) == ("postgres", ["eu"], 1)
        assert document["fields"] == list(POSTGRES)
        assert "data" not in document
        assert "data.db_password   ***" in home.run("credential", "show", "warehouse").stdout

    def test_values_are_shown_to_those_who_insist(self, home: Home) -> None:
        assert reveal(home, "warehouse") == POSTGRES
        assert SECRET in home.run("credential", "show", "warehouse", "--reveal").stdout

    def test_a_list_and_its_filter(self, home: Home) -> None:
        add(home, "token", "--type", "bearer", "--stdin", text="t0ken-t0ken")
        page = home.json("credential", "list")
        assert [(item["name"], item["type"]) for item in page["credentials"]] == [
            ("token", "bearer"),
            ("warehouse", "postgres"),
        ]
        assert len(home.json("credential", "list", "--type", "bearer")["credentials"]) == 1
        first = home.json("credential", "list", "--limit", "1")
        second = home.json("credential", "list", "--limit", "1", "--cursor", first["next_cursor"])
        assert [item["name"] for item in second["credentials"]] == ["warehouse"]

    def test_an_empty_home_has_none_and_is_not_made(self, new_home: Home) -> None:
        assert new_home.json("credential", "list") == {"credentials": [], "next_cursor": None}
        assert new_home.run("credential", "list").stderr == "No credentials yet.\n"
        assert not new_home.path.exists()

    def test_the_key_in_the_environment_is_no_setting_and_is_not_shown(self, home: Home) -> None:
        done = home.run("config", "view", "--json", env={"NOETL_WALLET__KEK": "5ec2e7" * 10})
        assert done.code == 0
        assert "5ec2e7" not in done.stdout


class TestWhatIsGiven:
    def test_a_bare_value_is_enough_where_one_is_missing(self, home: Home) -> None:
        for kind, field in (("bearer", "token"), ("secret", "secret")):
            assert add(home, kind, "--type", kind, "--stdin", text=f"{SECRET}: {{x\n").code == 0
            assert reveal(home, kind) == {field: f"{SECRET}: {{x"}

    @pytest.mark.parametrize("name", ["pg.yaml", "pg.json"])
    @pytest.mark.parametrize("whole", [True, False])
    def test_a_file(self, name: str, whole: bool, new_home: Home, tmp_path: Path) -> None:
        document = {"name": "pg", "type": "postgres", "description": "d", "tags": ["a"], "data": POSTGRES}
        file = tmp_path / name
        file.write_text(json.dumps(document if whole else POSTGRES))
        kind = () if whole else ("--type", "postgres")
        stored = add(new_home, "pg", *kind, "--file", file, "--json")
        assert stored.code == 0, stored
        assert (stored.document["description"], stored.document["tags"]) == (("d", ["a"]) if whole else ("", []))
        assert reveal(new_home, "pg") == POSTGRES

    def test_what_yaml_would_spoil_stays_text(self, new_home: Home) -> None:
        assert add(new_home, "x", "--type", "own", "--stdin", text="a: 0123\nb: yes\nc: 2026-01-01\n").code == 0
        assert reveal(new_home, "x") == {"a": "0123", "b": "yes", "c": "2026-01-01"}

    def test_a_secret_on_the_command_line_is_taken_with_a_warning(self, new_home: Home) -> None:
        done = add(new_home, "t", "--type", "bearer", "--data", f"token={SECRET}")
        assert done.code == 0
        assert "warning: token on the command line can be seen in your shell's history" in done.stderr
        assert "--prompt, --stdin or --file" in done.stderr
        assert SECRET not in done.stdout + done.stderr
        quiet = add(new_home, "n", "--type", "nats", "--data", "url=nats://localhost")
        assert "warning" not in quiet.stderr

    def test_a_name_that_is_taken_needs_replace(self, home: Home) -> None:
        again = add(home, "warehouse", "--type", "bearer", "--stdin", text="other")
        assert (again.code, "add --replace" in again.stderr) == (2, True)
        assert reveal(home, "warehouse") == POSTGRES
        replaced = add(home, "warehouse", "--type", "bearer", "--stdin", "--replace", "--json", text="other")
        assert replaced.document["version"] == 2
        assert reveal(home, "warehouse") == {"token": "other"}

    @pytest.mark.parametrize(
        ("args", "text", "message"),
        [
            (("a b", "--type", "bearer"), "", "is not a credential name"),
            (("x",), "", "the credential has no type"),
            (("x", "--type", "bearer"), "", "of type bearer has no token"),
            (("x", "--type", "postgres", "--data", "db_host"), "", "--data number 1 is not of the form NAME=VALUE"),
            (("x", "--type", "postgres", "--stdin"), SECRET, "does not hold a mapping of fields"),
            (("x", "--type", "postgres", "--stdin"), f"{SECRET}: [", "is not one document of JSON or YAML, line"),
            (("x", "--type", "bearer", "--file", "gone.yaml"), "", "there is no file gone.yaml"),
            (("x", "--type", "bearer", "--file", "a", "--stdin"), "", "give --file or --stdin, not both"),
            (("x", "--type", "bearer", "--prompt"), "", "--prompt needs a terminal"),
            (("x", "--type", "postgres", "--stdin"), f"db_password: {SECRET}", "has no db_host, db_user, db_name"),
        ],
    )
    def test_what_is_wrong_is_said_and_nothing_is_made(
        self, args: tuple[str, ...], text: str, message: str, new_home: Home
    ) -> None:
        done = add(new_home, *args, text=text)
        assert done.code == 2
        assert message in done.stderr
        assert SECRET not in done.stdout + done.stderr
        assert not new_home.path.exists()

    def test_a_type_that_is_nearly_known_is_kept_with_a_note(self, new_home: Home) -> None:
        done = add(new_home, "x", "--type", "postgress", "--stdin", text=json.dumps(POSTGRES))
        assert done.code == 0
        assert "did you mean 'postgres'?" in done.stderr

    def test_the_wrong_file_is_not_stored_under_another_name(self, new_home: Home, tmp_path: Path) -> None:
        file = tmp_path / "pg.json"
        file.write_text(json.dumps({"name": "pg", "type": "postgres", "data": POSTGRES}))
        done = add(new_home, "other", "--file", file)
        assert (done.code, "is about name 'pg', the command line says 'other'" in done.stderr) == (2, True)


class TestAtATerminal:
    def test_what_is_missing_is_asked_for_and_a_secret_is_not_echoed(self, new_home: Home) -> None:
        answers = [("db_user: ", "shop"), ("db_password (empty for none): ", SECRET), ("db_name: ", "orders")]
        code, screen = at_a_terminal(
            new_home, "credential", "add", "pg", "--type", "postgres", "--data", "db_host=localhost", answers=answers
        )
        assert code == 0, screen
        assert answers == []
        assert "shop" in screen
        assert SECRET not in screen
        assert reveal(new_home, "pg") == POSTGRES

    def test_an_optional_secret_may_be_left_out(self, new_home: Home) -> None:
        answers = [("password (empty for none): ", "")]
        code, screen = at_a_terminal(
            new_home,
            "credential",
            "add",
            "bus",
            "--type",
            "nats",
            "--data",
            "url=nats://n",
            "--prompt",
            answers=answers,
        )
        assert code == 0, screen
        assert reveal(new_home, "bus") == {"url": "nats://n"}

    @pytest.mark.parametrize(("answer", "left"), [("n", True), ("y", False)])
    def test_removing_asks_first(self, answer: str, left: bool, home: Home) -> None:
        code, screen = at_a_terminal(
            home,
            "credential",
            "remove",
            "warehouse",
            answers=[("Remove credential warehouse for good? [y/N]: ", answer)],
        )
        assert (code == 0) != left, screen
        assert bool(home.json("credential", "list")["credentials"]) == left


class TestTheKey:
    def test_it_is_private(self, home: Home) -> None:
        wallet = home.path / "wallet"
        assert stat.S_IMODE(wallet.stat().st_mode) == 0o700
        assert stat.S_IMODE((wallet / "kek.key").stat().st_mode) == 0o600

    def test_one_that_others_can_read_is_refused(self, home: Home) -> None:
        key = home.path / "wallet" / "kek.key"
        key.chmod(0o644)
        done = home.run("credential", "show", "warehouse", "--reveal")
        assert done.code == 2
        assert f"chmod 600 {key}" in done.stderr
        assert home.run("credential", "show", "warehouse").code == 0, "without values it is not needed"

    def test_another_one_is_named_and_so_is_the_fix(self, home: Home) -> None:
        key_id = home.json("credential", "show", "warehouse")["key_id"]
        other = {"NOETL_WALLET__KEK": "ab" * 32}
        for args in (("show", "warehouse", "--reveal"), ("rotate",)):
            done = home.run("credential", *args, env=other)
            assert done.code == 2
            assert f"sealed with key {key_id}, but NOETL_WALLET__KEK holds kek-" in done.stderr
            assert "put the right wallet/kek.key back from a backup" in done.stderr
        (home.path / "wallet" / "kek.key").unlink()
        done = home.run("credential", "show", "warehouse", "--reveal")
        assert (done.code, f"{key_id}, but {home.path}/wallet/kek.key holds no key" in done.stderr) == (2, True)

    def test_the_environment_can_hold_it_and_rotate_it(self, new_home: Home) -> None:
        old, new = "ab" * 32, base64.b64encode(b"n" * 32).decode()
        given = ("credential", "add", "t", "--type", "bearer", "--data", f"token={SECRET}")
        assert new_home.run(*given, env={"NOETL_WALLET__KEK": old}).code == 0
        assert not (new_home.path / "wallet" / "kek.key").exists()
        refused = new_home.run("credential", "rotate", env={"NOETL_WALLET__KEK": old})
        assert (refused.code, "<old>,<new>" in refused.stderr) == (2, True)
        assert new_home.json("credential", "rotate", env={"NOETL_WALLET__KEK": f"{old},{new}"})["rewrapped"] == 1
        done = new_home.run("credential", "show", "t", "--reveal", env={"NOETL_WALLET__KEK": new})
        assert SECRET in done.stdout

    def test_no_file_of_the_home_has_the_secret(self, home: Home) -> None:
        home.json("credential", "rotate")
        planted = (SECRET.encode(), base64.b64encode(SECRET.encode()), SECRET.encode().hex().encode())
        for file in home.path.rglob("*"):
            content = file.read_bytes() if file.is_file() else b""
            assert not any(secret in content for secret in planted), file

    def test_rotations_that_are_killed_lose_nothing(self, home: Home) -> None:
        """As it begins, or as soon as the keys have changed: whatever is on disk by then, every record opens."""
        expected = {"warehouse": POSTGRES}
        for number in range(20):
            add(home, f"t{number}", "--type", "bearer", "--stdin", text=f"token number {number}")
            expected[f"t{number}"] = {"token": f"token number {number}"}
        keys = home.path / "wallet" / "kek.key"
        for moment in range(12):
            process = home.start("credential", "rotate", "--retire")
            before = keys.read_bytes()
            while process.poll() is None and (moment % 3 == 0 or keys.read_bytes() == before):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.001)
                if moment % 3 == 0 and (home.path / "ledger.db-wal").exists():
                    break
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            assert reveal(home, "t7") == expected["t7"]
        assert home.json("credential", "rotate", "--retire")["rewrapped"] == len(expected)
        assert len(keys.read_text().splitlines()) == 1
        assert {name: reveal(home, name) for name in ("warehouse", "t0", "t19")} == {
            name: expected[name] for name in ("warehouse", "t0", "t19")
        }
