"""What a playbook may use is decided by whoever runs it: settings, requirements, limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cli import Home

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t, path: team/t}\n"
SHELL = HEAD + "workflow: [{step: start, tool: {kind: shell, command: echo hi}}]\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def write(home: Home, text: str) -> Path:
    file = home.path.parent / "playbook.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_required_tool_that_is_missing_ends_with_3_and_begins_nothing(home: Home) -> None:
    file = write(home, SHELL + "executor: {requires: {tools: [snowflake, shell]}}\n")
    refused = home.run("run", file, env={"NOETL_TOOLS__SHELL": "false"})
    assert refused.code == 3
    assert "snowflake (it needs the snowflake connector)" in refused.stderr
    assert "shell (it is switched off by the setting tools.shell)" in refused.stderr
    assert "fix: " in refused.stderr
    assert home.json("list")["executions"] == []


def test_a_kind_that_is_switched_off_fails_its_task_and_names_the_setting(home: Home) -> None:
    (home.path.parent / "noetl.toml").write_text("[tools]\nshell = false\n", encoding="utf-8")
    failed = home.run("run", write(home, SHELL), "--json")
    assert failed.code == 1
    assert failed.document["error"]["code"] == "KIND_UNAVAILABLE"
    assert "tools.shell" in failed.document["error"]["message"]


def test_a_payload_that_is_too_large_is_refused_as_bad_input(home: Home) -> None:
    limit = "executor: {spec: {policy: {limits: {max_payload_bytes: 16}}}}\n"
    refused = home.run("run", write(home, SHELL + limit), "--set", "text=rather too long for it")
    assert refused.code == 2
    assert "the payload has 33 bytes, team/t accepts at most 16B" in refused.stderr


def test_an_unknown_feature_is_a_warning(home: Home) -> None:
    done = home.run("run", write(home, SHELL + "executor: {requires: {features: [flying]}}\n"))
    assert done.code == 0
    assert "warning: team/t requires the feature 'flying', which is not known here" in done.stderr


def test_templates_see_the_variables_that_are_allowed(home: Home) -> None:
    seen = '{one: "{{ env.STAGE }}", other: "{{ env.HOME }}"}'
    file = write(home, HEAD + f"workflow: [{{step: start, tool: {{kind: noop, result: {seen}}}}}]\n")
    environ = {"STAGE": "test", "NOETL_ENV__ALLOW": "STAGE"}
    assert home.json("run", file, env=environ)["result"] == {"one": "test", "other": None}


def test_a_key_of_the_wallet_cannot_be_shown_to_templates(home: Home) -> None:
    refused = home.run("run", write(home, SHELL), env={"NOETL_ENV__ALLOW": "NOETL_WALLET__KEK"})
    assert refused.code == 2
    assert "NOETL_ENV__ALLOW: env.allow: NOETL_WALLET__KEK is a key" in refused.stderr
