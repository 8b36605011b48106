"""The playbooks that are run: one maker for each thing the language can do, and the examples of its reference.

Each is small, and made so that nothing of it depends on who comes first, unless it says so.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["FAMILIES", "VARIANTS", "Case", "case_of"]

VARIANTS = 6
_GUIDE = Path(__file__).parents[2] / "unit" / "playbook" / "guide"
_EXAMPLES = ("hello", "branching", "quote", "letters", "unsteady", "squares")
_DAY = "24h"
Json = dict[str, Any]
_Maker = Callable[[random.Random], "Case"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A document, what it calls, and what may be expected of it."""

    document: str
    called: tuple[str, ...] = ()
    workload: Json = {}
    exact: bool = True
    """Result and effects are the same whatever happens; False where it matters who comes first."""


def _playbook(name: str, steps: list[Json], **more: Any) -> str:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"sim/{name}"}}
    return json.dumps({**head, **more, "workflow": steps})


def _task(code: str, /, **given: Any) -> Json:
    return {"kind": "python", "input": given, "code": code}


def _step(name: str, tool: Any, *arcs: Json | str, mode: str = "exclusive", **more: Any) -> Json:
    found = [{"step": arc} if isinstance(arc, str) else arc for arc in arcs]
    routed = {"next": {"spec": {"mode": mode}, "arcs": found}} if found else {}
    return {"step": name, "tool": tool, **routed, **more}


def _value(expression: str) -> str:
    return "{{ " + expression + " }}"


def _arc(step: str, when: str, **more: Any) -> Json:
    return {"step": step, "when": _value(when), **more}


def _call(path: str, **given: Any) -> Json:
    return {"kind": "playbook", "path": f"sim/{path}", "input": given, "timeout": _DAY}


def _rules(*rules: Json) -> Json:
    return {"spec": {"policy": {"rules": list(rules)}}}


def _rule(when: str, **then: Any) -> Json:
    return {"when": _value(when), "then": then}


_FAILED = "event.name == 'call.error'"
_UNSTEADY = "if attempt < {tries}:\n    raise ConnectionError('not ready')\nresult = {{'tries': attempt}}"


def _chain(chance: random.Random) -> Case:
    count = chance.randint(2, 5)
    steps = [_step("s0", _task("result = {'n': 1}"), "s1", set={"ctx.begun": "{{ s0.n }}"})]
    for number in range(1, count):
        following = [f"s{number + 1}"] if number + 1 < count else []
        before = _value(f"s{number - 1}.n")
        steps.append(_step(f"s{number}", _task("result = {'n': n * 2}", n=before), *following))
    return Case(document=_playbook("chain", steps))


def _handled(chance: random.Random) -> Case:
    """A step that fails or not, and somebody who looks after that."""
    fails = chance.random() < 0.7
    code = "raise ValueError('no')" if fails else "result = {'fine': True}"
    steps = [
        _step("start", {"kind": "noop", "result": {"ready": True}}, "work"),
        _step("work", _task(code), _arc("mend", _FAILED, set={"ctx.why": "{{ output.error.message }}"}), "go"),
        _step("mend", _task("result = {'mended': why}", why="{{ ctx.why }}"), "go"),
        _step("go", _task("result = {'gone': True}")),
    ]
    return Case(document=_playbook("handled", steps))


def _unhandled(chance: random.Random) -> Case:
    """A step fails and nobody looks after it; sometimes a final step tidies up."""
    final = {"executor": {"spec": {"final_step": "tidy"}}} if chance.random() < 0.7 else {}
    steps = [
        _step("start", _task("result = {'n': 1}"), "work"),
        _step("work", _task("raise ValueError('no')"), "never"),
        _step("never", _task("result = {}")),
        _step("tidy", _task("result = {'tidy': True}")),
    ]
    return Case(document=_playbook("unhandled", steps, **final))


def _final(chance: random.Random) -> Case:
    """Leaves that end in any order; the final step comes after all of them, once."""
    count = chance.randint(1, 3)
    leaves = [f"leaf{number}" for number in range(count)]
    steps = [_step("start", _task("result = {'n': 1}"), *leaves, mode="inclusive")]
    steps += [_step(leaf, _task(f"result = {{'leaf': {place}}}")) for place, leaf in enumerate(leaves)]
    body: Any = _task("result = {'all': names}", names=[_value(f"{leaf}.leaf") for leaf in leaves])
    loop: Json = {}
    if chance.random() < 0.4:
        body = _task("result = {'item': item}", item="{{ iter.item }}")
        loop = {"loop": _loop([1, 2, 3], mode="parallel", width=2)}
    steps.append(_step("last", body, **loop))
    return Case(document=_playbook("final", steps, executor={"spec": {"final_step": "last"}}))


def _fan(chance: random.Random) -> Case:
    """Branches of different lengths that meet again, perhaps with a fan inside one of them."""
    width = chance.randint(2, 3)
    steps = [_step("start", _task("result = {}"), *[f"b{place}s0" for place in range(width)], mode="inclusive")]
    for place in range(width):
        length = chance.randint(1, 2)
        for number in range(length):
            name, last = f"b{place}s{number}", number + 1 == length
            code = f"result = {{'at': '{name}'}}"
            steps.append(_step(name, _task(code), "join" if last else f"b{place}s{number + 1}"))
    if chance.random() < 0.5:
        inner = steps[1]
        inner["next"] = {"spec": {"mode": "inclusive"}, "arcs": [{"step": "x"}, {"step": "y"}]}
        steps += [_step(name, _task(f"result = {{'at': '{name}'}}"), "meet") for name in ("x", "y")]
        target = "b0s1" if any(step["step"] == "b0s1" for step in steps) else "join"
        steps.append(_step("meet", _task("result = {'met': 2}"), target))
    seen = [_value(f"b{place}s0.at") for place in range(width)]
    steps.append(_step("join", _task("result = {'seen': seen}", seen=seen), "after"))
    steps.append(_step("after", _task("result = {'joined': n}", n="{{ join.seen | length }}")))
    return Case(document=_playbook("fan", steps))


def _race(chance: random.Random) -> Case:
    """One branch fails for good while others are under way: how far they come depends on who is first."""
    steps = [
        _step("start", _task("result = {}"), "bad", "good", "slow", mode="inclusive"),
        _step("bad", _task("raise ValueError('no')"), "after"),
        _step("good", _task("result = {'n': 1}"), "more"),
        _step("more", _task("result = {'n': 2}"), "after"),
        _step("slow", _task("result = {'at': item}", item="{{ iter.item }}"), "after",
              loop=_loop([1, 2, 3], mode="parallel", width=chance.randint(1, 2))),
        _step("after", _task("result = {}")),
    ]  # fmt: skip
    return Case(document=_playbook("race", steps), exact=False)


def _reentry(chance: random.Random) -> Case:
    rounds = chance.randint(2, 4)
    loops = chance.random() < 0.5
    again = f"(ctx.round | int) < {rounds}"
    body: Json = {"loop": _loop([1, 2], mode="parallel", width=2)} if loops else {}
    item = "{{ iter.item }}" if loops else 0
    steps = [
        _step("start", {"kind": "noop"}, "work", set={"ctx.round": 0}),
        _step("work", _task("result = {'did': item}", item=item), "look", **body),
        _step("look", _task("result = {'round': n + 1}", n="{{ ctx.round | int }}"),
              _arc("work", again), "end", set={"ctx.round": "{{ look.round }}"}),
        _step("end", _task("result = {'rounds': n}", n="{{ ctx.round }}")),
    ]  # fmt: skip
    return Case(document=_playbook("reentry", steps))


def _loop(items: list[Any], *, mode: str = "sequential", width: int = 1, failure: str = "fail_at_end") -> Json:
    spec: Json = {"mode": mode, "policy": {"failure": {"mode": failure}}}
    if mode == "parallel":
        spec["max_in_flight"] = width
    return {"in": items, "iterator": "item", "spec": spec}


_ITEM = "if item < 0:\n    raise ValueError('negative')\nresult = {'twice': item * 2}"


def _looping(chance: random.Random, *, mode: str, failure: str, name: str, exact: bool = True) -> Case:
    items = [chance.choice((1, 2, 3, 4, -1)) for _ in range(chance.randint(0, 6))]
    steps = [
        _step("start", {"kind": "noop"}, "each"),
        _step("each", _task(_ITEM, item="{{ iter.item }}"), _arc("sum", "event.name == 'loop.done'"),
              loop=_loop(items, mode=mode, width=chance.randint(2, 4), failure=failure),
              set={"ctx.stats": "{{ each.stats }}"}),
        _step("sum", _task("result = {'stats': stats, 'rows': rows}", stats="{{ ctx.stats }}",
                           rows="{{ each.results }}")),
    ]  # fmt: skip
    return Case(document=_playbook(name, steps), exact=exact)


def _accumulating(chance: random.Random) -> Case:
    """Iterations that read what the ones before have written."""
    steps = [
        _step("start", {"kind": "noop"}, "each", set={"ctx.sum": 0}),
        _step("each", [
            {"name": "add", **_task("result = {'sum': before + item}", before="{{ ctx.sum }}", item="{{ iter.item }}"),
             "set": {"ctx.sum": "{{ output.data.sum }}"}},
            {"name": "note", **_task("result = {'noted': n}", n="{{ ctx.sum }}")},
        ], "end", loop=_loop(list(range(1, chance.randint(2, 5))))),
        _step("end", _task("result = {'sum': n}", n="{{ ctx.sum }}")),
    ]  # fmt: skip
    return Case(document=_playbook("accumulating", steps))


def _pipeline(chance: random.Random) -> Case:
    """Retries, jumps and breaks."""
    tries, rounds = chance.randint(1, 3), chance.randint(1, 3)
    retry = _rule("output.status == 'error' and output.error.retryable", do="retry", attempts=4, delay=0.5)
    again = _rule(f"(iter.n | int) < {rounds}", do="jump", to="work", set={"iter.n": "{{ (iter.n | int) + 1 }}"})
    tasks = [
        {"name": "begin", "kind": "noop", "set": {"iter.n": 1}},
        {"name": "work", **_task(_UNSTEADY.format(tries=tries), attempt="{{ _attempt }}"), **_rules(retry)},
        {"name": "turn", **_task("result = {'n': n}", n="{{ iter.n }}"), **_rules(again)},
        {"name": "close", **_task("result = {'n': n}", n="{{ turn.n }}")},
    ]
    if chance.random() < 0.3:
        tasks[2] |= _rules(again, _rule("true", do="break"))
    steps = [_step("start", tasks, _arc("mend", _FAILED), "end"), _step("mend", _task("result = {'mended': True}")),
             _step("end", _task("result = {'was': was}", was="{{ start.n }}"))]  # fmt: skip
    return Case(document=_playbook("pipeline", steps))


def _giving_up(chance: random.Random) -> Case:
    """A task that is tried until its attempts are used up."""
    retry = _rule("output.status == 'error'", do="retry", attempts=chance.randint(1, 3), backoff="linear", delay=1)
    work = {"name": "work", **_task("raise ConnectionError('down')"), **_rules(retry)}
    steps = [_step("start", [work], _arc("mend", _FAILED), "never"), _step("never", _task("result = {}")),
             _step("mend", _task("result = {'failed': failed}", failed="{{ start.failed_task }}"))]  # fmt: skip
    return Case(document=_playbook("giving_up", steps))


def _leaf(chance: random.Random, name: str = "leaf") -> str:
    """What others call: one or two steps, which fail for a negative number."""
    steps = [_step("begin", _task(_ITEM, item="{{ n }}"))]
    if chance.random() < 0.5:
        steps[0] = _step("begin", _task(_ITEM, item="{{ n }}"), "more")
        steps.append(_step("more", _task("result = {'twice': t, 'more': True}", t="{{ begin.twice }}")))
    return _playbook(name, steps, workload={"n": 0})


def _calling(chance: random.Random) -> Case:
    """A call that is all there is to a step, of a child that may fail."""
    given = chance.choice((3, 4, -1))
    call = _call("leaf", n=given)
    if chance.random() < 0.4:
        call["return_step"] = "begin"
    steps = [
        _step("start", _task("result = {}"), "call"),
        _step("call", call, _arc("mend", _FAILED), "end"),
        _step("mend", _task("result = {'mended': True}"), "end"),
        _step("end", _task("result = {'child': twice}", twice="{{ call.twice | default('none') }}")),
    ]
    return Case(document=_playbook("calling", steps), called=(_leaf(chance),))


def _calling_inside(chance: random.Random) -> Case:
    """Calls among the tasks of a pipeline, with effects before, between and after."""
    given = chance.choice((3, 4, -1))
    go_on = _rules(_rule("output.status == 'error'", do="continue"))
    tasks = [
        {"name": "before", **_task("result = {'n': 1}")},
        {"name": "call", **_call("leaf", n=given), **go_on},
        {"name": "after", **_task("result = {'n': n}", n="{{ call.twice | default(0) }}")},
    ]
    if chance.random() < 0.6:
        tasks.append({"name": "second", **_call("leaf", n=2)})
        tasks.append({"name": "close", **_task("result = {'n': n}", n="{{ second.twice }}")})
    if chance.random() < 0.3:
        tasks[1] |= _rules(_rule("output.status == 'error'", do="retry", attempts=2),
                           _rule("output.status == 'error'", do="fail"))  # fmt: skip
    steps = [_step("start", tasks, _arc("mend", _FAILED), "end"), _step("mend", _task("result = {'mended': True}")),
             _step("end", _task("result = {'n': n}", n="{{ start.n }}"))]  # fmt: skip
    return Case(document=_playbook("calling_inside", steps), called=(_leaf(chance),))


def _calling_each(chance: random.Random) -> Case:
    """A loop of calls, alone or inside a pipeline."""
    items = [chance.choice((1, 2, 3, -1)) for _ in range(chance.randint(1, 4))]
    body: Any = _call("leaf", n="{{ iter.item }}")
    if chance.random() < 0.5:
        body = [
            {"name": "ask", **_task("result = {'n': item}", item="{{ iter.item }}")},
            {"name": "call", **_call("leaf", n="{{ ask.n }}")},
            {"name": "note", **_task("result = {'got': t}", t="{{ call.twice }}")},
        ]
    mode = chance.choice(("sequential", "parallel"))
    steps = [
        _step("each", body, _arc("end", "event.name == 'loop.done'"),
              loop=_loop(items, mode=mode, width=chance.randint(2, 3), failure="best_effort")),
        _step("end", _task("result = {'stats': stats}", stats="{{ each.stats }}")),
    ]  # fmt: skip
    return Case(document=_playbook("calling_each", steps), called=(_leaf(chance),))


def _nested(chance: random.Random) -> Case:
    """Two levels: a call of what calls."""
    middle = _playbook(
        "middle",
        [
            _step("begin", [{"name": "ask", **_task("result = {'n': n}", n="{{ n }}")},
                            {"name": "call", **_call("leaf", n="{{ ask.n }}")}], "end"),
            _step("end", _task("result = {'twice': t}", t="{{ begin.twice }}")),
        ],
        workload={"n": 0},
    )  # fmt: skip
    wide = chance.random() < 0.5
    given: Any = "{{ iter.item }}" if wide else 5
    loop: Json = {"loop": _loop([1, 2], mode="parallel", width=2)} if wide else {}
    steps = [_step("top", _call("middle", n=given), "end", **loop), _step("end", _task("result = {'done': True}"))]
    return Case(document=_playbook("nested", steps), called=(_leaf(chance), middle))


def _timed(chance: random.Random) -> Case:
    """Limits on a step, on a task and on a call: a tool that hangs runs into them."""
    slow = {**_task("result = {'n': 1}"), "spec": {"timeout": "60s"}}
    call = {**_call("leaf", n=2), "timeout": "90s"}
    steps = [
        _step("start", _task("result = {}"), _arc("mend", _FAILED), "task", spec={"timeout": "45s"}),
        _step("task", slow, _arc("mend", _FAILED), "call"),
        _step("call", [{"name": "call", **call}, {"name": "end", **_task("result = {}")}], _arc("mend", _FAILED),
              spec={"timeout": "80s"} if chance.random() < 0.5 else {}),
        _step("mend", _task("result = {'mended': True}")),
    ]  # fmt: skip
    return Case(document=_playbook("timed", steps), called=(_leaf(chance),), exact=False)


def _large(chance: random.Random) -> Case:
    """Results that do not fit an event, of a step, of iterations and of a loop; a condition reads what was left out."""
    size, each = chance.choice((30_000, 70_000)), chance.choice((9_000, 70_000))
    read = _arc("end", f"start.text | length == {size} and 'results' in each")
    steps = [
        _step("start", _task(f"result = {{'text': 'x' * {size}, 'n': 3}}"), "each", set={"ctx.n": "{{ start.n }}"}),
        _step("each", _task(f"result = {{'text': 'y' * {each}, 'at': at}}", at="{{ loop_index }}"), read,
              loop=_loop([1, 2, 3, 4, 5], mode="parallel", width=2)),
        _step("end", _task("result = {'sizes': [len(r['text']) for r in rows], 'all': len(text)}",
                           rows="{{ each.results }}", text="{{ start.text }}")),
    ]  # fmt: skip
    return Case(document=_playbook("large", steps))


def _skipping(chance: random.Random) -> Case:
    """Steps that are not admitted, and an empty loop."""
    admit = {"policy": {"admit": {"rules": [{"when": "{{ ctx.wanted }}", "then": {"allow": True}},
                                            {"else": {"then": {"allow": False}}}]}}}  # fmt: skip
    steps = [
        _step("start", _task("result = {}"), "maybe", "empty", mode="inclusive",
              set={"ctx.wanted": chance.random() < 0.5}),
        _step("maybe", _task("result = {'ran': True}"), "join", spec=admit),
        _step("empty", _task("result = {}"), "join", loop=_loop([])),
        _step("join", _task("result = {'count': n}", n="{{ empty.count }}")),
    ]  # fmt: skip
    return Case(document=_playbook("skipping", steps))


def _example(name: str) -> _Maker:
    def make(chance: random.Random) -> Case:
        text = (_GUIDE / f"{name}.yaml").read_text().replace("timeout: 60", f"timeout: {_DAY}")
        *called, document = text.split("\n---\n")
        workload = {"amount": chance.choice((120, 50, -1))} if name == "branching" else {}
        return Case(document=document, called=tuple(called), workload=workload)

    return make


FAMILIES: dict[str, _Maker] = {
    "chain": _chain,
    "handled": _handled,
    "unhandled": _unhandled,
    "final": _final,
    "fan": _fan,
    "race": _race,
    "reentry": _reentry,
    "sequential": lambda chance: _looping(
        chance, mode="sequential", failure=chance.choice(("fail_at_end", "fail_fast", "best_effort")), name="sequential"
    ),
    "parallel": lambda chance: _looping(
        chance, mode="parallel", failure=chance.choice(("fail_at_end", "best_effort")), name="parallel"
    ),
    "fast": lambda chance: _looping(chance, mode="parallel", failure="fail_fast", name="fast", exact=False),
    "accumulating": _accumulating,
    "pipeline": _pipeline,
    "giving_up": _giving_up,
    "calling": _calling,
    "calling_inside": _calling_inside,
    "calling_each": _calling_each,
    "nested": _nested,
    "timed": _timed,
    "large": _large,
    "skipping": _skipping,
    **{name: _example(name) for name in _EXAMPLES},
}


@functools.cache
def case_of(name: str, variant: int) -> Case:
    """One of the documents."""
    return FAMILIES[name](random.Random(f"{name}/{variant}"))
