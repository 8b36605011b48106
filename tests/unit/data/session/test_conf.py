"""What a session is asked to be: settings, and a playbook's over them."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.data.session.conf import SessionConf, is_local, session_conf
from noetl.errors import InvalidSetting
from noetl.settings import Seconds, Spark


class TestMerging:
    def test_the_settings_alone(self) -> None:
        settings = Spark(master="yarn", conf=("spark.sql.shuffle.partitions = 64",), ui=False, start=Seconds(9.0))

        assert session_conf(settings) == SessionConf(
            master="yarn", conf={"spark.sql.shuffle.partitions": "64"}, ui=False, start=9.0
        )

    def test_a_playbook_goes_before_them(self) -> None:
        settings = Spark(conf=("spark.a=1", "spark.b=2"))

        merged = session_conf(settings, {"spark.b": 3, "spark.c": True, "ui": False, "spark.master": "local[4]"})

        assert merged == SessionConf(
            master="local[4]", conf={"spark.a": "1", "spark.b": "3", "spark.c": "true"}, ui=False
        )

    @pytest.mark.parametrize(
        ("settings", "asked", "master", "remote"),
        [
            (Spark(remote="sc://a:1"), {"master": "local[2]"}, "local[2]", None),
            (Spark(master="yarn"), {"spark.remote": "sc://a:1"}, "yarn", "sc://a:1"),
            (Spark(conf=("spark.remote=sc://b:2",)), {}, "local[*]", "sc://b:2"),
        ],
    )
    def test_where_it_runs_is_one_choice(
        self, settings: Spark, asked: dict[str, Any], master: str, remote: str | None
    ) -> None:
        merged = session_conf(settings, asked)

        assert (merged.master, merged.remote) == (master, remote)

    def test_a_value_may_hold_the_sign(self) -> None:
        merged = session_conf(Spark(conf=("spark.driver.extraJavaOptions=-Da=b -Dc=d",)))

        assert merged.conf == {"spark.driver.extraJavaOptions": "-Da=b -Dc=d"}


class TestRefusals:
    @pytest.mark.parametrize(
        ("asked", "message", "hint"),
        [
            ({"sql.shuffle.partitions": 8}, "'sql.shuffle.partitions' is not a setting of Spark", "spark.sql.shuffle"),
            ({"master": "yarn", "remote": "sc://a"}, "master and remote are both set", "remove one"),
            ({"spark.x": [1]}, "spark.x must be a text, a number or a flag, found [1]", ""),
            ({"spark.x": None}, "spark.x must be a text, a number or a flag, found None", ""),
            ({"ui": "perhaps"}, "ui must be true or false, found 'perhaps'", ""),
        ],
    )
    def test_of_a_playbook_name_the_place(self, asked: dict[str, Any], message: str, hint: str) -> None:
        with pytest.raises(InvalidSetting) as refused:
            session_conf(Spark(), asked)

        assert refused.value.message == f"executor.spec.spark: {message}"
        assert hint in (refused.value.hint or "")

    def test_of_the_settings_too(self) -> None:
        with pytest.raises(InvalidSetting, match=r"spark\.conf: 'spark\.x' is not name=value"):
            session_conf(Spark(conf=("spark.x",)))


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[4,2]", True), ("local-cluster[2,1,512]", False),
     ("spark://127.0.0.1:7077", False), ("yarn", False), ("localhost", False)],
)  # fmt: skip
def test_a_local_master_is_told_from_a_cluster(master: str, local: bool) -> None:
    assert is_local(master) is local
    assert SessionConf(master=master).is_local is local
