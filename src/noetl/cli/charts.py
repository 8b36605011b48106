"""Charts of a few rows on a terminal: bars for things, columns over time. Blocks of text, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Series", "bars", "columns"]

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = " ▁▂▃▄▅▆▇█"
_FULL = "█"
_HEIGHT = 8
_LABEL = 32
_STEPS = 8


class Series(NamedTuple):
    """Numbers under one name; None where there is none."""

    name: str
    values: Sequence[float | None]


def bars(labels: Sequence[str], series: Sequence[Series], width: int) -> list[str]:
    """A line for each label and series. All bars have one scale, and a negative number has no bar."""
    names = [one.name for one in series] if len(series) > 1 else [""]
    label_width = min(_LABEL, max((len(label) for label in labels), default=0))
    name_width = max(map(len, names))
    shown = [[_number(value) for value in one.values] for one in series]
    room = max(8, width - label_width - name_width - max((len(text) for one in shown for text in one), default=0) - 4)
    most = max((value for one in series for value in one.values if value is not None), default=0)
    lines = []
    for row, label in enumerate(labels):
        for place, one in enumerate(series):
            head = _cut(label, label_width) if place == 0 else ""
            bar = _bar(one.values[row], most, room)
            lines.append(f"{head:<{label_width}} {names[place]:<{name_width}} {bar} {shown[place][row]}".rstrip())
    return lines


def columns(labels: Sequence[str], series: Sequence[Series], width: int) -> list[str]:
    """One picture for each series, from the first label on the left to the last on the right."""
    lines: list[str] = []
    for one in series:
        values = [max(value or 0.0, 0.0) for value in one.values]
        most = max(values, default=0.0)
        top, room = _number(most), width - len(_number(most)) - 3
        drawn = _spread(values, max(8, room))
        lines += [one.name] if len(series) > 1 else []
        for level in range(_HEIGHT, 0, -1):
            axis = top if level == _HEIGHT else "0" if level == 1 else ""
            lines.append(f"{axis:>{len(top)}} ┤{''.join(_cell(value, most, level) for value in drawn)}".rstrip())
        gap = max(1, len(drawn) - len(labels[0]) - len(labels[-1])) if labels else 0
        below = f"{labels[0]}{' ' * gap}{labels[-1]}" if len(labels) > 1 else "".join(labels)
        lines.append(f"{' ' * (len(top) + 2)}{below}")
    return lines


def _bar(value: float | None, most: float, room: int) -> str:
    eighths = round((value or 0) / most * room * _STEPS) if most > 0 else 0
    eighths = max(eighths, 1 if value and value > 0 else 0)
    return _FULL * (eighths // _STEPS) + _EIGHTHS[eighths % _STEPS].strip()


def _spread(values: Sequence[float], room: int) -> list[float]:
    """As many columns as there is room for: several values share one, which shows the highest, or each has several."""
    if len(values) > room:
        return [max(values[at * len(values) // room : (at + 1) * len(values) // room]) for at in range(room)]
    each = max(1, min(room // max(len(values), 1), _STEPS))
    return [value for value in values for _ in range(each)]


def _cell(value: float, most: float, level: int) -> str:
    filled = value / most * _HEIGHT * _STEPS if most > 0 else 0
    within = round(filled) - (level - 1) * _STEPS
    if level == 1 and value > 0:
        within = max(within, 1)
    return _LEVELS[max(0, min(within, _STEPS))]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
