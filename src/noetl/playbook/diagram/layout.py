"""Where everything goes: layers from top to bottom, few crossings, straight lines where possible.

The classic way (Sugiyama): break cycles, put each box one layer below what leads to it, give long ways a
point in every layer they cross, order each layer by its neighbours, then align. The label of a way is a
point with a width, so labels never cover each other or a box.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Edge", "Laid", "Link", "Size", "arrange"]

_GAP_X = 28.0
_SWEEPS = 8
_PULLS = 16
_STRAIGHT = 6.0


class Size(NamedTuple):
    """How much room something takes."""

    width: float
    height: float


class Link(NamedTuple):
    """A way between two boxes, and the room its label takes."""

    source: str
    target: str
    label: Size


class Edge(NamedTuple):
    """A way as it runs: points from above downwards, the label's middle, and whether it leads back up."""

    points: tuple[tuple[float, float], ...]
    label: tuple[float, float] | None
    is_back: bool


class Laid(NamedTuple):
    """The middle of each box, each way in the order it was given, and the room it all takes."""

    centres: dict[str, tuple[float, float]]
    edges: tuple[Edge, ...]
    size: Size


Point = str | tuple[int, int]
"""A box by its name, or the point of way `n` in layer `m`."""


def arrange(sizes: Mapping[str, Size], links: Sequence[Link]) -> Laid:
    """Place boxes, the first of which is where everything begins."""
    back = _back_links(list(sizes), links)
    layers = _layers(list(sizes), [link for index, link in enumerate(links) if index not in back])
    chains = {index: _chain(index, link, layers) for index, link in enumerate(links) if index not in back}
    rows = _rows(layers, chains)
    above, below = _neighbours(chains)
    _order(rows, above, below)
    width = _widths(sizes, links, chains)
    centres_x = _align(rows, width, above, below)
    centres_y, height = _heights(rows, sizes, links, chains)
    left = min((centres_x[point] - width[point] / 2 for row in rows for point in row), default=0.0)
    right = max((centres_x[point] + width[point] / 2 for row in rows for point in row), default=0.0)
    places = {point: (centres_x[point] - left, centres_y[level]) for level, row in enumerate(rows) for point in row}
    boxes = {name: places[name] for name in sizes}
    lanes = _Lanes(right - left)
    edges = tuple(
        lanes.edge(boxes, sizes, link) if index in back else _edge(places, sizes, link, chains[index])
        for index, link in enumerate(links)
    )
    return Laid(boxes, edges, Size(lanes.width, height))


# --- Layers -----------------------------------------------------------------------------------------------


def _back_links(names: Sequence[str], links: Sequence[Link]) -> set[int]:
    """Links that lead back to where the walk came from, and loops of one box."""
    outgoing: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for index, link in enumerate(links):
        outgoing[link.source].append((index, link.target))
    back: set[int] = set()
    done: set[str] = set()
    for root in names:
        path: dict[str, None] = {}
        waiting = [(root, iter(outgoing[root]))] if root not in done else []
        path.update(dict.fromkeys(name for name, _ in waiting))
        while waiting:
            name, rest = waiting[-1]
            index, target = next(rest, (-1, ""))
            if index < 0:
                waiting.pop()
                path.pop(name)
                done.add(name)
            elif target in path:
                back.add(index)
            elif target not in done:
                waiting.append((target, iter(outgoing[target])))
                path[target] = None
    return back


def _layers(names: Sequence[str], links: Sequence[Link]) -> dict[str, int]:
    """Boxes on even layers, each below everything that leads to it; labels go between."""
    incoming: dict[str, int] = dict.fromkeys(names, 0)
    outgoing: dict[str, list[str]] = defaultdict(list)
    for link in links:
        incoming[link.target] += 1
        outgoing[link.source].append(link.target)
    layers = dict.fromkeys(names, 0)
    ready = [name for name in names if incoming[name] == 0]
    while ready:
        name = ready.pop(0)
        for target in outgoing[name]:
            layers[target] = max(layers[target], layers[name] + 2)
            incoming[target] -= 1
            if incoming[target] == 0:
                ready.append(target)
    return layers


def _chain(index: int, link: Link, layers: Mapping[str, int]) -> list[Point]:
    """The points of a way from box to box, one in each layer between."""
    between: list[Point] = [(index, level) for level in range(layers[link.source] + 1, layers[link.target])]
    return [link.source, *between, link.target]


def _rows(layers: Mapping[str, int], chains: Mapping[int, list[Point]]) -> list[list[Point]]:
    rows: list[list[Point]] = [[] for _ in range(max(layers.values(), default=0) + 1)]
    for name, level in layers.items():
        rows[level].append(name)
    for chain in chains.values():
        for point in chain[1:-1]:
            rows[point[1]].append(point)  # type: ignore[index]  # between two boxes there are only tuples
    return rows


def _neighbours(chains: Mapping[int, list[Point]]) -> tuple[dict[Point, list[Point]], dict[Point, list[Point]]]:
    above: dict[Point, list[Point]] = defaultdict(list)
    below: dict[Point, list[Point]] = defaultdict(list)
    for chain in chains.values():
        for upper, lower in pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    return above, below


def _order(rows: list[list[Point]], above: Mapping[Point, list[Point]], below: Mapping[Point, list[Point]]) -> None:
    """Sort each row by the average place of its neighbours, down and up in turn."""
    place = {point: float(index) for row in rows for index, point in enumerate(row)}

    def sweep(order: Iterable[list[Point]], near: Callable[[Point], list[Point]]) -> None:
        for row in order:
            key = {
                point: sum(place[other] for other in near(point)) / len(near(point)) if near(point) else place[point]
                for point in row
            }
            row.sort(key=key.__getitem__)
            place.update({point: float(index) for index, point in enumerate(row)})

    for turn in range(_SWEEPS):
        if turn % 2 == 0:
            sweep(rows[1:], lambda point: above.get(point, []))
        else:
            sweep(reversed(rows[:-1]), lambda point: below.get(point, []))


# --- Coordinates ------------------------------------------------------------------------------------------


def _widths(sizes: Mapping[str, Size], links: Sequence[Link], chains: Mapping[int, list[Point]]) -> dict[Point, float]:
    width: dict[Point, float] = {name: size.width for name, size in sizes.items()}
    for index, chain in chains.items():
        for position, point in enumerate(chain[1:-1]):
            width[point] = max(links[index].label.width if position == 0 else 0.0, 4.0)
    return width


def _align(
    rows: Sequence[Sequence[Point]],
    width: Mapping[Point, float],
    above: Mapping[Point, list[Point]],
    below: Mapping[Point, list[Point]],
) -> dict[Point, float]:
    """Pull everything towards its neighbours, as far as the row allows."""
    x: dict[Point, float] = {}
    for row in rows:
        cursor = 0.0
        for point in row:
            x[point] = cursor + width[point] / 2
            cursor += width[point] + _GAP_X
        for point in row:
            x[point] -= (cursor - _GAP_X) / 2
    for turn in range(_PULLS):
        near = above if turn % 2 == 0 else below
        for row in rows if turn % 2 == 0 else list(reversed(rows)):
            wished = [_middle(x, point, near.get(point, ())) for point in row]
            weights = [_STRAIGHT if isinstance(point, tuple) else 1.0 for point in row]
            x.update(zip(row, _spread([width[point] for point in row], wished, weights), strict=True))
    return x


def _middle(x: Mapping[Point, float], point: Point, near: Sequence[Point]) -> float:
    """Where a point would like to be: between its neighbours, and straight below its own line."""
    if not near:
        return x[point]
    pulls = [_STRAIGHT if isinstance(point, tuple) and isinstance(other, tuple) else 1.0 for other in near]
    return sum(x[other] * pull for other, pull in zip(near, pulls, strict=True)) / sum(pulls)


def _spread(widths: Sequence[float], wished: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Places that keep order and distance and are together as near as possible to what is wished.

    Things that would overlap become one block, which goes where its members on average want to be.
    """
    blocks: list[tuple[float, list[tuple[float, float]]]] = []
    offset = 0.0
    offsets: list[float] = []
    for index, width in enumerate(widths):
        offset += (widths[index - 1] / 2 + _GAP_X + width / 2) if index else 0.0
        offsets.append(offset)
        base = wished[index] - offset
        members = [(base, weights[index])]
        while blocks and blocks[-1][0] > base:
            members = blocks.pop()[1] + members
            base = sum(place * weight for place, weight in members) / sum(weight for _, weight in members)
        blocks.append((base, members))
    bases = [base for base, members in blocks for _ in members]
    return [base + offset for base, offset in zip(bases, offsets, strict=True)]


def _heights(
    rows: Sequence[Sequence[Point]], sizes: Mapping[str, Size], links: Sequence[Link], chains: Mapping[int, list[Point]]
) -> tuple[list[float], float]:
    first = {chain[1]: index for index, chain in chains.items() if len(chain) > 2}
    middles: list[float] = []
    y = 0.0
    for level, row in enumerate(rows):
        if level % 2 == 0:
            height = max((sizes[point].height for point in row if isinstance(point, str)), default=0.0)
        else:
            labels = (links[first[point]].label.height for point in row if point in first)
            tallest = max(labels, default=0.0)
            height = tallest + 40.0 if tallest else 34.0
        middles.append(y + height / 2)
        y += height
    return middles, y


def _edge(
    places: Mapping[Point, tuple[float, float]], sizes: Mapping[str, Size], link: Link, chain: list[Point]
) -> Edge:
    points = [places[point] for point in chain]
    top, bottom = points[0], points[-1]
    points[0] = (top[0], top[1] + sizes[link.source].height / 2)
    points[-1] = (bottom[0], bottom[1] - sizes[link.target].height / 2)
    return Edge(tuple(points), points[1] if link.label.width else None, is_back=False)


class _Lanes:
    """The room at the right where ways back up run, each in its own lane."""

    def __init__(self, width: float) -> None:
        self.width = width

    def edge(self, boxes: Mapping[str, tuple[float, float]], sizes: Mapping[str, Size], link: Link) -> Edge:
        (from_x, from_y), (to_x, to_y) = boxes[link.source], boxes[link.target]
        source, target = sizes[link.source], sizes[link.target]
        lane = self.width + 24.0
        self.width = lane + link.label.width + (12.0 if link.label.width else 0.0)
        low, high = from_y + source.height / 2, to_y - target.height / 2
        start, end = from_x + source.width / 4, to_x + target.width / 4
        points = ((start, low), (start, low + 11), (lane, low + 11), (lane, high - 11), (end, high - 11), (end, high))
        label = (lane + 8 + link.label.width / 2, (low + high) / 2) if link.label.width else None
        return Edge(points, label, is_back=True)
