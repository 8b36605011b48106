from __future__ import annotations

import pytest

from noetl.errors import InvalidEvent
from noetl.kernel.streams import category_of, execution_stream, is_dense, root_of, stage_stream, telemetry_stream

DENSE = ["execution/7", "registry/acme/sales/model/churn", "registry/acme/sales/dataset/eu/orders", "tenant/acme"]
SPARSE = ["execution/7/stage/9", "execution/7/telemetry", "subscription/orders", "subscription/eu/orders"]


def test_the_names_of_an_executions_streams() -> None:
    assert (execution_stream(7), stage_stream(7, 9), telemetry_stream(7)) == (
        "execution/7",
        "execution/7/stage/9",
        "execution/7/telemetry",
    )


@pytest.mark.parametrize("stream_id", DENSE)
def test_decisions_are_dense(stream_id: str) -> None:
    assert is_dense(stream_id)


@pytest.mark.parametrize("stream_id", SPARSE)
def test_streams_of_many_writers_are_sparse(stream_id: str) -> None:
    assert not is_dense(stream_id)


@pytest.mark.parametrize("stream_id", DENSE + SPARSE)
def test_the_category_is_the_first_segment(stream_id: str) -> None:
    assert category_of(stream_id) == stream_id.partition("/")[0]


@pytest.mark.parametrize("stream_id", ["execution/7", "execution/7/stage/9", "execution/7/telemetry"])
def test_the_streams_of_an_execution_have_one_root(stream_id: str) -> None:
    assert root_of(stream_id) == "execution/7"


@pytest.mark.parametrize("stream_id", ["registry/acme/sales/model/churn", "tenant/acme", "subscription/eu/orders"])
def test_every_other_stream_is_its_own_root(stream_id: str) -> None:
    assert root_of(stream_id) == stream_id


@pytest.mark.parametrize(
    "stream_id",
    [
        "",
        "/",
        "execution",
        "execution/",
        "execution/abc",
        "execution/-1",
        "execution/07",
        "execution/٧",
        "execution/9223372036854775808",
        "execution/" + "1" * 5000,
        "execution/7/",
        "execution/7/stage",
        "execution/7/stage/x",
        "execution/7/stage/09",
        "execution/7/stage/9/frame",
        "execution/7/logs",
        "execution//telemetry",
        "registry/acme/sales/model",
        "registry/acme//model/churn",
        "tenant",
        "tenant/acme/more",
        "subscription",
        "catalog/acme",
    ],
)
def test_anything_else_is_not_a_stream(stream_id: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        category_of(stream_id)
    assert refused.value.field == "stream_id"
    assert f"'{stream_id}'" in refused.value.message
