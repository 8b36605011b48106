"""Where one statement ends and the next begins."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.tools.base import Call
from noetl.tools.sql import SQL_RENDERING, result_of, split, statements_of, transaction_word
from noetl.tools.values import BadField, Refused


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"]),
        (" ;; \n ; ", []),
        ("SELECT ';'", ["SELECT ';'"]),
        ("SELECT 'it''s; fine'; SELECT 2", ["SELECT 'it''s; fine'", "SELECT 2"]),
        (r"SELECT 'a\'; SELECT 2", [r"SELECT 'a\'", "SELECT 2"]),
        (r"SELECT E'a\';b'; SELECT 2", [r"SELECT E'a\';b'", "SELECT 2"]),
        (r"SELECT e'a\\'; SELECT 2", [r"SELECT e'a\\'", "SELECT 2"]),
        (r"SELECT E'a'';b'; SELECT 2", [r"SELECT E'a'';b'", "SELECT 2"]),
        (r"SELECT some'a\'; SELECT 2", [r"SELECT some'a\'", "SELECT 2"]),
        ('SELECT "a;b""c;d"; SELECT 2', ['SELECT "a;b""c;d"', "SELECT 2"]),
        ("SELECT $$a;b$$; SELECT 2", ["SELECT $$a;b$$", "SELECT 2"]),
        ("SELECT $x$a;$$;$y$;$x$; SELECT 2", ["SELECT $x$a;$$;$y$;$x$", "SELECT 2"]),
        ("SELECT $ü1$;$ü1$; SELECT 2", ["SELECT $ü1$;$ü1$", "SELECT 2"]),
        ("SELECT a$b$ ; SELECT c$b$", ["SELECT a$b$", "SELECT c$b$"]),
        ("SELECT $1; SELECT $2", ["SELECT $1", "SELECT $2"]),
        ("SELECT 1 -- one; two\n, 2; SELECT 3", ["SELECT 1  \n, 2", "SELECT 3"]),
        ("-- nothing; here", []),
        ("SELECT/* ; */1", ["SELECT 1"]),
        ("SELECT /* a /* b; */ c; */ 1; SELECT 2", ["SELECT   1", "SELECT 2"]),
        ("/* a */ ; /* b */", []),
        ("SELECT '/* '; SELECT ' */'", ["SELECT '/* '", "SELECT ' */'"]),
        ("SELECT '--'; SELECT 2", ["SELECT '--'", "SELECT 2"]),
        ("SELECT $$ -- /* ' $$; SELECT 2", ["SELECT $$ -- /* ' $$", "SELECT 2"]),
        ("SELECT 1 /* it's */; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT '100%', ':x', a::int", ["SELECT '100%', ':x', a::int"]),
        ("SELECT 'open; SELECT 2", ["SELECT 'open; SELECT 2"]),
        ("SELECT $a$ open; SELECT 2", ["SELECT $a$ open; SELECT 2"]),
        ("SELECT 1 / 2 * 3 - -1", ["SELECT 1 / 2 * 3 - -1"]),
    ],
)
def test_split(text: str, expected: list[str]) -> None:
    assert split(text) == expected


def test_a_comment_that_never_ends_stays_so_that_no_shorter_statement_runs() -> None:
    assert split("DELETE FROM t /* WHERE id = 1; SELECT 2") == ["DELETE FROM t /* WHERE id = 1; SELECT 2"]


PIECES = st.sampled_from(["'", "''", '"', "$$", "$a$", ";", "--", "\n", "/*", "*/", "E'", "\\", "x", " ", "1", "ü"])


@given(st.lists(PIECES, max_size=30).map("".join))
def test_splitting_again_changes_nothing(text: str) -> None:
    for statement in split(text):
        assert split(statement) == [statement]


@given(st.text(alphabet="';\"$-/*\n\\x", max_size=40))
def test_any_value_in_quotes_stays_in_one_statement(value: str) -> None:
    quoted = "'" + value.replace("'", "''") + "'"
    assert split(f"SELECT {quoted}; SELECT 2") == [f"SELECT {quoted}", "SELECT 2"]


def test_a_long_text_takes_no_time() -> None:
    text = "INSERT INTO t VALUES ('" + "x;" * 200_000 + "'); " + "SELECT E'\\'' /* c */; " * 20_000
    assert len(split(text)) == 20_001


async def read(fields: dict[str, Any], **more: Any) -> list[str]:
    return await statements_of(Call(kind="postgres", fields=fields, **more))


class TestFields:
    async def test_the_first_that_is_there_is_used(self) -> None:
        encoded = base64.b64encode(b"SELECT 'b64'").decode()
        fields = {"cmds": ["SELECT 4"], "query": "SELECT 3", "query_b64": encoded, "script": "SELECT 1; SELECT 2"}
        assert await read(fields) == ["SELECT 1", "SELECT 2"]
        assert await read({**fields, "script": None}) == ["SELECT 'b64'"]
        assert await read({"cmds": fields["cmds"], "query": fields["query"]}) == ["SELECT 3"]

    async def test_items_of_a_list_are_split_separately(self) -> None:
        fields = {"commands": ["SELECT 'a", "SELECT 1; SELECT 2"]}
        assert await read(fields) == ["SELECT 'a", "SELECT 1", "SELECT 2"]

    async def test_an_inline_script_is_not_rendered_again(self) -> None:
        script = {"source": {"type": "inline", "code": "SELECT '{{ x }}'"}}
        assert await read({"script": script}) == ["SELECT '{{ x }}'"]

    async def test_a_script_from_a_file_is_rendered_strictly(self, tmp_path: Path) -> None:
        (tmp_path / "a.sql").write_text("SELECT {{ n }}; SELECT {{ ctx.m }}")
        script = {"source": {"type": "file", "path": "a.sql"}}
        known: dict[str, Any] = {"input": {"n": 1}, "told": lambda: {"ctx": {"m": 2}}}
        assert await read({"script": script}, directory=tmp_path, **known) == ["SELECT 1", "SELECT 2"]
        with pytest.raises(BadField) as caught:
            await read({"script": script}, directory=tmp_path)
        assert caught.value.outcome.error
        assert caught.value.outcome.error["code"] == "TEMPLATE_UNDEFINED"

    async def test_a_script_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(Refused) as caught:
            await read({"script": {"uri": "gone.sql"}}, directory=tmp_path)
        assert caught.value.outcome.error
        assert caught.value.outcome.error["kind"] == "not_found"

    @pytest.mark.parametrize(
        ("fields", "kind", "code"),
        [
            ({}, "schema", "FIELD_MISSING"),
            ({"query": "-- nothing"}, "schema", "FIELD_MISSING"),
            ({"queries": []}, "schema", "FIELD_MISSING"),
            ({"query": 5}, "schema", "FIELD_INVALID"),
            ({"query_b64": "%%%"}, "parse", "FIELD_INVALID"),
            ({"query_b64": base64.b64encode(b"\xff").decode()}, "parse", "FIELD_INVALID"),
        ],
    )
    async def test_what_cannot_be_run(self, fields: dict[str, object], kind: str, code: str) -> None:
        with pytest.raises(BadField) as caught:
            await read(fields)
        assert caught.value.outcome.error
        assert (caught.value.outcome.error["kind"], caught.value.outcome.error["code"]) == (kind, code)

    def test_text_is_strict_and_base64_is_not_a_template(self) -> None:
        assert SQL_RENDERING["query"] == SQL_RENDERING["cmds"] == "strict"
        assert "query_b64" not in SQL_RENDERING


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("BEGIN", "BEGIN"), ("begin isolation level serializable", "BEGIN"),
        ("Start  Transaction", "START TRANSACTION"),
        ("COMMIT AND CHAIN", "COMMIT"), ("END", "END"), ("ROLLBACK", "ROLLBACK"), ("ROLLBACK TO SAVEPOINT a", None),
        ("rollback work to a", None), ("SAVEPOINT a", None), ("RELEASE a", None), ("SELECT 'COMMIT'", None),
        ("BEGINNING", None), ("PREPARE TRANSACTION 'x'", "PREPARE TRANSACTION"), ("PREPARE x AS SELECT 1", None),
    ],
)  # fmt: skip
def test_words_of_a_transaction(statement: str, word: str | None) -> None:
    assert transaction_word(statement) == word


def test_a_result_has_the_last_answer_at_the_top() -> None:
    one, two = {"status": "success", "rows": [1]}, {"status": "success", "rows": [2]}
    assert result_of([one, two]) == {**two, "statement_count": 2, "command_0": one, "command_1": two}
