"""From the board to lines: a bounded number of them, whatever there is to show.

A line is a row of pieces, each with a style, so that it can be drawn by whatever draws: rich on a terminal, plain
text in a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from noetl.cli.counting import size
from noetl.cli.live.board import Board, Counter, EndedStep, Run, StepRun
from noetl.cli.output import readable

__all__ = ["MARKS", "Piece", "draw", "duration", "tally"]

MARKS = {"ok": ("✓", "green"), "failed": ("✗", "red"), "skipped": ("-", "yellow")}
_ENDS = {"COMPLETED": ("✓", "green"), "FAILED": ("✗", "red"), "CANCELLED": ("■", "yellow")}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNS = 10
_MOST_LOG = 200
_WIDEST_BAR = 24
_LEAST_BAR = 8
_DEEPEST = 4
_SHORT = 20  # steps that are all listed when a run is over
_LATEST = 3  # steps that are listed of a longer run


class Piece(NamedTuple):
    """A part of a line."""

    text: str
    style: str = ""


Line = list[Piece]


class _Frame(NamedTuple):
    """What a drawing has to fit into, and when it is made."""

    width: int
    now: float

    @property
    def spinner(self) -> str:
        return _SPINNER[int(self.now * _TURNS) % len(_SPINNER)]

    def name(self, text: str) -> str:
        """A name that leaves room for what is said about it."""
        most = max(12, self.width // 3)
        shown = readable(text)
        return shown if len(shown) <= most else f"{shown[: most // 2]}…{shown[-(most - most // 2 - 1) :]}"


def draw(board: Board, *, width: int, height: int, now: float, over: bool = False) -> list[Line]:
    """The board in at most `height` lines: what runs and what failed first, then as much of the rest as fits.

    When all is `over`, nothing runs any more, whatever the board says.
    """
    if board.root is None:
        return []
    frame = _Frame(width, now)
    root = board.root
    running = [] if over else list(_running(root, frame, 1))
    failures = [_ended(step, frame) for step in root.failures]
    room = max(height - 1, 3)
    if over and sum(root.counts.values()) > min(room, _SHORT):
        room = min(room, len(failures) + _LATEST + 1)
    if len(running) + len(failures) > room:
        failures = failures[-max(1, room // 4) :]
        running = _shortened(running, room - len(failures))
    return [_head(root, frame), *_history(root, failures, frame, room - len(running)), *running]


def _head(run: Run, frame: _Frame) -> Line:
    if run.ended is None:
        mark, colour, seconds = frame.spinner, "cyan", frame.now - run.begun
    else:
        (mark, colour), seconds = _ENDS[run.ended], run.ended_after
    line = [Piece(f"{mark} ", colour), Piece(frame.name(run.path or str(run.execution_id)), "bold"),
            Piece(f"  {duration(seconds)}", "dim")]  # fmt: skip
    said = _counts(run)
    return [*line, Piece(f"  {said}", "dim")] if said else line


def _history(run: Run, failures: list[Line], frame: _Frame, room: int) -> Iterator[Line]:
    """What has ended: all of it while there is room, else a count, the failures, and the latest."""
    total = sum(run.counts.values())
    if total <= min(room, len(run.recent)):
        yield from (_ended(step, frame) for step in run.recent)
        return
    latest = [step for step in run.recent if step.state != "failed"][-max(0, room - len(failures) - 1) :]
    latest = latest if room - len(failures) > 1 else []
    if (hidden := total - len(latest) - len(failures)) > 0 and room > len(failures):
        yield [Piece(f"  … {hidden} more ended", "dim")]
    yield from failures
    yield from (_ended(step, frame) for step in latest)


def _ended(step: EndedStep, frame: _Frame) -> Line:
    mark, colour = MARKS[step.state]
    said = tally(step) if step.state != "skipped" else "skipped"
    took = f"  {duration(step.took_ms / 1000)}" if step.state != "skipped" else ""
    line = [Piece(f"  {mark} ", colour), Piece(frame.name(step.name)), Piece(took, "dim")]
    if said:
        line.append(Piece(f"  {said}", "dim"))
    if step.error:
        line.append(Piece(f"  {readable(_headline(step.error), _MOST_LOG)}", "red"))
    return line


def _running(run: Run, frame: _Frame, depth: int) -> Iterator[Line]:
    for step in list(run.steps.values()):
        yield _step(step, frame, depth)
        if step.ui:
            yield [Piece(f"{'  ' * depth}  │ on Spark, see {readable(step.ui, _MOST_LOG)}", "dim")]
        if step.log:
            yield [Piece(f"{'  ' * depth}  │ {readable(step.log.strip(), _MOST_LOG)}", "dim")]
        yield from _calls(step.called, frame, depth + 1)
    yield from _calls(run.called, frame, depth)


def _calls(called: dict[int, Run], frame: _Frame, depth: int) -> Iterator[Line]:
    for run in list(called.values()):
        yield [
            Piece(f"{'  ' * depth}└ ", "dim"),
            Piece(frame.name(run.path)),
            Piece(f"  {_counts(run)}".rstrip(), "dim"),
        ]
        if depth < 2 * _DEEPEST:
            yield from _running(run, frame, depth + 1)


def _step(step: StepRun, frame: _Frame, depth: int) -> Line:
    """A line for a step. Where there is no room for all, its kind, exact numbers and the bar go first."""
    name = [Piece("  " * depth + f"{frame.spinner} ", "cyan"), Piece(frame.name(step.name))]
    kind = [Piece(f"  {step.kind}", "dim")] if step.kind else []
    seconds = frame.now - step.begun
    tries = [Piece(f"  {_attempts(step, frame.now)}", "yellow")] if step.attempt > 1 or step.waiting_until else []
    if step.counter is None:
        return [*name, *kind, Piece(f"  {duration(seconds)}", "dim"), *tries]
    told = [*_told(step.counter, seconds), *tries]
    if (room := frame.width - _length(name, kind, told)) < _LEAST_BAR:
        kind, told = [], [*_told(step.counter, seconds, short=True), *tries]
        room = frame.width - _length(name, told)
    return [*name, *kind, *_bar(step.counter, room), *told]


def _length(*parts: Line) -> int:
    return sum(len(piece.text) for part in parts for piece in part)


def _attempts(step: StepRun, now: float) -> str:
    of = f" of {step.attempts}" if step.attempts else ""
    if step.waiting_until is None:
        return f"attempt {step.attempt}{of}"
    left = max(0.0, step.waiting_until - now)
    return f"attempt {step.attempt}{of} failed, waiting {left:.1f} s"


def _bar(counter: Counter, room: int) -> Line:
    """How much of it is done, as a picture as wide as there is room for."""
    if not counter.total or room < _LEAST_BAR:
        return []
    width = min(_WIDEST_BAR, room - 2)
    full = width * counter.done // counter.total
    return [Piece("  " + "━" * full, "cyan"), Piece("━" * (width - full), "dim")]


def _told(counter: Counter, seconds: float, *, short: bool = False) -> Line:
    """How much of it is done, in numbers."""
    rate = (counter.done - counter.done_before) / seconds if seconds > 0 else 0.0
    rows = (counter.rows - counter.rows_before) / seconds if seconds > 0 else 0.0
    line: Line = []
    of = f"/{counter.total:,}" if counter.total is not None else f" {_word(counter.done, counter.unit)}"
    line.append(Piece(f"  {counter.done:,}{of}"))
    if counter.failed:
        line.append(Piece(f"  {counter.failed:,} failed", "red"))
    line += _rows(counter, short)
    if rate:
        line.append(Piece(f"  {_rate(rows, ' rows', short) if rows else _rate(rate)}", "dim"))
        if counter.total and counter.done < counter.total:
            line.append(Piece(f"  {duration((counter.total - counter.done) / rate)} left", "dim"))
    return line


def _rows(counter: Counter, short: bool) -> Line:
    """What frames have done with their rows."""
    line: Line = []
    if counter.rows:
        line.append(Piece(f"  {_number(counter.rows, short)} {_word(counter.rows, 'row')}", "dim"))
    if counter.rows_failed:
        line.append(Piece(f" ({counter.rows_failed:,} failed)", "red"))
    if counter.bytes:
        line.append(Piece(f"  {size(counter.bytes)}", "dim"))
    if counter.again:
        line.append(Piece(f"  {counter.again:,} run again", "yellow"))
    return line


def _shortened(lines: list[Line], room: int) -> list[Line]:
    if len(lines) <= room:
        return lines
    return [*lines[: max(0, room - 1)], [Piece(f"  … {len(lines) - room + 1} more lines", "dim")]]


def _counts(run: Run) -> str:
    counts = run.counts
    words = (("ok", "done"), ("failed", "failed"), ("skipped", "skipped"))
    return ", ".join(f"{counts[name]:,} {word}" for name, word in words if counts[name])


def _headline(message: str) -> str:
    """The line of a message that says most: the first, but of a traceback the last."""
    lines = message.strip().splitlines() or [""]
    return lines[-1 if lines[0].startswith("Traceback ") else 0]


def tally(step: EndedStep) -> str:
    """What is worth saying about a step besides its time: iterations, failures, attempts."""
    said = []
    if step.counter is not None:
        count = step.counter.done if step.counter.total is None else step.counter.total
        said.append(f"{count} {_word(count, step.counter.unit)}")
        if step.counter.failed:
            said.append(f"{step.counter.failed} failed")
        if step.counter.rows:
            failed = f" ({step.counter.rows_failed:,} failed)" if step.counter.rows_failed else ""
            said.append(f"{step.counter.rows:,} {_word(step.counter.rows, 'row')}{failed}")
        if step.counter.again:
            said.append(f"{step.counter.again:,} run again")
    if step.attempts > 1:
        said.append(f"{step.attempts} attempts")
    return ", ".join(said)


def duration(seconds: float) -> str:
    """A length of time as people say it: `77 ms`, `1.2 s`, `2 min 5 s`, `1 h 3 min`."""
    if seconds < 1:
        return f"{int(seconds * 1000)} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _number(number: float, short: bool) -> str:
    """A whole number; short, as `1.2M`."""
    for scale, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if short and number >= max(scale, 1e4):
            return f"{number / scale:.1f}{sign}" if number < 100 * scale else f"{number / scale:.0f}{sign}"
    return f"{number:,.0f}"


def _rate(rate: float, unit: str = "", short: bool = False) -> str:
    said = _number(rate, short) if rate >= 10 else f"{rate:.1f}" if rate >= 0.1 else f"{rate * 60:.1f}"
    return f"{said}{unit}/{'s' if rate >= 0.1 else 'min'}"


def _word(number: int, word: str) -> str:
    return word if number == 1 else f"{word}s"
