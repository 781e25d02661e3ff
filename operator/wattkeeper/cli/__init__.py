"""The command line: one module a command, loaded when it is called.

A command's module has a `typer.Typer` named `app`; one with subcommands gives it a callback, so that Typer
makes it a group. To add a command, add a line to `COMMANDS`. What a command imports costs nobody else
anything: `wattkeeper plan` loads no kopf, the operator no rich.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class Command:
    """A command, the module that holds it, and its line in the help."""

    name: str
    module: str
    help: str


COMMANDS = (
    Command("plan", "wattkeeper.cli.plan", "Say where LLMDeployments would be placed, without a cluster."),
    Command("tax", "wattkeeper.cli.tax", "The parking tax: what an idle CUDA context costs a GPU."),
    Command("simulate", "wattkeeper.cli.simulate", "What parking would have saved on a trace or a fleet."),
    Command("estimate", "wattkeeper.cli.fleet_estimate", "What idle contexts cost a fleet in a year."),
    Command("operator", "wattkeeper.cli.operator", "The operator that places LLMDeployments in a cluster."),
)


class LazyGroup(TyperGroup):
    """Knows its commands by name and help; imports the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [command.name for command in COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What help and completion show of a command."""
        found = _by_name(cmd_name)
        return TyperCommand(found.name, help=found.help) if found else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself; for an unknown name the error that suggests a near one."""
        found = _by_name(args[0])
        if found is None:
            return super().resolve_command(ctx, args)
        return found.name, get_command(import_module(found.module).app), args[1:]


def _by_name(name: str) -> Command | None:
    return next((command for command in COMMANDS if command.name == name), None)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(metadata.version("wattkeeper"))
        raise typer.Exit


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def wattkeeper(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Power-aware placement and parking for self-hosted LLMs on Kubernetes."""
