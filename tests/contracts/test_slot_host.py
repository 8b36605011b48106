"""The host of slots that this process is."""

from __future__ import annotations

from tests.contracts.slot_host import Ground, SlotHostContract


class TestWorkerHost(SlotHostContract):
    engine = "worker"

    async def test_a_parallel_loop_may_have_a_stage_in_every_item(self, on: Ground) -> None:
        code = "result = {'id': id, 'of': of}"
        tool = {"kind": "python", "input": {"id": "{{ row }}", "of": "{{ workload.of }}"}, "code": code}
        inner = on.fanout("{{ range(workload.of) | list }}", tool, name="inner", frame={"max_rows": 2})
        await on.register("child", inner)
        call = {"kind": "playbook", "path": "child", "input": {"of": "{{ iter.item }}"}, "return_step": "inner"}
        loop = {"in": [0, 1, 5, 3], "iterator": "item", "spec": {"mode": "parallel", "max_in_flight": 3}}
        finished = await on.run({"step": "each", "loop": loop, "tool": call})
        assert finished.status == "COMPLETED", finished.error
        results = finished.result["results"]
        assert [one["rows"] for one in results] == [0, 1, 5, 3]
        assert [one["frames"] for one in results] == [0, 1, 3, 2]
        assert [row["id"] for row in await on.rows(results[2])] == list(range(5))
