"""The files of deployments: they are up to date, valid by their schemas, and say only what is true of the program."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import httpx
import jsonschema
import kubernetes_validate
import pytest
import yaml

from noetl.cli.app import cli
from noetl.cli.exits import run_guarded
from noetl.deploy import compose, kubernetes, roles
from noetl.deploy.compose import compose_file
from noetl.deploy.dockerfile import docker_file
from noetl.deploy.kubernetes import kubernetes_files
from noetl.deploy.secrets import compose_secrets, kubernetes_secrets
from noetl.deploy.shape import Shape, settings_of_all
from noetl.errors import InvalidSetting
from noetl.kernel.event import Json
from noetl.runtime.probe import probed
from noetl.server import health

ROOT = Path(__file__).resolve().parents[3]
LARGE = Shape(image="registry.example.com/noetl:2.1", workers=7, projectors=5, spark=0, settings={"nats.streams": "4"})
SHAPES = [Shape(), LARGE]


def manifests(shape: Shape) -> dict[str, list[Json]]:
    return {name: list(yaml.safe_load_all(text)) for name, text in kubernetes_files(shape).items()}


def objects(shape: Shape) -> Iterator[Json]:
    for name, documents in manifests(shape).items():
        if name != "kustomization.yaml":
            yield from documents


def pods(shape: Shape) -> Iterator[tuple[str, Json]]:
    for document in objects(shape):
        if document["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def containers(shape: Shape) -> Iterator[tuple[str, Json]]:
    for _, pod in pods(shape):
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            yield container["name"], container


def services(shape: Shape) -> dict[str, Json]:
    found: dict[str, Json] = yaml.safe_load(compose_file(shape))["services"]
    return found


def ours(shape: Shape) -> dict[str, Json]:
    return {name: service for name, service in services(shape).items() if "build" in service}


def with_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: re.sub(r"\$\{[^}]*\}", "0" * 64, value) for name, value in environment.items()}


def leaf_of(arguments: Sequence[str]) -> tuple[click.Command, list[str]]:
    """The command that a command line means, and what is left for it."""
    found: click.Command = cli
    rest = list(arguments)
    while isinstance(found, click.Group):
        command = found.get_command(click.Context(found), rest[0])
        assert command is not None, arguments
        found, rest = command, rest[1:]
    return found, rest


def parse(arguments: Sequence[str], environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Json:
    """What the real command line makes of it. Raises a usage error for what it does not understand."""
    command, rest = leaf_of(arguments)
    with monkeypatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        return command.make_context("noetl", rest).params


class TestFiles:
    def test_what_is_committed_is_what_is_generated(self, capsys: pytest.CaptureFixture[str]) -> None:
        for kind in ("compose", "kubernetes"):
            assert run_guarded(cli, ["deploy", kind, "--check", "--out", str(ROOT / "deploy")]) == 0
        present = {path.name for path in (ROOT / "deploy" / "kubernetes").iterdir()}
        assert present == kubernetes_files(Shape()).keys()

    def test_a_file_that_was_changed_is_found(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out = ["--out", str(tmp_path), "--json"]
        assert run_guarded(cli, ["deploy", "compose", *out]) == 0
        assert json.loads(capsys.readouterr().out)["written"] == ["compose.yaml", "Dockerfile"]
        assert run_guarded(cli, ["deploy", "compose", *out]) == 0
        assert json.loads(capsys.readouterr().out)["written"] == []
        (tmp_path / "compose.yaml").write_text("changed")
        assert run_guarded(cli, ["deploy", "compose", *out, "--check"]) == 4
        assert json.loads(capsys.readouterr().out)["differing"] == ["compose.yaml"]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("payloads.ulr=x", "did you mean 'url'?"),
            ("server.drain=often", "server.drain"),
            ("nothing", "is not SECTION.KEY=VALUE"),
        ],
    )
    def test_a_setting_that_there_is_not_is_refused(
        self, given: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run_guarded(cli, ["deploy", "kubernetes", "--set", given, "--out", str(tmp_path)]) == 2
        assert list(tmp_path.iterdir()) == []
        assert message in capsys.readouterr().err

    def test_where_nothing_can_be_written_that_is_said(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "file").write_text("")
        assert run_guarded(cli, ["deploy", "compose", "--out", str(tmp_path / "file")]) == 3
        assert "choose another --out" in capsys.readouterr().err


class TestSchemas:
    @pytest.mark.parametrize("shape", SHAPES, ids=["usual", "large"])
    def test_the_compose_file_is_valid(self, shape: Shape) -> None:
        schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
        jsonschema.validate(yaml.safe_load(compose_file(shape)), schema)

    @pytest.mark.parametrize("release", ["1.28", "1.34"])
    @pytest.mark.parametrize("shape", SHAPES, ids=["usual", "large"])
    def test_the_manifests_are_valid(self, shape: Shape, release: str) -> None:
        for document in objects(shape):
            kubernetes_validate.validate(document, release, strict=True)

    def test_a_misspelt_field_would_be_found(self) -> None:
        document = next(objects(Shape()))
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**document, "dataa": {}}, "1.34", strict=True)

    def test_the_secret_is_valid(self) -> None:
        document = yaml.safe_load(kubernetes_secrets("postgresql://noetl@db/noetl", "nats://nats:4222"))
        kubernetes_validate.validate(document, "1.34", strict=True)

    def test_all_manifests_are_applied_together(self) -> None:
        found = manifests(Shape())
        assert sorted(found.pop("kustomization.yaml")[0]["resources"]) == sorted(found)


class TestCommands:
    @pytest.mark.parametrize("shape", SHAPES, ids=["usual", "large"])
    def test_every_command_line_is_understood(self, shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, container in containers(shape):
            environment = {one["name"]: one.get("value", "x") for one in container["env"]}
            assert parse(container["args"], environment, monkeypatch), name
        for service in ours(shape).values():
            parse(service["command"], with_secrets(service["environment"]), monkeypatch)

    def test_a_command_line_that_is_wrong_would_be_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(click.UsageError):
            parse(["outbox", "--comands"], {}, monkeypatch)

    @pytest.mark.parametrize("shape", SHAPES, ids=["usual", "large"])
    def test_every_setting_exists_and_can_have_its_value(self, shape: Shape) -> None:
        for service in ours(shape).values():
            roles.settings_in(with_secrets(service["environment"]))
        config = next(one for one in objects(shape) if one["kind"] == "ConfigMap")
        settings = roles.settings_in(config["data"])
        assert (settings.server.host, settings.server.port) == ("0.0.0.0", 8082)
        assert settings_of_all(shape).items() <= config["data"].items()
        assert settings.payloads.url == kubernetes.STORES["payloads.url"]
        assert settings.archive.url == kubernetes.STORES["archive.url"]
        secret = dict.fromkeys(kubernetes.SECRETS, "postgresql://x/y")
        roles.settings_in(secret)

    def test_a_setting_that_is_misspelt_would_be_found(self) -> None:
        with pytest.raises(InvalidSetting, match="could not be deployed"):
            roles.variables({"nats.ulr": "x"})

    def test_shares_of_projectors_are_all_there(self) -> None:
        shards = [service["command"][3] for name, service in ours(LARGE).items() if name.startswith("projector")]
        assert shards == ["0/5", "1/5", "2/5", "3/5", "4/5"]
        stateful = next(one for one in objects(LARGE) if one["kind"] == "StatefulSet")
        arguments = stateful["spec"]["template"]["spec"]["containers"][0]["args"]
        assert (arguments[3], stateful["spec"]["replicas"]) == ("host/5", 5)


class TestProbes:
    async def test_probes_ask_what_is_answered(self) -> None:
        async def summary() -> Json:
            return {"ok": True}

        async def levels(_: Any) -> None: ...

        routes = {route.path for route in health.router.routes}  # type: ignore[attr-defined]  # all of them have one
        async with (
            probed("127.0.0.1", 0, summary, levels) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
        ):
            for name, container in containers(Shape()):
                for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                    if kind in container:
                        path = container[kind]["httpGet"]["path"]
                        answered = path in routes if name == "server" else (await client.get(path)).is_success
                        assert answered, (name, path)

    def test_whatever_serves_is_probed_and_ends_in_its_own_time(self) -> None:
        for name, pod in pods(Shape()):
            main = pod["containers"][0]
            if name.startswith("noetl-migrate"):
                continue
            ports = {one["name"] for one in main["ports"]}
            assert {main[kind]["httpGet"]["port"] for kind in ("readinessProbe", "livenessProbe")} <= ports
            assert pod["terminationGracePeriodSeconds"] >= 30


class TestHardening:
    @pytest.mark.parametrize("shape", SHAPES, ids=["usual", "large"])
    def test_nobody_is_root_or_writes_where_it_should_not(self, shape: Shape) -> None:
        for _, pod in pods(shape):
            assert pod["securityContext"]["runAsNonRoot"]
            assert pod["automountServiceAccountToken"] is False
        for _, container in containers(shape):
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert {"requests", "limits"} == container["resources"].keys()
        for service in ours(shape).values():
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]

    def test_workers_know_nothing_of_the_database(self) -> None:
        for name, container in containers(Shape()):
            if name in ("worker", "spark"):
                assert not {one["name"] for one in container["env"]} & {"NOETL_LEDGER__URL", "NOETL_WALLET__KEK"}
        for name in ("worker", "spark"):
            assert "NOETL_LEDGER__URL" not in services(Shape())[name]["environment"]

    def test_every_secret_that_is_asked_for_is_made(self) -> None:
        asked = {
            one["valueFrom"]["secretKeyRef"]["key"]
            for _, container in containers(Shape())
            for one in container["env"]
            if "valueFrom" in one
        }
        made = yaml.safe_load(kubernetes_secrets("postgresql://noetl@db/noetl", "nats://nats:4222"))["stringData"]
        assert asked == made.keys() == set(kubernetes.SECRETS)
        wanted = set(re.findall(r"\$\{(\w+)", compose_file(Shape())))
        lines = [line for line in compose_secrets().splitlines() if not line.startswith("#")]
        assert wanted == {line.partition("=")[0] for line in lines} == set(compose.SECRETS)

    def test_secrets_are_new_each_time(self) -> None:
        assert compose_secrets() != compose_secrets()

    def test_a_secret_for_kubernetes_needs_to_know_what_is_there(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run_guarded(cli, ["deploy", "secrets", "--kubernetes"]) == 2
        assert "--database and --nats" in capsys.readouterr().err
        assert run_guarded(cli, ["deploy", "secrets"]) == 0
        assert "NOETL_WORKER_TOKEN=ntl_" in capsys.readouterr().out

    def test_every_pod_is_closed_to_others_but_by_name(self) -> None:
        policies = [one for one in objects(Shape()) if one["kind"] == "NetworkPolicy"]
        closed = next(one for one in policies if one["metadata"]["name"] == "noetl-closed")
        assert closed["spec"]["policyTypes"] == ["Ingress"]
        assert "ingress" not in closed["spec"]
        for document in objects(Shape()):
            if document["kind"] in ("Deployment", "StatefulSet", "Job"):
                labels = document["spec"]["template"]["metadata"]["labels"]
                assert closed["spec"]["podSelector"]["matchLabels"].items() <= labels.items()

    def test_selectors_find_their_pods(self) -> None:
        found = list(objects(Shape()))
        pods = [one["spec"]["template"]["metadata"]["labels"] for one in found if "template" in one.get("spec", {})]
        for one in found:
            if one["kind"] in ("Service", "PodDisruptionBudget", "Deployment", "StatefulSet"):
                selector = one["spec"]["selector"]
                wanted = selector.get("matchLabels", selector)
                assert sum(wanted.items() <= labels.items() for labels in pods) == 1, one["metadata"]["name"]


class TestDockerfile:
    def test_it_copies_what_there_is(self) -> None:
        sources = re.findall(r"^COPY (?!--from)(.+) \S+$", docker_file(), re.MULTILINE)
        for source in " ".join(sources).split():
            assert (ROOT / source).exists(), source
        for lock in re.findall(r"/src/(requirements/\S+)", docker_file()):
            assert (ROOT / lock).exists(), lock

    def test_it_ends_as_somebody_who_is_not_root(self) -> None:
        for stage in docker_file().split("FROM ")[3:]:
            assert re.findall(r"^USER (\S+)$", stage, re.MULTILINE)[-1] == "10001"
