from __future__ import annotations

import re
from xml.etree import ElementTree

from noetl.playbook import diagram, load
from noetl.playbook.diagram.graph import graph_of
from noetl.playbook.diagram.layout import Link, Size, arrange
from tests.unit.playbook.documents import guide, playbooks, workflow

SVG = "{http://www.w3.org/2000/svg}"


def test_every_playbook_can_be_drawn() -> None:
    for playbook in playbooks():
        picture = ElementTree.fromstring(diagram.svg(playbook))
        texts = {element.text for element in picture.iter(f"{SVG}text")}
        assert set(playbook.steps) <= texts
        assert all(name in diagram.mermaid(playbook) for name in playbook.steps)


def test_a_graph_shows_forks_joins_loops_and_stages() -> None:
    boxes = {box.name: box for box in graph_of(guide("quote")).boxes}
    assert [name for name, box in boxes.items() if box.is_fork] == ["start"]
    assert [name for name, box in boxes.items() if box.is_join] == ["offer"]
    queue = {box.name: box for box in graph_of(guide("work_queue")).boxes}
    assert queue["drain"].is_stage
    assert queue["drain"].lines == ("python → postgres", "↻ cursor ×2: todo")
    assert not any(box.is_join for box in queue.values())
    loop = "{in: [1], iterator: row, spec: {mode: fanout, engine: worker}}"
    (score,) = graph_of(load(workflow(f"- {{step: score, loop: {loop}, tool: {{kind: noop}}}}"))).boxes
    assert score.is_stage
    assert score.lines == ("noop", "↻ fanout ×8: row in [1]")


def test_conditions_are_shortened_and_failures_marked() -> None:
    ways = {way.target: way for way in graph_of(guide("branching")).ways}
    assert (ways["refuse"].kind, ways["refuse"].label) == ("failure", "event.name == 'call.error'")
    assert (ways["review"].kind, ways["approve"].kind) == ("when", "always")
    arc = '{step: s, when: "{{ a_rather_long_name == another_one_like_it }}"}'
    long = load(workflow(f"- {{step: s, tool: {{kind: noop}}, next: {{arcs: [{arc}]}}}}"))
    assert graph_of(long).ways[0].label == "a_rather_long_name == another_one…"


def test_the_final_step_follows_the_leaves() -> None:
    text = workflow(
        "- {step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}", "- {step: b, tool: {kind: noop}}",
        "- {step: z, tool: {kind: noop}}", head="executor: {spec: {final_step: z}}\n",
    )  # fmt: skip
    graph = graph_of(load(text))
    assert [(way.source, way.target) for way in graph.ways if way.kind == "finally"] == [("b", "z")]


def test_text_is_escaped() -> None:
    name = """<b>"&'#|`"""
    text = workflow(f"- {{step: '{name.replace(chr(39), chr(39) * 2)}', desc: <x>, tool: {{kind: noop}}}}")
    playbook = load(text)
    picture = ElementTree.fromstring(diagram.svg(playbook))
    assert name in {element.text for element in picture.iter(f"{SVG}text")}
    assert '"#lt;b#gt;#quot;#amp;\'#35;|#96;<br/>noop"' in diagram.mermaid(playbook)


def test_a_picture_needs_nothing_from_elsewhere() -> None:
    picture = diagram.svg(guide("branching"))
    assert re.findall(r'(?:href|src|url)\s*[=(]\s*["\']?(?!#)[^)"\']+', picture) == []
    assert "<script" not in picture
    assert "prefers-color-scheme: dark" in picture


def test_boxes_never_overlap() -> None:
    sizes = {f"n{index}": Size(60 + 17 * (index % 5), 40) for index in range(40)}
    links = [
        Link(f"n{a}", f"n{b}", Size(50 if (a + b) % 3 else 0, 20))
        for a in range(40)
        for b in (a * 2 + 1, a * 2 + 2, a // 2)
        if b < 40
    ]
    laid = arrange(sizes, links)
    placed = [(laid.centres[name], size) for name, size in sizes.items()]
    for index, ((x, y), size) in enumerate(placed):
        for (other_x, other_y), other in placed[index + 1 :]:
            apart = (
                abs(x - other_x) >= (size.width + other.width) / 2
                or abs(y - other_y) >= (size.height + other.height) / 2
            )
            assert apart


def test_a_long_playbook_is_drawn() -> None:
    steps = [
        f"- {{step: s{index}, tool: {{kind: noop}}, next: {{arcs: [{{step: s{index + 1}}}]}}}}" for index in range(1500)
    ]
    assert diagram.svg(load(workflow(*steps, "- {step: s1500, tool: {kind: noop}}"))).count("<rect") > 1500
