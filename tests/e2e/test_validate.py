"""`noetl validate`, `graph` and `schema`, as a person, an editor and a code host use them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from tests.e2e.cli import COMMAND, PROJECT_ROOT, Home

UNIT = PROJECT_ROOT / "tests/unit/playbook"
GUIDE, BROKEN = UNIT / "guide", UNIT / "broken"

ORDERS = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: orders}
workflow:
  - step: start
    tool: {kind: pyhton, code: "result = 1"}
    next: {arcs: [{step: shipp}]}
  - step: ship
    tool: {kind: noop}
"""


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    file = tmp_path / "orders.yaml"
    file.write_text(ORDERS, encoding="utf-8")
    return file


class TestValidate:
    def test_a_person_sees_the_line_and_a_mark_under_the_column(self, new_home: Home, orders: Path) -> None:
        result = new_home.run("validate", "orders.yaml", cwd=orders.parent)
        assert result.code == 2
        assert result.stdout.splitlines() == [
            "orders.yaml:6:18: NTL-402 error: tool kind 'pyhton' is not known (hint: did you mean 'python'?)",
            '     6 |     tool: {kind: pyhton, code: "result = 1"}',
            "       |                  ^",
            "orders.yaml:7:26: NTL-208 error: arc target 'shipp' is not known (hint: did you mean 'ship'?)",
            "     7 |     next: {arcs: [{step: shipp}]}",
            "       |                          ^",
        ]
        assert result.stderr == "1 file: 2 errors, 0 warnings\n"

    def test_a_terminal_gets_colours_and_a_pipe_does_not(self, new_home: Home, orders: Path) -> None:
        primary, secondary = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, "validate", str(orders)], stdout=secondary, stderr=subprocess.DEVNULL, env=new_home.environment()
        )
        os.close(secondary)
        printed = b""
        try:
            while chunk := os.read(primary, 4096):
                printed += chunk
        except OSError:  # the other side has closed: Linux says so this way
            pass
        os.close(primary)
        assert process.wait(timeout=60) == 2
        assert b"\x1b[31m" in printed
        assert "\x1b" not in new_home.run("validate", orders).stdout

    def test_a_valid_directory_is_quiet(self, new_home: Home) -> None:
        result = new_home.run("validate", GUIDE)
        assert (result.code, result.stdout) == (0, "")
        assert result.stderr.endswith("files, no problems\n")

    def test_a_directory_is_searched_for_yaml_files(self, new_home: Home, tmp_path: Path, orders: Path) -> None:
        for name in ("a/one.yml", "a/b/two.YAML", ".hidden/three.yaml", "a/readme.md"):
            (tmp_path / "all" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "all" / name).write_text(ORDERS, encoding="utf-8")
        document = new_home.run("validate", "all", "orders.yaml", "--json", cwd=tmp_path).document
        assert [entry["file"] for entry in document["files"]] == ["all/a/b/two.YAML", "all/a/one.yml", "orders.yaml"]

    def test_json_is_one_document_of_the_promised_shape(self, new_home: Home, orders: Path) -> None:
        result = new_home.run("validate", orders, GUIDE / "hello.yaml", "--json")
        assert result.code == 2
        bad, good = result.document["files"]
        assert good == {"file": str(GUIDE / "hello.yaml"), "ok": True, "problems": []}
        assert (bad["ok"], bad["problems"][1]) == (
            False,
            {
                "code": "NTL-208",
                "severity": "error",
                "line": 7,
                "column": 26,
                "message": "arc target 'shipp' is not known",
                "hint": "did you mean 'ship'?",
            },
        )
        assert new_home.run("validate", orders, "--format", "json").document["files"] == [bad]

    def test_sarif_names_rule_place_and_level(self, new_home: Home, orders: Path) -> None:
        document = new_home.run("validate", orders, "--format", "sarif").document
        assert document["version"] == "2.1.0"
        (run,) = document["runs"]
        rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert rules == ["NTL-208", "NTL-402"]
        first = run["results"][0]
        assert (first["ruleId"], first["level"], rules[first["ruleIndex"]]) == ("NTL-402", "error", "NTL-402")
        place = first["locations"][0]["physicalLocation"]
        assert place == {
            "artifactLocation": {"uri": str(orders)},
            "region": {"startLine": 6, "startColumn": 18},
        }

    def test_github_gets_one_command_a_problem(self, new_home: Home, tmp_path: Path) -> None:
        (tmp_path / "a,b%.yaml").write_text(ORDERS, encoding="utf-8")
        lines = new_home.run("validate", "a,b%.yaml", "--format", "github", cwd=tmp_path).stdout.splitlines()
        assert lines[0] == (
            "::error file=a%2Cb%25.yaml,line=6,col=18,title=NTL-402::"
            "tool kind 'pyhton' is not known (hint: did you mean 'python'?)"
        )
        assert len(lines) == 2

    def test_warnings_alone_do_not_fail_unless_asked(self, new_home: Home) -> None:
        doubtful = BROKEN / "doubtful.yaml"
        assert new_home.run("validate", doubtful).code == 0
        assert new_home.run("validate", doubtful, "--strict").code == 2

    def test_every_broken_file_is_answered_in_one_call(self, new_home: Home) -> None:
        result = new_home.run("validate", ".", cwd=BROKEN)
        expected = "".join(file.read_text(encoding="utf-8") for file in sorted(BROKEN.glob("*.expected")))
        assert result.code == 2
        assert [line for line in result.stdout.splitlines() if " NTL-" in line] == expected.splitlines()

    def test_bytes_that_are_no_text_have_a_place(self, new_home: Home, tmp_path: Path) -> None:
        (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: caf\xe9\n")
        result = new_home.run("validate", "latin.yaml", cwd=tmp_path)
        assert result.code == 2
        assert result.stdout.startswith("latin.yaml:2:7: NTL-101 error: not valid YAML: the file is not UTF-8 text")

    def test_standard_input_can_be_checked(self, new_home: Home, orders: Path) -> None:
        with orders.open("rb") as stream:
            result = new_home.run("validate", "-", stdin=stream)
        assert result.stdout.startswith("<stdin>:6:18: NTL-402")

    def test_what_is_not_there_is_said(self, new_home: Home, tmp_path: Path) -> None:
        (tmp_path / "none").mkdir()
        assert "there is no file" in new_home.run("validate", "nowhere.yaml").stderr
        result = new_home.run("validate", "none", cwd=tmp_path)
        assert (result.code, "there is no YAML file in none" in result.stderr) == (2, True)

    def test_a_file_cannot_paint_the_terminal(self, new_home: Home, tmp_path: Path) -> None:
        (tmp_path / "evil.yaml").write_text(ORDERS.replace("shipp", '"\\e[31mred"'), encoding="utf-8")
        assert "\x1b" not in new_home.run("validate", tmp_path / "evil.yaml").stdout

    def test_nothing_heavy_is_loaded(self, new_home: Home) -> None:
        process = new_home.start("validate", GUIDE / "hello.yaml", env={"PYTHONPROFILEIMPORTTIME": "1"})
        _, loaded = process.communicate(timeout=60)
        assert not {b"pyarrow", b"sqlite3", b"rich", b"asyncio"} & {
            line.split(b"|")[-1].strip() for line in loaded.splitlines()
        }


class TestGraph:
    def test_mermaid_is_the_default(self, new_home: Home) -> None:
        result = new_home.run("graph", GUIDE / "quote.yaml")
        assert result.code == 0
        assert result.stdout.startswith("flowchart TD\n")
        assert 's2 -->|"stock.left #gt; 0"| s3' in result.stdout

    def test_svg_goes_to_a_file(self, new_home: Home, tmp_path: Path) -> None:
        result = new_home.run("graph", GUIDE / "branching.yaml", "--out", tmp_path / "b.svg")
        assert (result.code, result.stdout) == (0, "")
        assert ElementTree.parse(tmp_path / "b.svg").getroot().tag.endswith("svg")

    def test_one_of_several_playbooks_is_chosen_by_path(self, new_home: Home) -> None:
        several = new_home.run("graph", GUIDE / "squares.yaml")
        assert (several.code, "choose one with --path" in several.stderr) == (2, True)
        assert new_home.run("graph", GUIDE / "squares.yaml", "--path", "guide/squares").code == 0

    def test_a_broken_playbook_is_not_drawn(self, new_home: Home, orders: Path) -> None:
        result = new_home.run("graph", orders)
        assert (result.code, result.stdout) == (2, "")
        assert "NTL-402" in result.stderr


class TestSchema:
    @pytest.mark.parametrize(
        ("arguments", "title"), [([], "Playbook"), (["playbook"], "Playbook"), (["subscription"], "Subscription")]
    )
    def test_a_schema_is_printed(self, new_home: Home, arguments: list[str], title: str) -> None:
        result = new_home.run("schema", *arguments)
        schema = json.loads(result.stdout)
        Draft202012Validator.check_schema(schema)
        assert (result.code, schema["title"]) == (0, f"NoETL {title}")
