"""Java is found, or it is said where it was looked for and what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.data.session.java import find_java
from noetl.data.session.refusals import SparkUnavailable


def put(home: Path, version: str | None = None, *, says: str = "") -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return program


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    put(tmp_path / "chosen", "21.0.2")
    put(tmp_path / "other", "17.0.1")

    java = find_java({"JAVA_HOME": str(tmp_path / "chosen"), "PATH": str(tmp_path / "other" / "bin")})

    assert (java.home, java.version) == (tmp_path / "chosen", "21.0.2")


def test_links_on_the_path_are_followed(tmp_path: Path) -> None:
    program = put(tmp_path / "jvm", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(program)

    assert find_java({"PATH": str(tmp_path / "bin")}).home == tmp_path / "jvm"


def test_one_without_a_note_of_its_release_is_asked(tmp_path: Path) -> None:
    put(tmp_path, says='openjdk version "18.0.1" 2022-04-19')

    assert find_java({"JAVA_HOME": str(tmp_path)}).version == "18.0.1"


@pytest.mark.parametrize(("version", "shown"), [("11.0.22", "11.0.22"), ("1.8.0_392", "1.8.0_392")])
def test_an_old_one_is_refused_by_its_version(tmp_path: Path, version: str, shown: str) -> None:
    program = put(tmp_path, version)

    with pytest.raises(SparkUnavailable) as refused:
        find_java({"JAVA_HOME": str(tmp_path)})

    assert refused.value.message == f"data stages need Java 17 or later, and {program} is {shown}"
    assert "openjdk-17-jre-headless" in (refused.value.hint or "")


def test_one_that_says_nothing_sensible_is_refused(tmp_path: Path) -> None:
    put(tmp_path, says="what?")

    with pytest.raises(SparkUnavailable, match="of a version it does not tell"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_without_any_the_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable) as refused:
        find_java({"PATH": str(tmp_path)})

    assert refused.value.message == (
        f"data stages need Java, and there is none: JAVA_HOME is not set, nor is java on PATH ({tmp_path})"
    )
    assert refused.value.code == "KIND_UNAVAILABLE"


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match=f"JAVA_HOME is {tmp_path}, which has no bin/java") as refused:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})

    assert "unset it to use the one on PATH" in (refused.value.hint or "")
