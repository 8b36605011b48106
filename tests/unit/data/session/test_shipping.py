"""Archives of modules: named by what is in them, without what nobody imports."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from noetl.data.session.shipping import archive
from noetl.errors import InvalidInput


def put(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(file)


def names(path: Path) -> set[str]:
    return set(zipfile.ZipFile(path).namelist())


def test_it_has_modules_and_the_data_of_packages(tmp_path: Path) -> None:
    root = tmp_path / "project"
    put(root, "helpers.py", "orders.csv", "tool/__init__.py", "tool/rates.json", "tool/fast.so", "notes/readme.md",
        ".venv/x.py", "tool/__pycache__/x.pyc", "env/pyvenv.cfg", "env/lib/y.py", "node_modules/z.py")  # fmt: skip

    assert names(archive("modules", [root], tmp_path)) == {"helpers.py", "tool/__init__.py", "tool/rates.json"}


def test_it_is_named_by_its_content(tmp_path: Path) -> None:
    root = tmp_path / "project"
    put(root, "helpers.py")
    first = archive("modules", [root], tmp_path)
    again = archive("modules", [root], tmp_path)
    (root / "helpers.py").write_text("changed")

    assert first == again
    assert archive("modules", [root], tmp_path) != first


def test_a_package_may_be_put_below_its_name(tmp_path: Path) -> None:
    put(tmp_path / "src" / "tool", "__init__.py", "part.py")

    assert names(archive("tool", [tmp_path / "src" / "tool"], tmp_path, inside="tool")) == {
        "tool/__init__.py", "tool/part.py",
    }  # fmt: skip


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.data.session.shipping._MOST", 3)
    put(tmp_path / "project", "helpers.py")

    with pytest.raises(InvalidInput, match="are more than 3B, too much to carry") as refused:
        archive("modules", [tmp_path / "project"], tmp_path)

    assert "keep modules apart" in (refused.value.hint or "")


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"there is no directory {tmp_path / 'nowhere'}"):
        archive("modules", [tmp_path / "nowhere"], tmp_path)
