"""Settings: layers, places and every message a person can meet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from noetl.errors import InvalidInput, InvalidSetting
from noetl.settings import Settings, find_file, load, resolve_home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project directory whose `noetl.toml` the test writes."""
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def write(project: Path, text: str) -> Path:
    file = project / "noetl.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refusal(project: Path, **environ: str) -> str:
    with pytest.raises(InvalidSetting) as caught:
        load(environ=environ, cwd=project)
    return str(caught.value)


class TestLayers:
    def test_everything_has_a_default(self, project: Path) -> None:
        settings = load(environ={}, cwd=project)

        assert settings == Settings()
        assert {item.source for item in settings.items()} == {"default"}

    def test_the_defaults_are_the_documented_ones(self) -> None:
        assert {item.name: item.text for item in Settings().items()} == {
            "tenant.id": "default",
            "tenant.organization": "default",
            "tenant.project": "default",
            "ledger.url": "",
            "ledger.mode": "direct",
            "ledger.connections": "10",
            "ledger.busy_timeout": "10s",
            "snapshots.every": "10000",
            "snapshots.on_completion": "5000",
            "snapshots.sample": "10",
            "snapshots.keep": "3",
            "payloads.url": "",
            "payloads.options": "",
            "payloads.routes": "",
            "payloads.memory": "64MiB",
            "payloads.shared_memory": "1GiB",
            "payloads.disk_cache": "8GiB",
            "payloads.verify_ipc": "false",
            "payloads.encrypt": "false",
            "payloads.replica": "",
            "payloads.replica_options": "",
            "payloads.step_scope": "1d",
            "payloads.grace": "1d",
            "archive.url": "",
            "archive.options": "",
            "archive.on_completion": "false",
            "archive.payloads": "false",
            "effects.barrier": "false",
            "retention.min_age": "30d",
            "retention.every": "",
            "place.env": "dev",
            "place.region": "local",
            "place.cell": "local-a",
            "place.zone": "",
            "place.node": "",
            "place.cluster": "",
            "tools.slots": "",
            "tools.at_once": "",
            "tools.shell": "true",
            "tools.http_link_local": "false",
            "tools.http_in_memory": "8MiB",
            "tools.http_in_file": "8GiB",
            "tools.python_processes": "",
            "tools.python_memory": "4GiB",
            "tools.python_time": "",
            "tools.python_cache": "",
            "tools.duckdb_extensions": "",
            "tools.artifact_roots": "",
            "spark.master": "local[*]",
            "spark.remote": "",
            "spark.conf": "",
            "spark.ui": "true",
            "spark.start": "2m",
            "env.allow": "",
            "server.host": "127.0.0.1",
            "server.port": "8082",
            "server.auth": "none",
            "server.workers": "",
            "server.lease": "2m",
            "server.stages": "auto",
            "server.drain": "30s",
            "server.start": "30s",
            "server.retention": "",
            "nats.url": "",
            "nats.credentials": "",
            "nats.streams": "1",
            "nats.replicas": "1",
            "nats.keep": "7d",
            "nats.codec": "json",
            "nats.patience": "5s",
            "nats.monitor": "",
            "nats.wal_unsafe": "false",
            "projector.shard": "",
            "projector.batch": "500",
            "projector.settle": "30s",
            "projector.walk": "30s",
            "observe.otlp": "",
            "quotas.running": "",
            "quotas.starts_per_minute": "",
            "quotas.events_per_minute": "",
            "quotas.tokens": "",
            "quotas.tenants": "",
            "lake.path": "",
            "lake.grace": "1d",
            "prices.currency": "EUR",
            "prices.second": "0",
            "prices.pools": "",
            "prices.execution": "0",
            "prices.million_rows": "0",
            "prices.stored_gib": "0",
        }

    def test_the_file_overrides_the_defaults_and_is_named_with_its_line(self, project: Path) -> None:
        file = write(project, '# ours\n[tenant]\nid = "acme"\n\n[ledger]\nbusy_timeout = "30s"\n')

        settings = load(environ={}, cwd=project)

        assert settings.tenant.id == "acme"
        assert settings.ledger.busy_timeout == 30.0
        assert settings.source("tenant.id") == f"{file}:3"
        assert settings.source("ledger.busy_timeout") == f"{file}:6"
        assert settings.source("tenant.project") == "default"

    def test_the_file_is_found_from_a_directory_below(self, project: Path) -> None:
        write(project, "[snapshots]\nevery = 5\n")
        below = project / "a" / "b"
        below.mkdir(parents=True)

        assert load(environ={}, cwd=below).snapshots.every == 5

    def test_the_nearest_file_wins_and_files_are_not_merged(self, project: Path) -> None:
        write(project, '[tenant]\nid = "outer"\nproject = "outer"\n')
        inner = project / "inner"
        inner.mkdir()
        file = write(inner, '[tenant]\nid = "inner"\n')

        settings = load(environ={}, cwd=inner)

        assert find_file(inner) == file
        assert (settings.tenant.id, settings.tenant.project) == ("inner", "default")

    def test_the_environment_overrides_the_file(self, project: Path) -> None:
        write(project, "[snapshots]\nevery = 5\n")

        settings = load(environ={"NOETL_SNAPSHOTS__EVERY": "7"}, cwd=project)

        assert settings.snapshots.every == 7
        assert settings.source("snapshots.every") == "NOETL_SNAPSHOTS__EVERY"

    def test_a_flag_overrides_the_environment(self, project: Path) -> None:
        settings = load(
            environ={"NOETL_LEDGER__BUSY_TIMEOUT": "1s"}, cwd=project, flags={"ledger.busy_timeout": "250ms"}
        )

        assert settings.ledger.busy_timeout == 0.25
        assert settings.source("ledger.busy_timeout") == "--ledger-busy-timeout"

    def test_a_flag_that_was_not_given_changes_nothing(self, project: Path) -> None:
        assert load(environ={}, cwd=project, flags={"tenant.id": None}) == Settings()

    @pytest.mark.parametrize("variable", ["NOETL_HOME", "NOETL_PORT", "OTHER__KEY", "HOME"])
    def test_variables_that_are_not_settings_are_left_alone(self, project: Path, variable: str) -> None:
        assert load(environ={variable: "x"}, cwd=project) == Settings()

    def test_a_view_gives_value_text_and_source(self, project: Path) -> None:
        settings = load(environ={"NOETL_PAYLOADS__MEMORY": "65536"}, cwd=project)

        shown = next(item for item in settings.items() if item.name == "payloads.memory")

        assert shown == ("payloads.memory", 65536, "64KiB", "NOETL_PAYLOADS__MEMORY")

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ('tenant.id = "acme"\n', 1),
            ('\ntenant = { id = "acme" }\n', 2),
            ("[ tenant ]\n\n'id' = \"acme\"\n", 3),
            ('[place]\nenv = "prod"\n[tenant]\nid = "acme"\n', 4),
        ],
    )
    def test_the_line_is_found_in_every_ordinary_layout(self, project: Path, text: str, line: int) -> None:
        file = write(project, text)

        assert load(environ={}, cwd=project).source("tenant.id") == f"{file}:{line}"

    def test_an_unusual_layout_falls_back_to_the_path_of_the_file(self, project: Path) -> None:
        file = write(project, '"tenant".id = "acme"\n')

        assert load(environ={}, cwd=project).source("tenant.id") == str(file)


class TestMessages:
    """A person meets these texts, so they are pinned whole."""

    def test_an_unknown_key(self, project: Path) -> None:
        file = write(project, "[ledger]\nbusy_timeuot = 3\n")
        assert refusal(project) == (f"{file}:2: unknown key in [ledger] 'busy_timeuot' (did you mean 'busy_timeout'?)")

    def test_an_unknown_key_that_resembles_nothing(self, project: Path) -> None:
        file = write(project, "[tenant]\nxyz = 3\n")
        assert refusal(project) == f"{file}:2: unknown key in [tenant] 'xyz' (known: id, organization, project)"

    def test_an_unknown_section(self, project: Path) -> None:
        file = write(project, "[tenannt]\nid = 3\n")
        assert refusal(project) == f"{file}:1: unknown section 'tenannt' (did you mean 'tenant'?)"

    def test_an_unknown_section_that_resembles_nothing(self, project: Path) -> None:
        file = write(project, "\nhome = 3\n")
        sections = ", ".join(dict.fromkeys(item.name.partition(".")[0] for item in Settings().items()))
        assert refusal(project) == f"{file}:2: unknown section 'home' (known: {sections})"

    def test_a_value_where_a_section_belongs(self, project: Path) -> None:
        file = write(project, 'tenant = "acme"\n')
        assert refusal(project) == f"{file}:1: 'tenant' is a section, not a value (write [tenant] above its keys)"

    def test_an_unknown_variable(self, project: Path) -> None:
        assert refusal(project, NOETL_LEDGER__BUSY="1s") == (
            "NOETL_LEDGER__BUSY: unknown key in [ledger] 'busy' (known: url, mode, connections, busy_timeout)"
        )
        assert refusal(project, NOETL_LEGDER__BUSY_TIMEOUT="1s") == (
            "NOETL_LEGDER__BUSY_TIMEOUT: unknown section 'legder' (did you mean 'ledger'?)"
        )

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("tenant.idd", "--tenant-idd: unknown key in [tenant] 'idd' (did you mean 'id'?)"),
            ("tennant.id", "--tennant-id: unknown section 'tennant' (did you mean 'tenant'?)"),
            ("tenant", "--tenant: unknown key in [tenant] '' (known: id, organization, project)"),
        ],
    )
    def test_an_unknown_flag(self, project: Path, name: str, message: str) -> None:
        with pytest.raises(InvalidSetting) as caught:
            load(environ={}, cwd=project, flags={name: "x"})
        assert str(caught.value) == message

    def test_text_that_is_not_text(self, project: Path) -> None:
        file = write(project, "[tenant]\nid = 5\n")
        assert refusal(project) == f'{file}:2: tenant.id: expected text, found 5 (write it in quotes: "5")'

    def test_text_that_is_empty(self, project: Path) -> None:
        file = write(project, '[place]\nzone = " "\n')
        assert refusal(project) == (
            f"{file}:2: place.zone: expected text, found nothing (remove the key to use its default)"
        )

    @pytest.mark.parametrize(
        ("text", "shown"), [('"many"', "'many'"), ("0", "0"), ("1.5", "1.5"), ("true", "true"), ('"1__0"', "'1__0'")]
    )
    def test_a_count_that_is_not_one(self, project: Path, text: str, shown: str) -> None:
        file = write(project, f"[snapshots]\nkeep = {text}\n")
        assert refusal(project) == (f"{file}:2: snapshots.keep: expected a whole number of at least 1, found {shown}")

    @pytest.mark.parametrize(
        ("text", "shown"), [('"none"', "'none'"), ("-1", "-1"), ("0.0", "0.0"), ("false", "false"), ('"00"', "'00'")]
    )
    def test_an_amount_that_is_not_one(self, project: Path, text: str, shown: str) -> None:
        file = write(project, f"[snapshots]\nevery = {text}\n")
        assert refusal(project) == (f"{file}:2: snapshots.every: expected a whole number of at least 0, found {shown}")

    @pytest.mark.parametrize("text", ["0", '"0"'])
    def test_an_amount_may_be_nothing(self, project: Path, text: str) -> None:
        write(project, f"[snapshots]\nevery = {text}\n")
        assert load(environ={}, cwd=project).snapshots.every == 0

    def test_a_duration_that_is_not_one(self, project: Path) -> None:
        assert refusal(project, NOETL_LEDGER__BUSY_TIMEOUT="10 parsecs") == (
            "NOETL_LEDGER__BUSY_TIMEOUT: ledger.busy_timeout: '10 parsecs' is not a duration "
            "(write a number and one of us, ms, s, m, h, d, such as 30s)"
        )

    def test_a_size_that_is_not_one(self, project: Path) -> None:
        file = write(project, "[payloads]\nmemory = true\n")
        assert refusal(project) == (
            f"{file}:2: payloads.memory: true is not a size "
            "(write a number and one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB, such as 64MiB)"
        )

    def test_a_file_that_is_not_toml(self, project: Path) -> None:
        file = write(project, "[tenant\n")
        assert refusal(project).startswith(f"{file} is not valid TOML: ")
        assert "line 1" in refusal(project)

    def test_a_file_that_is_not_text(self, project: Path) -> None:
        file = project / "noetl.toml"
        file.write_bytes(b"[tenant]\nid = '\xff'\n")
        assert refusal(project) == f"{file} is not UTF-8 text (byte 15 cannot be decoded)"

    def test_a_file_that_cannot_be_read(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = write(project, "")

        def refuse(*_: object, **__: object) -> str:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "read_text", refuse)
        assert refusal(project) == f"{file} cannot be read: Permission denied"

    def test_they_are_the_caller_s_to_correct(self) -> None:
        assert issubclass(InvalidSetting, InvalidInput)


class TestHome:
    def test_the_flag_comes_first(self, project: Path) -> None:
        write(project, "")
        assert resolve_home("/data/a", {"NOETL_HOME": "/data/b"}, project) == Path("/data/a")

    def test_then_the_environment(self, project: Path) -> None:
        write(project, "")
        assert resolve_home(None, {"NOETL_HOME": "/data/b"}, project) == Path("/data/b")

    def test_then_the_nearest_project(self, project: Path) -> None:
        write(project, "")
        below = project / "below"
        below.mkdir()
        assert resolve_home(None, {"HOME": "/home/ada", "NOETL_HOME": ""}, below) == project / ".noetl"

    def test_then_the_user(self, project: Path) -> None:
        assert resolve_home(None, {"HOME": "/home/ada"}, project) == Path("/home/ada/.noetl")
        assert resolve_home(None, {}, project) == Path.home() / ".noetl"

    def test_a_relative_home_counts_from_the_working_directory(self, project: Path) -> None:
        assert resolve_home("data", {}, project) == project / "data"
        assert resolve_home(Path("data"), {}, project) == project / "data"

    def test_a_tilde_is_the_user_s_directory(self, project: Path) -> None:
        assert resolve_home("~/data", {"HOME": "/home/ada"}, project) == Path("/home/ada/data")
        assert resolve_home("~", {"HOME": "/home/ada"}, project) == Path("/home/ada")


def test_importing_settings_loads_nothing_it_may_not_need() -> None:
    heavy = ["asyncio", "difflib", "pyarrow", "rich", "sqlite3", "tomllib"]
    program = f"import sys, noetl.settings; sys.exit(','.join(set({heavy}) & set(sys.modules)))"

    outcome = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)

    assert outcome.stderr.strip() == ""


def test_the_reference_page_lists_every_setting_with_its_default() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
    rows = [line.split(" | ")[:2] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    documented = {
        name.strip("| `"): default.strip("`") for name, default in rows if "." in name and name != "| `noetl.toml`"
    }

    assert documented == {item.name: item.text or "not set" for item in Settings().items()}


class TestFlagsAndLists:
    def test_a_file_writes_them_as_toml_does(self, project: Path) -> None:
        write(project, '[tools]\nshell = false\nartifact_roots = ["/data", "/out"]\npython_processes = 3\n')
        tools = load(environ={}, cwd=project).tools
        assert (tools.shell, tools.artifact_roots, tools.python_processes) == (False, ("/data", "/out"), 3)

    def test_the_environment_writes_them_as_text(self, project: Path) -> None:
        environ = {"NOETL_TOOLS__SHELL": "False", "NOETL_ENV__ALLOW": "REGION, STAGE", "NOETL_TOOLS__PYTHON_TIME": "2m"}
        settings = load(environ=environ, cwd=project)
        assert (settings.tools.shell, settings.env.allow, settings.tools.python_time) == (
            False,
            ("REGION", "STAGE"),
            120.0,
        )

    def test_what_is_neither_is_refused(self, project: Path) -> None:
        assert "NOETL_TOOLS__SHELL: tools.shell: expected true or false, found 'maybe'" in refusal(
            project, NOETL_TOOLS__SHELL="maybe"
        )
        write(project, "[env]\nallow = 3\n")
        assert "env.allow: expected a list of texts, found 3" in refusal(project)


class TestDatabase:
    @pytest.mark.parametrize(
        ("address", "shown"),
        [
            ("postgresql://ada:s3cret@db.example.com:5432/noetl", "postgresql://ada:***@db.example.com:5432/noetl"),
            (
                "postgres://ada@db.example.com/noetl?sslmode=require",
                "postgres://ada@db.example.com/noetl?sslmode=require",
            ),
            ("postgresql://db/noetl?user=ada&password=s3cret&x=1", "postgresql://db/noetl?user=ada&password=***&x=1"),
            ("host=db dbname=noetl password=s3cret user=ada", "host=db dbname=noetl password=*** user=ada"),
            ("host=db password='s3 c\\'ret' user=ada", "host=db password=*** user=ada"),
        ],
    )
    def test_the_password_is_shown_nowhere(self, project: Path, address: str, shown: str) -> None:
        settings = load(environ={"NOETL_DATABASE": address}, cwd=project)

        assert settings.ledger.url == address
        assert settings.source("ledger.url") == "NOETL_DATABASE"
        (item,) = [item for item in settings.items() if item.name == "ledger.url"]
        assert (item.text, item.value) == (shown, shown)

    def test_the_longer_name_means_the_same(self, project: Path) -> None:
        assert load(environ={"NOETL_LEDGER__URL": "host=db"}, cwd=project).ledger.url == "host=db"
        assert load(environ={"NOETL_DATABASE": ""}, cwd=project).ledger.url is None

    @pytest.mark.parametrize(
        ("address", "said"), [("mysql://db/x", "found one of mysql"), ("noetl", "Postgres database")]
    )
    def test_another_database_is_refused(self, project: Path, address: str, said: str) -> None:
        with pytest.raises(InvalidSetting, match=rf"NOETL_DATABASE: ledger\.url: .*{said}.*postgresql://"):
            load(environ={"NOETL_DATABASE": address}, cwd=project)
