"""What is damaged comes back byte for byte from wherever it can, and is reported lost where it cannot."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.kernel.event import Json
from noetl.runtime.home import Home
from noetl.runtime.repair.needs import Need, needs_of
from noetl.runtime.repair.repairer import Finding
from noetl.runtime.repair.service import Repair, Request, repair
from noetl.settings import Payloads
from tests.unit.runtime.plant import Plant, opened

ROWS = "result = {'rows': [{'id': i, 'name': 'n%d' % i} for i in range(5000)]}"
TEXT = "result = {'fill': 'x' * 100_000, 'seed': seed}"
CHANGING = "import uuid\nresult = {'fill': [str(uuid.uuid4()) for _ in range(3000)]}"
LOOP = {"in": "{{ range(30) | list }}", "iterator": "n"}


def book(*steps: Json, **more: Any) -> Json:
    for one, following in itertools.pairwise(steps):
        one["next"] = {"arcs": [{"step": following["step"]}]}
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "b", "path": "b"}}
    return {**head, "workflow": list(steps), **more}


def task(code: str, *, pure: bool = True, **more: Any) -> Json:
    return {"kind": "python", "code": code, "spec": {"side_effecting": not pure}, **more}


class Site:
    """An installation in which things break."""

    def __init__(self, plant: Plant, home: Home) -> None:
        self.plant = plant
        self.home = home

    @property
    def store(self) -> Path:
        return self.home.payloads

    async def run(self, document: Json) -> int:
        return (await self.plant.run(document)).execution_id

    async def needs(self) -> list[Need]:
        return [need async for need in needs_of(self.plant.embedded.ledger)]

    async def need(self, event_type: str, step: str | None = None) -> Need:
        [found] = [
            need
            for need in await self.needs()
            if need.event.event_type == event_type and step in (None, need.event.node_name)
        ]
        return found

    def flip(self, need: Need) -> bytes:
        """Change one bit of an object; the bytes it had."""
        file = self.store / need.key
        whole = file.read_bytes()
        damaged = bytearray(whole)
        damaged[len(damaged) // 2] ^= 1
        file.write_bytes(damaged)
        return whole

    def content(self, need: Need) -> bytes:
        return (self.store / need.key).read_bytes()

    async def repair(self, **asked: Any) -> Repair:
        request = Request(directory=self.plant.place, **asked)
        return await repair(self.plant.embedded, self.home, request)


@contextlib.asynccontextmanager
async def site_at(place: Path, **payloads: Any) -> AsyncIterator[Site]:
    async with opened(place, {"payloads": Payloads(**payloads)}) as plant:
        yield Site(plant, Home(place / "home"))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_at(tmp_path) as made:
        yield made


def only(found: Repair) -> Finding:
    [finding] = found.objects.findings
    return finding


async def test_what_is_sound_is_left_alone(site: Site) -> None:
    await site.run(book({"step": "make", "tool": task(ROWS)}))
    before = {path: path.stat().st_mtime_ns for path in site.store.rglob("*") if path.is_file()}
    found = await site.repair(rerun=True)
    assert found.is_sound
    assert found.objects.objects == len(await site.needs()) == 2
    assert {path: path.stat().st_mtime_ns for path in site.store.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("breaking", ["flipped", "missing", "cut", "longer", "empty"])
async def test_a_result_of_a_task_without_effects_is_made_again(site: Site, breaking: str) -> None:
    await site.run(book({"step": "make", "tool": task(ROWS)}))
    need = await site.need("call.done")
    file, whole = site.store / need.key, site.content(need)
    if breaking == "missing":
        file.unlink()
    else:
        changed = {
            "cut": whole[:-1],
            "longer": whole + b"\0",
            "empty": b"",
            "flipped": bytes([whole[0] ^ 1]) + whole[1:],
        }
        file.write_bytes(changed[breaking])
    assert only(await site.repair()).outcome == "lost"
    found = await site.repair(rerun=True)
    assert (only(found).outcome, only(found).source) == ("repaired", "running it again")
    assert only(found).condition == ("missing" if breaking == "missing" else "damaged")
    assert site.content(need) == whole
    assert (await site.repair()).is_sound


async def test_a_task_is_run_again_with_what_it_was_given(site: Site) -> None:
    steps: list[Json] = [
        {"step": "first", "tool": task(ROWS)},
        {"step": "second", "tool": task(TEXT, input={"seed": "{{ first.rows[4321].name }}"})},
    ]
    await site.run(book(*steps))
    needs = [await site.need("call.done", step) for step in ("first", "second")]
    whole = [site.flip(need) for need in needs]
    found = await site.repair(rerun=True)
    assert [one.outcome for one in found.objects.findings] == ["repaired", "repaired"]
    assert [site.content(need) for need in needs] == whole


async def test_a_task_that_may_have_effects_is_not_run_again(site: Site) -> None:
    await site.run(book({"step": "make", "tool": task(ROWS, pure=False)}))
    need = await site.need("call.done")
    site.flip(need)
    found = await site.repair(rerun=True)
    assert not found.is_sound
    lost = only(found)
    assert (lost.outcome, lost.step, lost.row, lost.attempt) == ("lost", "make~1", None, 1)
    assert (lost.key, lost.sha256, lost.uri) == (need.key, need.ref.sha256, need.ref.uri)
    assert "may have effects" in lost.tried[-1]


async def test_what_comes_to_something_else_is_not_accepted(site: Site) -> None:
    await site.run(book({"step": "make", "tool": task(CHANGING)}))
    need = await site.need("call.done")
    site.flip(need)
    damaged = site.content(need)
    found = await site.repair(rerun=True)
    assert only(found).outcome == "lost"
    assert only(found).tried[-1].startswith("running it again: has sha256")
    assert site.content(need) == damaged, "what is there is not replaced by something that is wrong, too"


async def test_the_result_of_a_loop_is_put_together_from_its_iterations(site: Site) -> None:
    code = "result = {'n': n, 'fill': 'x' * 3000}"
    await site.run(book({"step": "each", "loop": LOOP, "tool": task(code, pure=False, input={"n": "{{ n }}"})}))
    need = await site.need("loop.done")
    whole = site.flip(need)
    assert only(await site.repair()).source == "iterations"
    assert site.content(need) == whole


async def test_large_iterations_are_fetched_for_that(site: Site) -> None:
    code = "result = {'n': n, 'fill': str(n) * 70_000}"
    loop = {**LOOP, "in": "{{ range(4) | list }}"}
    await site.run(book({"step": "each", "loop": loop, "tool": task(code, input={"n": "{{ n }}"})}))
    need = await site.need("loop.done")
    iteration = next(one for one in await site.needs() if one.row == 2)
    whole = [site.flip(need), site.flip(iteration)]
    assert [one.outcome for one in (await site.repair()).objects.findings] == ["lost", "lost"]
    found = await site.repair(rerun=True)
    assert [one.source for one in found.objects.findings] == ["running it again", "iterations"]
    assert [site.content(need), site.content(iteration)] == whole


async def test_a_document_comes_from_the_catalog(site: Site) -> None:
    document = book({"step": "make", "tool": {"kind": "noop"}})
    await site.plant.register(document)
    await site.run(document)
    need = await site.need("playbook.initialized")
    whole = site.flip(need)
    assert only(await site.repair()).source == "catalog"
    assert site.content(need) == whole


async def test_a_document_comes_from_the_file_it_was_read_from(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "b.yaml"
    document = msgspec.json.encode(book({"step": "make", "tool": {"kind": "noop"}})).decode()
    file.write_text(document)
    await site.plant.run(document, file=str(file))
    need = await site.need("playbook.initialized")
    site.flip(need)
    file.write_text(document.replace("make", "fake"))
    assert only(await site.repair()).outcome == "lost"
    file.write_text(document)
    assert only(await site.repair()).source == "file"


async def test_a_value_comes_from_a_replica(tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    async with site_at(tmp_path, replica=replica.as_uri()) as site:
        step = {
            "step": "make",
            "tool": task("result = 'x' * 9000", pure=False),
            "set": {"ctx.big": "{{ output.data }}"},
        }
        await site.run(book(step))
        need = next(one for one in await site.needs() if one.key.startswith("default/") and not one.is_document)
        copy = FilesystemObjectStore(replica)
        await copy.put(need.key, site.content(need))
        whole = site.flip(need)
        found = await site.repair()
        assert (only(found).source, site.content(need)) == ("replica", whole)
        site.flip(need)
        await copy.put(need.key, site.content(need), overwrite=True)
        assert only(await site.repair()).outcome == "lost", "a replica that has the damage, too, is no help"


async def test_a_dry_run_says_what_could_be_done_and_does_nothing(site: Site) -> None:
    await site.run(book({"step": "make", "tool": task(ROWS)}))
    need = await site.need("call.done")
    site.flip(need)
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in site.store.rglob("*") if path.is_file()}
    found = await site.repair(rerun=True, dry_run=True)
    assert only(found).outcome == "repairable"
    assert not found.is_sound
    after = {path: hashlib.sha256(path.read_bytes()).digest() for path in site.store.rglob("*") if path.is_file()}
    assert after == before


async def test_rows_and_snapshots_are_made_anew_from_the_log(site: Site) -> None:
    execution_id = await site.run(book({"step": "make", "tool": {"kind": "noop"}}))
    embedded = site.plant.embedded
    [need] = await site.needs()
    root = await site.plant.embedded.verifier.roots().__anext__()
    assert root.stream_id == f"execution/{execution_id}"
    assert need.is_document
    await embedded.replayer.snapshot(root)
    [row] = list(await embedded.projections.load(root, surface="execution"))
    forged = msgspec.structs.replace(row, version=row.version + 1, row=row.row.replace(b"COMPLETED", b"CANCELLED"))
    await embedded.projections.save([forged])
    [snapshot] = await embedded.projections.snapshots(root, at_or_before=1 << 60)
    await embedded.projections.drop_snapshots(root, keep=0)
    await embedded.projections.save_snapshot(msgspec.structs.replace(snapshot, checksum="0" * 64))
    assert not (await embedded.verifier.verify(root)).ok
    dry = await site.repair(dry_run=True)
    assert [(one.rows, one.snapshots) for one in dry.rows] == [(1, 1)]
    assert not (await embedded.verifier.verify(root)).ok
    found = await site.repair()
    assert found.is_sound
    assert (await embedded.verifier.verify(root)).ok
    assert (await site.repair()).rows == []
