"""A run whose payloads are in a bucket, with the key in the environment."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cli import Home
from tests.services.buckets import Bucket
from tests.services.moto import SECRET, moto_bucket, moto_server, s3_client

__all__ = ["moto_bucket", "moto_server"]

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata:
  name: large
  path: large
workflow:
  - step: start
    tool:
      kind: python
      code: |
        result = {"text": "0123456789" * 30000}
"""


def environment(bucket: Bucket, secret: str = SECRET) -> dict[str, str]:
    return {
        "NOETL_PAYLOADS__URL": f"{bucket.url}/payloads",
        "NOETL_PAYLOADS__OPTIONS": f"endpoint={bucket.options['endpoint']}, region=us-east-1, retries=1",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": secret,
    }


def test_a_large_result_is_kept_in_the_bucket(tmp_path: Path, moto_bucket: Bucket, moto_server: int) -> None:
    home = Home(tmp_path / "home")
    (tmp_path / "large.yaml").write_text(PLAYBOOK)
    env = environment(moto_bucket)
    run = home.json("run", "large.yaml", env=env)
    assert run["status"] == "COMPLETED", run
    client = s3_client(moto_server)
    found = client.list_objects_v2(Bucket=moto_bucket.url.removeprefix("s3://"))["Contents"]
    client.close()
    assert all(item["Key"].startswith("payloads/") for item in found)
    assert max(item["Size"] for item in found) > 100
    shown = home.json("result", run["execution_id"], "start", env=env)
    assert "0123456789" in str(shown)
    assert home.run("verify", run["execution_id"], env=env).code == 0


def test_a_bucket_that_is_not_there_is_a_dependency_that_is_unavailable(tmp_path: Path, moto_bucket: Bucket) -> None:
    (tmp_path / "large.yaml").write_text(PLAYBOOK)
    env = environment(moto_bucket) | {"NOETL_PAYLOADS__URL": "s3://no-such-bucket"}
    done = Home(tmp_path / "home").run("run", "large.yaml", env=env)
    assert done.code == 3
    assert "s3://no-such-bucket" in done.stderr
    assert "the bucket does not exist (NoSuchBucket)" in done.stderr
    assert "create it, or correct the name in the url" in done.stderr
    assert SECRET not in done.stderr
