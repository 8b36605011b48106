"""Contexts: what is kept, what is never kept, and which server a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.cli.contexts import Context, Contexts, contexts_file
from noetl.cli.remote import target_of, target_of_run
from noetl.errors import InvalidInput, InvalidSetting, NotFound, Unavailable

PROD = Context(url="https://noetl.example.org", token_env="PROD_TOKEN")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "noetl" / "contexts.toml"


def saved(file: Path, **contexts: Context) -> None:
    found = Contexts()
    for name, context in contexts.items():
        found.add(name, context, replace=False)
    found.save(file)


def test_what_was_saved_is_read_again_and_nobody_else_may_read_it(file: Path) -> None:
    odd = Context(url="http://127.0.0.1:8082", runtime="distributed", token_file='/tmp/a "b" \\c ü')
    saved(file, prod=PROD, odd=odd)
    found = Contexts.load(file)
    assert (found.current, found.contexts) == ("prod", {"prod": PROD, "odd": odd})
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_no_file_is_no_contexts(file: Path) -> None:
    assert Contexts.load(file) == Contexts()


@pytest.mark.parametrize("text", ["x = [", "color = 1\n", "current = 'gone'\n", "[contexts.a]\nurl = 1\n"])
def test_a_file_that_is_something_else_is_named(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidSetting, match=r"contexts\.toml"):
        Contexts.load(file)


def test_a_directory_that_cannot_be_made_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "noetl").touch()
    with pytest.raises(Unavailable, match="cannot write"):
        saved(tmp_path / "noetl" / "contexts.toml", prod=PROD)


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"HOME": "/home/ada"}, "/home/ada/.config/noetl/contexts.toml"),
        ({"HOME": "/home/ada", "XDG_CONFIG_HOME": "/etc/ada"}, "/etc/ada/noetl/contexts.toml"),
        ({"HOME": "/home/ada", "XDG_CONFIG_HOME": "relative"}, "/home/ada/.config/noetl/contexts.toml"),
    ],
)
def test_where_they_are_kept(environ: dict[str, str], place: str) -> None:
    assert contexts_file(environ) == Path(place)


@pytest.mark.parametrize(
    ("name", "context", "said"),
    [
        ("local", PROD, "cannot name a context"),
        ("a b", PROD, "cannot name a context"),
        ("a", Context(url="noetl.example.org"), "not the address of a server"),
        ("a", Context(url="https://u:secret@h"), "no user, password or query"),
        ("a", Context(url="https://h", token_env="eyJhbGciOi.J9"), "the name of a variable, not a token"),
    ],
)
def test_what_cannot_be_right_is_refused(name: str, context: Context, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        Contexts().add(name, context, replace=False)
    assert "secret" not in str(refused.value)


def test_a_context_is_replaced_only_when_asked() -> None:
    contexts = Contexts()
    contexts.add("a", PROD, replace=False)
    with pytest.raises(InvalidInput, match="already"):
        contexts.add("a", PROD, replace=False)
    contexts.add("a", Context(url="http://h"), replace=True)
    assert contexts.find("a").url == "http://h"


def test_an_unknown_context_names_those_there_are() -> None:
    with pytest.raises(NotFound, match="known: prod"):
        Contexts(contexts={"prod": PROD}).find("prd")


def test_a_token_is_read_when_it_is_needed(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("from-file\n", encoding="utf-8")
    by_file = Context(url="http://h", token_file=str(secret))
    secret.chmod(0o644)
    with pytest.raises(InvalidInput, match="can be read by others"):
        by_file.token("a", {})
    secret.chmod(0o600)
    assert by_file.token("a", {}) == "from-file"
    assert PROD.token("a", {"PROD_TOKEN": "from-env"}) == "from-env"
    assert Context(url="http://h").token("a", {}) is None
    with pytest.raises(InvalidInput, match="context 'a' takes its token from PROD_TOKEN, which is not set"):
        PROD.token("a", {})
    secret.unlink()
    with pytest.raises(InvalidInput, match="cannot read the token"):
        by_file.token("a", {})


# Flag, the current context's runtime, is it a file: does it run on the server?
@pytest.mark.parametrize(
    ("flag", "runtime", "is_file", "on_server"),
    [
        ("local", "distributed", False, False),
        ("distributed", "local", True, True),
        ("server", "auto", True, True),
        ("auto", "local", False, False),
        ("auto", "distributed", True, True),
        ("auto", "auto", True, False),
        ("auto", "auto", False, True),
    ],
)
def test_where_a_playbook_runs(file: Path, flag: str, runtime: str, is_file: bool, on_server: bool) -> None:
    saved(file, a=Context(url="http://h", runtime=runtime))  # type: ignore[arg-type]  # one of them
    found = target_of_run(flag, None, None, is_file=is_file)
    assert (found is not None) is on_server


def test_without_a_context_everything_is_here(file: Path) -> None:
    assert target_of_run("auto", None, None, is_file=False) is None
    assert target_of(None, None) is None
    with pytest.raises(InvalidInput, match="no server to run this on"):
        target_of_run("distributed", None, None, is_file=False)


def test_which_server_a_question_is_for(file: Path) -> None:
    saved(file, a=Context(url="http://h", runtime="distributed"), b=Context(url="http://i"))
    named, current = target_of("b", None), target_of(None, None)
    assert named is not None
    assert current is not None
    assert (named.name, current.name) == ("b", "a")
    assert target_of(None, Path("home")) is None
    assert target_of("local", None) is None
