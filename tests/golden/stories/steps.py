"""Executions without data stages: steps, branches, failures, calls, loops."""

from __future__ import annotations

from noetl.kernel.event import Json
from tests.golden.telling import PAUSE, SECOND, Run, fault, stored
from tests.scribe import Scribe


def hello(scribe: Scribe) -> list[str]:
    """The smallest execution there is."""
    run = Run(scribe)
    run.begin("guide/hello", "start", {"who": "world"})
    context = {"greeting": "Hello, world!"}
    run.work("start", "python", context, input={"who": "world"})
    run.end("start", context)
    return [run.root]


def branching(scribe: Scribe) -> list[str]:
    """A call fails for good, its error is routed to a fallback, and one step is not admitted."""
    run = Run(scribe)
    run.begin("sales/quote", "fetch_quote", {"sku": "A-1001", "quantity": 3}, set={"ctx.currency": "EUR"})
    command = run.issue("fetch_quote", "http", input={"url": "https://prices.example/v1/A-1001"})
    run.tell(
        "command.route.selected",
        aggregate_type="command",
        command_id=command,
        node_name="fetch_quote",
        payload={"pool": "default", "region": "eu-west-1", "cluster": "main", "fallback": ["eu-central-1"]},
    )
    error = fault("not_found", "HTTP_404", "no price for A-1001", status=404, status_code=404)
    run.say(*run.taken(command, "fetch_quote", "worker-2"), *run.broken(command, "fetch_quote", "worker-2", error))
    run.work(
        "price_from_list",
        "postgres",
        {"unit_price": "12.50", "rows": [{"sku": "A-1001", "price": 12.5}]},
        worker="worker-1",
        set={"ctx.quote.unit_price": "12.50", "ctx.quote.total": 37.5, "ctx.source": "price_list"},
    )
    run.tell("step.skipped", node_name="notify_supplier", payload={"rule": "admit", "reason": "quantity < 10"})
    run.work("answer", "noop", {"status": "quoted"}, worker="worker-1", set={"ctx.quote.valid_days": 14})
    run.end("answer", {"total": 37.5, "currency": "EUR"})
    return [run.root]


def failed(scribe: Scribe) -> list[str]:
    """A worker is lost, the command is delivered again, its retries are used up and the execution fails."""
    run = Run(scribe)
    run.begin("sales/nightly_export", "export", {"day": "2026-03-01"})
    command = run.issue("export", "transfer", input={"from": "warehouse", "to": "s3://exports/2026-03-01"})
    run.tell(
        "command.route.failed",
        aggregate_type="command",
        command_id=command,
        node_name="export",
        payload={"pool": "gpu", "reason": "no worker in pool 'gpu'", "fallback": ["default"]},
    )
    run.say(*run.taken(command, "export", "worker-3"))
    run.beat(command, "export", "worker-3")
    run.say(
        run.about(
            "command.abandoned", command, "export", status="PENDING",
            payload={"reason": "lease expired", "previous_owner": "worker-3"},
        ),
        pause=120 * SECOND,
    )  # fmt: skip
    error = fault("db_connection", "PG_08006", "connection to warehouse lost", retryable=True)
    run.say(*run.taken(command, "export", "worker-1", enter=False), *run.broken(command, "export", "worker-1", error))
    run.seal_telemetry(final=True)
    run.fail("export", error)
    return [run.root]


def calls(scribe: Scribe) -> list[str]:
    """A pipeline that calls another playbook: the parent waits without a worker until the child has ended."""
    parent = Run(scribe)
    parent.begin("sales/settle_order", "settle", {"order_id": "O-7001"})
    command = parent.issue("settle", "pipeline", input={"tasks": ["load", "charge", "store"]})
    parent.say(*parent.taken(command, "settle", "worker-1"))
    child = Run(scribe)
    state = stored('{"load":{"amount":"99.90"},"next":"charge"}')
    parent.say(
        parent.about(
            "command.suspended", command, "settle", worker="worker-1", status="SUSPENDED", payload_ref=state,
            payload={"task": "charge", "child_execution_id": child.id, "playbook": "payments/charge"},
        )
    )  # fmt: skip
    _charge(child, parent, command)
    parent.say(
        parent.about(
            "command.resumed", command, "settle", status="PENDING",
            payload={"child_execution_id": child.id, "child_status": "COMPLETED"},
        ),
        pause=PAUSE,
    )  # fmt: skip
    context = {"order_id": "O-7001", "receipt": "R-3344"}
    parent.say(
        *parent.taken(command, "settle", "worker-2", enter=False),
        *parent.done(command, "settle", "worker-2", context, set={"ctx.receipt": "R-3344"}),
    )
    parent.end("settle", context)
    return [parent.root, child.root]


def _charge(child: Run, parent: Run, command: int) -> None:
    child.begin(
        "payments/charge",
        "authorise",
        {"amount": "99.90", "card": {"$secret": "card_vault.token"}},
        parent_execution_id=parent.id,
        root_execution_id=parent.id,
        causation_id=command,
        correlation_id="order/O-7001",
    )
    child.work(
        "authorise", "http", {"authorised": True, "code": "A17"}, worker="worker-3", correlation_id="order/O-7001"
    )
    child.work("capture", "http", {"receipt": "R-3344"}, worker="worker-3", correlation_id="order/O-7001")
    child.end("capture", {"receipt": "R-3344"})


def sequential_loop(scribe: Scribe) -> list[str]:
    """A loop over a list, one item at a time; one iteration fails and the others run."""
    run = Run(scribe)
    regions = ["eu", "us", "apac"]
    run.begin("sales/regional_totals", "totals", {"regions": regions})
    loop_id = "totals/1"
    _open_loop(run, "totals", loop_id, 1, "sequential", "region", len(regions))
    error = fault("timeout", "TIMEOUT", "no answer within 30 s", retryable=True)
    for index, region in enumerate(regions):
        command = run.issue("totals", "postgres", loop_id=loop_id, loop_index=index, input={"region": region})
        run.say(*run.taken(command, "totals", "worker-1", enter=index == 0))
        last = run.broken(command, "totals", "worker-1", error, exits=False) if region == "us" else run.done(
            command, "totals", "worker-1", {"region": region, "total": 1000.5 + index}, exits=False,
            set={f"ctx.totals.{region}": 1000.5 + index},
        )  # fmt: skip
        run.say(*last)
        _item(run, "totals", loop_id, index, "FAILED" if region == "us" else "COMPLETED")
    _loop_done(run, "totals", loop_id, "FAILED", {"total": 3, "success": 2, "failed": 1})
    run.fail("totals", error)
    return [run.root]


def stalled_loop(scribe: Scribe) -> list[str]:
    """A parallel loop that never succeeds: three epochs without one success, and the fourth is not started."""
    run = Run(scribe)
    run.begin("sales/drain_returns", "drain", {"batch": 2})
    error = fault("rate_limit", "HTTP_429", "slow down", retryable=True, status=429, status_code=429, retry_after=5)
    for epoch in (1, 2, 3):
        loop_id = f"drain/{epoch}"
        _open_loop(run, "drain", loop_id, epoch, "parallel", "parcel", 2)
        commands = [run.issue("drain", "http", loop_id=loop_id, loop_index=index) for index in (0, 1)]
        for worker, command in zip(("worker-1", "worker-2"), commands, strict=True):
            run.say(*run.taken(command, "drain", worker, enter=command == commands[0]))
        for worker, command in zip(("worker-2", "worker-1"), reversed(commands), strict=True):
            run.say(*run.broken(command, "drain", worker, error, exits=False))
        _loop_done(run, "drain", loop_id, "COMPLETED", {"total": 2, "success": 0, "failed": 2})
    stalled = fault("unknown", "LOOP_STALLED", "three epochs of 'drain' without a success")
    run.say(
        run.draft(
            "loop.stalled",
            aggregate_type="loop",
            aggregate_id="drain/3",
            node_name="drain",
            payload={"epochs": ["drain/1", "drain/2", "drain/3"]},
        ),
        run.draft("step.enter", node_name="drain"),
        run.draft("call.error", node_name="drain", status="FAILED", payload={"error": stalled}),
        run.draft("step.exit", node_name="drain", status="FAILED"),
    )
    run.fail("drain", stalled)
    return [run.root]


def _open_loop(run: Run, step: str, loop_id: str, epoch: int, mode: str, iterator: str, total: int) -> None:
    payload: Json = {"epoch": epoch, "mode": mode, "iterator": iterator, "total": total}
    run.tell("loop.opened", aggregate_type="loop", aggregate_id=loop_id, node_name=step, payload=payload)


def _item(run: Run, step: str, loop_id: str, index: int, status: str) -> None:
    run.tell(
        "loop.item", aggregate_type="loop", aggregate_id=loop_id, node_name=step, status=status,
        payload={"index": index},
    )  # fmt: skip


def _loop_done(run: Run, step: str, loop_id: str, status: str, stats: dict[str, int]) -> None:
    done = run.draft(
        "loop.done", aggregate_type="loop", aggregate_id=loop_id, node_name=step, status=status,
        payload={"stats": stats},
    )  # fmt: skip
    run.say(done, run.draft("step.exit", node_name=step, status=status))
