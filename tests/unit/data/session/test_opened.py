"""What a session that runs can share."""

from __future__ import annotations

import pytest

from noetl.data.session.opened import _is_same


@pytest.mark.parametrize(
    ("name", "have", "want", "same"),
    [
        ("spark.driver.memory", "1g", "1g", True),
        ("spark.driver.memory", "1g", "2g", False),
        ("spark.driver.memory", None, "2g", False),
        ("spark.driver.extraJavaOptions", "-Dspark=1 -Dours=2 -Xss4m", "-Xss4m", True),
        ("spark.driver.extraJavaOptions", "-Dspark=1 -Dours=2", "-Xss4m", False),
        ("spark.driver.extraJavaOptions", "-Dspark=1 -Dours=2 -XXss4m", "Xss4m", False),
    ],
)
def test_options_of_a_jvm_are_the_same_behind_those_that_are_always_there(
    name: str, have: str | None, want: str, same: bool
) -> None:
    assert _is_same(name, have, want) is same
