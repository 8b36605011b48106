"""Events whose payload is kept outside of them, shown whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cli import Home

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: wide, path: wide}
workflow:
  - step: each
    loop: {in: "{{ ['abcdefghij' * 10000, 'klm'] }}", iterator: text}
    tool:
      kind: python
      input: {text: "{{ text }}"}
      code: |
        result = len(text)
"""


@pytest.fixture
def place(tmp_path: Path) -> Home:
    (tmp_path / "wide.yaml").write_text(PLAYBOOK)
    return Home(tmp_path / "home")


def opened(document: dict[str, list[dict[str, dict[str, object]]]]) -> dict[str, dict[str, object]]:
    (event,) = document["events"]
    return event


def test_a_payload_comes_back_or_its_loss_is_told(place: Home) -> None:
    execution = place.json("run", "wide.yaml")["execution_id"]
    asked = ("events", execution, "--type", "loop.opened")
    stored = opened(place.json(*asked))
    ref = stored["payload_ref"]
    assert "abcdefghij" not in str(stored["payload"])
    whole = opened(place.json(*asked, "--resolve-payloads"))
    assert "abcdefghij" * 10000 in str(whole["payload"])
    assert "payload_ref" not in whole

    digest = str(ref["sha256"])
    (place.path / "payloads" / "default" / digest[:2] / digest[2:4] / digest).unlink()
    failed = place.run(*asked, "--resolve-payloads")
    assert failed.code == 2
    assert f"payload '{ref['uri']}' is not in the store" in failed.stderr
    marked = opened(place.json(*asked, "--resolve-payloads", "--degraded"))
    assert (marked["payload"], marked["payload_ref"]) == (stored["payload"], ref)
    assert "is not in the store" in str(marked["meta"]["payload_unresolved"])


@pytest.mark.parametrize("flags", [["--degraded"], ["--resolve-payloads", "--follow"]])
def test_flags_that_do_not_fit_together(place: Home, flags: list[str]) -> None:
    done = place.run("events", "1", *flags)
    assert done.code == 2
    assert "--resolve-payloads" in done.stderr
