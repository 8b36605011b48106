from __future__ import annotations

import pytest

from noetl.errors import InvalidName
from noetl.kernel.names.address import Address, check_tenant, join, split


def test_a_locator_is_cut_into_segments_and_version() -> None:
    assert split("noetl://a/b/c%20d@v1") == Address(("a", "b", "c%20d"), "v1")
    assert split("noetl://a/b") == Address(("a", "b"), None)


def test_a_version_is_read_and_spelled_like_a_segment() -> None:
    assert split("noetl://a/b@1%2F2").version == "1/2"
    assert join(("a", "b"), "1/2") == "noetl://a/b@1%2F2"


@pytest.mark.parametrize(("tenant", "form"), [("tenant", "an infrastructure name"), ("execution", "the older form")])
def test_a_tenant_may_not_hide_another_form(tenant: str, form: str) -> None:
    with pytest.raises(InvalidName, match=f"a tenant cannot be called '{tenant}': .*{form}"):
        check_tenant(tenant)
