# SPDX-License-Identifier: Apache-2.0
"""The command line: `ooospec generate | demo | selfcheck | doctor | serve | sidecar | front`,
`bench | replay | estimate` to compare, `trace | train | eval-sidecar` for sidecars, and
`requests synth | build` for data.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence as Seq

import typer

from ooospec.cli.bench import bench
from ooospec.cli.build import build_requests
from ooospec.cli.demo import demo
from ooospec.cli.doctor import doctor
from ooospec.cli.estimate import estimate
from ooospec.cli.eval_sidecar import eval_sidecar
from ooospec.cli.front import front
from ooospec.cli.generate import generate
from ooospec.cli.replay import replay
from ooospec.cli.selfcheck import selfcheck
from ooospec.cli.serve import serve
from ooospec.cli.sidecar import sidecar
from ooospec.cli.synth import requests
from ooospec.cli.trace import trace
from ooospec.cli.train import train
from ooospec.errors import OoospecError
from ooospec.version import VERSION

app = typer.Typer(
    name="ooospec",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(generate)
app.command()(demo)
app.command()(selfcheck)
app.command()(doctor)
app.command()(serve)
app.command()(bench)
app.command()(replay)
app.command()(sidecar)
app.command()(front)
app.command()(estimate)
app.command()(trace)
app.command()(train)
app.command("eval-sidecar")(eval_sidecar)
requests.command("build")(build_requests)
app.add_typer(requests, name="requests")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(VERSION)
        raise typer.Exit


@app.callback()
def ooospec(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Tool calls in a few forward passes, exact to the token.

    Start with `ooospec doctor`, then `ooospec demo`.
    """


def main(args: Seq[str] | None = None) -> None:
    """Runs the command line and exits: 0 well, 1 a check failed or a bug, 2 bad input."""
    sys.exit(run(sys.argv[1:] if args is None else args))


def run(args: Seq[str], commands: typer.Typer = app, name: str = "ooospec") -> int:
    """Runs one command and returns its exit code. Errors are one sentence on stderr."""
    if sys.stdout is None:  # started with it closed
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    options = [arg for arg in args if arg != "--debug"]
    debug = len(options) < len(args)
    try:
        code = commands(options or ["--help"], prog_name=name, standalone_mode=False) or 0
        sys.stdout.flush()
        return code
    except (BrokenPipeError, SystemExit) as error:  # click exits where the pipe breaks
        if not any(isinstance(one, BrokenPipeError) for one in (error, error.__context__)):
            raise
        _drop_output()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", 130)
    except Exception as error:
        if debug:
            traceback.print_exc()
        if hasattr(error, "format_message"):  # a wrong option or argument
            said = str(error.format_message()).strip().replace("\n", " ")
            return _say(said, 2) if said else 2  # nothing: its help was shown
        if isinstance(error, OoospecError):
            return _say(str(error), 2)
        if isinstance(error, OSError):
            if error.filename is None:  # a full disk behind our output, say
                _drop_output()
            where = error.filename or "output"
            return _say(f"{where}: expected the system to do it, got {error.strerror}", 1)
        hint = "" if debug else " (a bug; --debug shows where)"
        return _say(f"{type(error).__name__}: {error}{hint}", 1)


def _drop_output() -> None:
    """Sends what standard output still holds nowhere, else Python tries again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str, code: int) -> int:
    print(f"ooospec: {message}", file=sys.stderr)
    return code
