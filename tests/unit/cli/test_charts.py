"""Charts: what is drawn is in proportion, and fits."""

from __future__ import annotations

from noetl.cli.charts import Series, bars, columns


def test_bars_are_in_proportion_to_the_largest() -> None:
    lines = bars(["COMPLETED", "FAILED", "RUNNING"], [Series("n", [8, 4, 0])], 40)
    drawn = [line.count("█") for line in lines]
    assert drawn[0] == 2 * drawn[1] > 0
    assert drawn[2] == 0
    assert [line.split()[0] for line in lines] == ["COMPLETED", "FAILED", "RUNNING"]
    assert [line.split()[-1] for line in lines] == ["8", "4", "0"]
    assert max(map(len, lines)) <= 40


def test_what_is_more_than_nothing_is_seen() -> None:
    (large, small) = bars(["a", "b"], [Series("n", [1_000_000, 1])], 60)
    assert "1,000,000" in large
    assert "▏ 1" in small


def test_several_numbers_of_a_thing_stand_below_each_other() -> None:
    lines = bars(["x"], [Series("rows", [2]), Series("failed", [None])], 40)
    assert [line.split()[:2] for line in lines] == [["x", "rows"], ["failed", "-"]]


def test_a_long_name_is_cut() -> None:
    (line,) = bars(["n" * 80], [Series("n", [1.5])], 60)
    assert "…" in line
    assert line.endswith("1.5")


def test_columns_rise_to_the_top_at_the_largest() -> None:
    lines = columns(["Mon", "Tue", "Wed"], [Series("n", [1, 2, 4])], 40)
    assert lines[0].startswith("4 ┤")
    assert lines[0].endswith("█" * 8)
    assert lines[-2].startswith("0 ┤█")
    assert lines[-1].split() == ["Mon", "Wed"]
    assert max(map(len, lines)) <= 40


def test_more_values_than_columns_show_the_highest_of_each_part() -> None:
    lines = columns([str(n) for n in range(1000)], [Series("n", [9 if n == 500 else 1 for n in range(1000)])], 60)
    assert lines[0].count("█") == 1
    assert max(map(len, lines)) <= 60


def test_nothing_at_all_is_flat() -> None:
    assert "█" not in "".join(columns(["a", "b"], [Series("n", [0, None])], 40))
    assert "█" not in "".join(bars(["a"], [Series("n", [None])], 40))
