"""What a command line and a settings library cost before the first line of our own code runs.

    python scripts/measure_startup.py [--runs 20]

Makes a throwaway virtual environment with the newest release of each candidate, writes the same small
program (eight commands, an option and an argument each) once per candidate, and times the programs
alternately so that a busy moment of the machine hurts all of them alike. Prints a table of medians.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

CANDIDATES = ("click", "cyclopts", "msgspec", "pydantic-settings")

COMMANDS = ("imports", "exports", "listing", "events", "replay", "diff", "verify", "view")

CLICK_COMMAND = """
@main.command()
@click.argument("execution")
@click.option("--at-position", type=int, help="Replay up to this position.")
def {name}(execution: str, at_position: int | None) -> None:
    "Say what {name} does."
"""

CYCLOPTS_COMMAND = """
@app.command
def {name}(execution: str, *, at_position: int | None = None) -> None:
    "Say what {name} does."
"""

SETTINGS_FIELDS = "id: str = 'default'; project: str = 'default'; every: int = 10_000"

MSGSPEC_SETTINGS = f"""
import msgspec
class Settings(msgspec.Struct, frozen=True):
    {SETTINGS_FIELDS}
msgspec.convert({{"every": "5"}}, Settings, strict=False)
"""

PYDANTIC_SETTINGS = f"""
from pydantic_settings import BaseSettings
class Settings(BaseSettings):
    {SETTINGS_FIELDS}
Settings()
"""


def programs() -> dict[str, tuple[str, list[str]]]:
    """Each thing to time: its source and its arguments."""
    click = "import click\n@click.group()\ndef main() -> None: 'Proven pipelines.'\n"
    click += "".join(CLICK_COMMAND.format(name=name) for name in COMMANDS) + "\nmain()\n"
    cyclopts = "import cyclopts\napp = cyclopts.App(help='Proven pipelines.')\n"
    cyclopts += "".join(CYCLOPTS_COMMAND.format(name=name) for name in COMMANDS) + "\napp()\n"
    return {
        "python -c pass": ("pass", []),
        "import click": ("import click", []),
        "import cyclopts": ("import cyclopts", []),
        "click, --help": (click, ["--help"]),
        "cyclopts, --help": (cyclopts, ["--help"]),
        "click, one command": (click, ["verify", "1"]),
        "cyclopts, one command": (cyclopts, ["verify", "1"]),
        "msgspec settings": (MSGSPEC_SETTINGS, []),
        "pydantic-settings": (PYDANTIC_SETTINGS, []),
    }


def run_once(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1000


def measure(python: Path, directory: Path, runs: int) -> dict[str, float]:
    """The median milliseconds of each program, after one run that warms caches and byte code."""
    commands: dict[str, list[str]] = {}
    for number, (name, (source, arguments)) in enumerate(programs().items()):
        script = directory / f"program_{number}.py"
        script.write_text(source)
        commands[name] = [str(python), str(script), *arguments]
    for command in commands.values():
        run_once(command)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(run_once(command))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        venv.create(directory / "venv", with_pip=True)
        python = directory / "venv" / "bin" / "python"
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *CANDIDATES], check=True)
        medians = measure(python, directory, runs)
    floor = medians["python -c pass"]
    sys.stdout.write("| program | median ms | x python |\n|---|---:|---:|\n")
    for name, median in medians.items():
        sys.stdout.write(f"| {name} | {median:.0f} | {median / floor:.1f} |\n")


if __name__ == "__main__":
    main()
