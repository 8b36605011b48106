from __future__ import annotations

import msgspec

from noetl.playbook.document import Document, Output, Position, Positions, Select, pointer
from tests.unit.playbook.documents import guide, playbooks


def test_a_document_survives_json() -> None:
    for playbook in playbooks():
        assert msgspec.json.decode(msgspec.json.encode(playbook), type=Document) == playbook


def test_where_something_was_written_does_not_make_it_different() -> None:
    playbook = guide("hello")
    assert msgspec.structs.replace(playbook, positions=Positions({"": (9, 9, 9)})) == playbook


def test_a_pointer_can_be_continued() -> None:
    assert pointer("workflow", 2, "a/b~c") == "/workflow/2/a~1b~0c"
    assert pointer("/workflow/2", "tool") == "/workflow/2/tool"


def test_a_document_without_positions_still_has_some() -> None:
    assert Positions().find("workflow", 0) == Position(1, 1)


def test_a_step_has_the_last_word_on_storage() -> None:
    step = Output(store="s3", accumulate=False)
    task = Output(store="kv", scope="step", select=(Select(path="a"),), fields={"format": "parquet"})
    assert step.over(task) == Output(
        store="s3", accumulate=False, scope="step", select=(Select(path="a"),), fields={"format": "parquet"}
    )
