"""Tokens on their way: who enters, who waits, who is absorbed, when a join fires.

The rules are those of the language reference, section 3. Whether a token can still reach a step is a
question about the document alone, so the answers are kept per document.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from noetl.engine.context import names_used
from noetl.engine.control import Control, Move, Token, apply_moves
from noetl.playbook.document import Playbook, Step

__all__ = ["Graph", "Traffic"]


class Graph:
    """What a document alone says: which step can reach which, whatever the conditions, and what each looks up."""

    def __init__(self, playbook: Playbook) -> None:
        self.order = {name: place for place, name in enumerate(playbook.steps)}
        self._targets = {
            name: tuple(arc.step for arc in step.router.arcs if arc.step in playbook.steps) if step.router else ()
            for name, step in playbook.steps.items()
        }
        self.reaches = cache(self._reaches)
        self._playbook = playbook
        self._names: dict[str, frozenset[str]] = {}

    def names_used(self, step: Step) -> frozenset[str]:
        """The names that a step's tasks may look up; found once per document."""
        if step.name not in self._names:
            self._names[step.name] = names_used(self._playbook, step)
        return self._names[step.name]

    def targets(self, step: str) -> tuple[str, ...]:
        """The steps that arcs lead to from here."""
        return self._targets.get(step, ())

    def _reaches(self, start: str, goal: str, avoid: str) -> bool:
        """Is there a path of at least one arc from `start` to `goal` that does not touch `avoid`?"""
        if start == avoid:
            return False
        seen: set[str] = set()
        frontier = list(self._targets.get(start, ()))
        while frontier:
            step = frontier.pop()
            if step == goal:
                return True
            if step != avoid and step not in seen:
                seen.add(step)
                frontier += self._targets[step]
        return False


class Traffic:
    """Moves tokens, remembering every move for the log."""

    def __init__(self, control: Control, graph: Graph) -> None:
        self._control = control
        self._graph = graph
        self.moves: list[Move] = []
        self._arriving: dict[str, Token] = {}

    def take_moves(self) -> list[Move]:
        """The moves since this was last asked."""
        moves, self.moves = self.moves, []
        return moves

    def start(self, step: str, sender: str | None = None) -> str:
        """Put the first token on its step; in a fork another step may have sent it."""
        name = self._new_name()
        self._do(Move(op="enter", token=name, step=step, sender=sender))
        return name

    def send(self, token_name: str, targets: Sequence[str]) -> None:
        """A step has ended and its token goes on along these arcs; two or more open a group."""
        token = self._control.tokens[token_name]
        groups = token.groups
        if len(targets) > 1:
            group = f"g{self._control.next_number}"
            self._do(Move(op="open", group=group, origin=token.step))
            groups = (*groups, group)
        self._do(Move(op="leave", token=token_name))
        for target in targets:
            name = f"a{len(self._arriving)}.{self._control.next_number}"
            self._arriving[name] = Token(target, groups, "arriving", token.step)

    def leave(self, token_name: str) -> None:
        """A branch ends here."""
        self._do(Move(op="leave", token=token_name))

    def drop_waiting(self, not_begun: Sequence[str]) -> None:
        """After an unhandled failure nothing new starts: tokens that wait or have not begun are gone."""
        self._arriving.clear()
        parked = [name for name, token in self._control.tokens.items() if token.state == "parked"]
        for name in [*parked, *not_begun]:
            self._do(Move(op="leave", token=name))

    def settle(self) -> list[str]:
        """Let everybody enter who may; returns the names of tokens that now stand on their step."""
        if len(self._arriving) == 1 and not self._control.tokens and not self._control.groups:
            (arriving,) = self._arriving.values()
            return [self._release(arriving.step)]  # nobody else is there that it could meet or wait for
        entered: list[str] = []
        changed = True
        while changed:
            changed = self._close_groups()
            for step in self._steps_with_candidates():
                if self._absorb(step):
                    changed = True
                    continue
                name = self._try_enter(step)
                if name is not None:
                    entered.append(name)
                    changed = True
        if not entered and self._is_stalemate():
            step = min((token.step for token in self._control.tokens.values()), key=self._graph.order.__getitem__)
            entered.append(self._release(step))
        return entered

    def _steps_with_candidates(self) -> list[str]:
        waiting = [token.step for token in self._all().values() if token.state in ("arriving", "parked")]
        return sorted(set(waiting), key=self._graph.order.__getitem__)

    def _try_enter(self, step: str) -> str | None:
        everybody = self._all()
        here = {name: token for name, token in everybody.items() if token.step == step}
        candidates = {name: token for name, token in here.items() if token.state != "running"}
        running = len(candidates) < len(here)
        if running or any(self._must_wait(name, token, everybody) for name, token in candidates.items()):
            self._park_arrivals(candidates)
            return None
        return self._release(step)

    def _absorb(self, step: str) -> bool:
        """The run in flight stands for a token that arrives and has nobody to wait for; True if there was one."""
        everybody = self._all()
        if not any(token.step == step and token.state == "running" for token in everybody.values()):
            return False
        arrivals = [name for name, token in self._arriving.items() if token.step == step]
        absorbed = [name for name in arrivals if not self._must_wait(name, everybody[name], everybody)]
        for name in absorbed:
            del self._arriving[name]
        return bool(absorbed)

    def _must_wait(self, name: str, token: Token, everybody: dict[str, Token]) -> bool:
        for group in token.groups:
            origin = self._control.groups.get(group, "")
            for other_name, other in everybody.items():
                if other_name == name or group not in other.groups:
                    continue
                beside = other.step == token.step and other.state != "running"
                if not beside and self._graph.reaches(other.step, token.step, origin):
                    return True
        return False

    def _park_arrivals(self, candidates: dict[str, Token]) -> None:
        for name, token in candidates.items():
            if token.state == "arriving":
                del self._arriving[name]
                new = self._new_name()
                self._do(Move(op="park", token=new, step=token.step, groups=token.groups, sender=token.sender))

    def _release(self, step: str) -> str:
        """All who wait at a step become one token of the deepest group they share."""
        here = {n: t for n, t in self._all().items() if t.step == step and t.state != "running"}
        groups = _common([token.groups for token in here.values()])
        sender = list(here.values())[-1].sender
        merged = tuple(name for name in here if name not in self._arriving)
        for name in here:
            self._arriving.pop(name, None)
        name = self._new_name()
        self._do(Move(op="enter", token=name, step=step, groups=groups, merged=merged, sender=sender))
        return name

    def _close_groups(self) -> bool:
        """A group with one live member left is no group; that member moves up."""
        closed = False
        everybody = self._all()
        for group in list(self._control.groups):
            members = {name: token for name, token in everybody.items() if group in token.groups}
            if len(members) > 1:
                continue
            closed = True
            for name, token in members.items():
                left = tuple(other for other in token.groups if other != group)
                if name in self._arriving:
                    self._arriving[name].groups = left
                else:
                    self._do(Move(op="regroup", token=name, groups=left))
            self._do(Move(op="close", group=group))
        return closed

    def _is_stalemate(self) -> bool:
        tokens = self._control.tokens.values()
        return bool(tokens) and self._control.idle and all(token.state == "parked" for token in tokens)

    def _all(self) -> dict[str, Token]:
        return {**self._control.tokens, **self._arriving}

    def _new_name(self) -> str:
        return f"t{self._control.next_number}"

    def _do(self, move: Move) -> None:
        apply_moves(self._control, [move])
        self.moves.append(move)


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    shared: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return tuple(shared)
