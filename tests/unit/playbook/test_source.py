from __future__ import annotations

import pytest

from noetl.playbook.problems import Report
from noetl.playbook.source import MAX_CHARACTERS, Node, positions_of, read


def tree(text: str) -> Node:
    report = Report("t.yaml")
    documents = read(text, report)
    assert report.problems() == ()
    return documents[0]


def refused(text: str) -> str:
    report = Report("t.yaml")
    read(text, report)
    return "; ".join(f"{problem.line}:{problem.column} {problem.message}" for problem in report.problems())


def test_every_key_and_value_knows_its_place() -> None:
    root = tree("a: 1\nb:\n  - {c: d}\n  -   e\n")
    assert (root.line, root.column) == (1, 1)
    assert root.key("b") == (2, 1)
    inner = root.entries["b"].items[0]
    assert (inner.line, inner.column) == (3, 5)
    assert inner.key("c") == (3, 6)
    assert (inner.entries["c"].line, inner.entries["c"].column) == (3, 9)
    assert (root.entries["b"].items[1].line, root.entries["b"].items[1].column) == (4, 7)


def test_what_is_wrong_with_nothing_is_shown_at_its_key() -> None:
    root = tree("a:\n  b:\n  c: 1\n")
    nothing = root.entries["a"].entries["b"]
    assert (nothing.value, nothing.line, nothing.column) == (None, 2, 3)


def test_the_lines_of_a_block_of_code_are_found() -> None:
    positions = positions_of(tree("code: |\n  one\n  two\nflow: x\n"))
    assert positions.find("code") == (1, 7)
    assert positions.line_in(2, "code") == 3
    assert positions.line_in(1, "flow") == 4


def test_the_place_of_something_unwritten_is_that_of_what_is_around_it() -> None:
    positions = positions_of(tree("a:\n  b: {c: 1}\n"))
    assert positions.find("a", "b", "x", "y") == (2, 6)


def test_keys_with_slashes_have_places() -> None:
    assert positions_of(tree("a:\n  b/c~d: 1\n")).find("a", "b/c~d") == (2, 10)


def test_a_file_may_hold_several_documents() -> None:
    report = Report("t.yaml")
    assert [node.data() for node in read("a: 1\n---\n---\nb: 2\n...\n", report)] == [{"a": 1}, {"b": 2}]


def test_columns_count_characters_not_bytes() -> None:
    assert tree("äöü: {é: ß}\n").entries["äöü"].key("é") == (1, 7)


class TestAnchors:
    def test_a_merged_key_does_not_replace_an_own_one(self) -> None:
        root = tree("base: &b {x: 1, y: 2}\nown:\n  <<: *b\n  y: 3\n")
        assert root.entries["own"].data() == {"y": 3, "x": 1}

    def test_the_first_of_several_merged_mappings_wins(self) -> None:
        assert tree("a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc: {<<: [*a, *b]}\n").entries["c"].data() == {"x": 1, "z": 3}

    def test_a_quoted_merge_key_is_a_key(self) -> None:
        assert tree("a: {'<<': 1}\n").data() == {"a": {"<<": 1}}

    def test_an_anchor_ends_with_its_document(self) -> None:
        assert "1:4" not in refused("a: &x 1\n---\nb: *x\n")
        assert refused("a: &x 1\n---\nb: *x\n") == "3:4 not valid YAML: alias '*x' has no anchor"

    def test_an_alias_to_itself_is_refused(self) -> None:
        assert refused("a: &a [1, *a]\n") == "1:11 not valid YAML: alias '*a' refers to itself"

    def test_aliases_of_aliases_do_not_get_deeper_than_the_rest(self) -> None:
        chain = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 200))
        assert refused(chain) == "63:12 not valid YAML: nested more than 64 deep, aliases written out"

    def test_merging_something_else_is_refused(self) -> None:
        assert refused("a: {<<: 5}\n") == "1:5 not valid YAML: '<<' merges a mapping or a list of mappings"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {{ x }}\n", '1:4 not valid YAML: a template must stand in quotes: "{{ … }}"'),
        ("? [a]\n: b\n", "1:3 not valid YAML: a key must be text"),
        ("a: !thing 1\n", "1:4 not valid YAML: tag '!thing' is not allowed"),
        ("a: !!set {x}\n", "1:4 not valid YAML: tag 'tag:yaml.org,2002:set' is not allowed"),
        ("[" * 100, "1:65 not valid YAML: nested more than 64 deep"),
        ("a: \x07\n", "1:4 not valid YAML: control characters are not allowed"),
        ("é: \x07\n", "1:4 not valid YAML: control characters are not allowed"),
        ("a: \ud800\n", "1:4 not valid YAML: a character that is half of a pair"),
        ("a: !!int x\n", "1:4 x must be what its tag !!int says"),
        ("x" * (MAX_CHARACTERS + 1), f"1:1 not valid YAML: the file has more than {MAX_CHARACTERS} characters"),
    ],
    ids=range(10),
)
def test_what_cannot_be_read_is_refused_at_its_place(text: str, said: str) -> None:
    assert refused(text) == said
