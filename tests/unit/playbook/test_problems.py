from __future__ import annotations

from noetl.playbook.document import Position
from noetl.playbook.problems import Report, closest


def test_a_problem_prints_as_the_reference_says() -> None:
    report = Report("orders.yaml")
    report.unknown("NTL-208", Position(42, 13), "shipp", ["start", "ship"], what="arc target")
    assert [str(problem) for problem in report.problems()] == [
        "orders.yaml:42:13: NTL-208 error: arc target 'shipp' is not known (hint: did you mean 'ship'?)"
    ]


def test_the_same_thing_said_twice_of_one_place_is_one_problem() -> None:
    report = Report("t")
    for _ in range(2):
        report.add("NTL-107", Position(1, 1))
    assert len(report.problems()) == 1


def test_values_are_shown_on_one_line_and_cut() -> None:
    report = Report("t")
    report.add("NTL-103", Position(1, 1), field="apiVersion", value="a\nb\x07" + "c" * 500, allowed="x")
    assert report.problems()[0].message.startswith("apiVersion: 'a b cccc")
    assert len(report.problems()[0].message) < 130


def test_braces_in_a_value_stay_braces() -> None:
    report = Report("t")
    report.add("NTL-402", Position(1, 1), what="tool kind", name="{value!r}", near="{}")
    assert report.problems()[0].message == "tool kind '{value!r}' is not known"


def test_where_nothing_is_near_the_known_names_are_listed() -> None:
    assert closest("zebra", ["start", "ship"]) == ("", "known: 'start', 'ship'")
    assert closest("SHIP", ["start", "ship"]) == ("ship", None)
    assert closest("x", []) == ("", "there is none yet")
