"""Typer groups that import a command's module when the command is wanted, and commands that start quickly.

Every TAB press and every script line starts the program anew, so what a command does not need is not imported:
neither the other commands, nor pydantic, which Typer loads (75 ms here) to turn option texts into values.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import typer
from typer import main as typer_main
from typer._coercion import RuntimeParam
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from superfluid_cli import values


@dataclass(frozen=True, slots=True)
class Entry:
    """A command by name: `module:attribute` of a function or a Typer app. Hidden ones are aliases."""

    target: str
    hidden: bool = False


class _Parsed(RuntimeParam):
    """An option's value by its own `parser` alone. Typer would build a pydantic adapter around the same function.

    Reaches into Typer 0.29, to which the project is pinned; in its absence commands work as before, only later.
    """

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        many = isinstance(value, list | tuple)
        try:
            parsed = [self._parse(part) for part in value] if many else self._parse(value)
        except ValueError as fault:
            raise typer.BadParameter(str(fault), ctx=ctx, param=param) from None
        return parsed

    def _parse(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value  # a default, which needs no parsing
        parser = self.parameter_info.parser
        if parser is not None:
            return parser(value)
        if self.annotation is bool:
            return values.flag(value)
        return value


def _parsed(param: Any) -> Any:
    """`param`, told to use its own parser, and not to name Python's types in a help text."""
    if isinstance(param, TyperArgument | TyperOption):
        descriptor = param.type_descriptor
        param._runtime_param = _Parsed(descriptor.parameter_info, descriptor.annotation)
    if isinstance(param, TyperArgument):
        param.display_type_rich = _no_type  # type: ignore[method-assign]
        param._usage_display_name = lambda: _usage_name(param)  # type: ignore[method-assign]
    if isinstance(param, TyperOption) and isinstance(param.show_default, str):
        said = param.show_default
        param._get_default_string = lambda **_: said  # type: ignore[method-assign]
    return param


def _no_type(ctx: Any) -> None:
    return None


def _usage_name(param: TyperArgument) -> str:
    """`ID` for what has to be there, where Typer writes `{ID}`."""
    name = param.display_name_raw
    return (name if param.required else f"[{name}]") + ("..." if param.nargs != 1 else "")


class Command(TyperCommand):
    """A command whose parameters are strings, flags, or have a `parser`."""

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        return [_parsed(param) for param in super().get_params(ctx)]


class LazyGroup(TyperGroup):
    """A group whose commands are the entries of `table`, in its order."""

    table: ClassVar[Mapping[str, Entry]] = {}

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        return [_parsed(param) for param in super().get_params(ctx)]

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return list(self.table)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        if cmd_name not in self.commands and cmd_name in self.table:
            self.commands[cmd_name] = _load(cmd_name, self.table[cmd_name])
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """The first sentence of each command, whole: Typer would cut it where the line ends."""
        known = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary(command.help)) for name, command in known if not command.hidden])

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        if not args[0].startswith("-") and args[0] not in self.table:
            ctx.fail(f"no command {args[0]!r}{suggestion(args[0], list(self.table))}")
        return super().resolve_command(ctx, args)


def summary(help_text: str | None) -> str:
    """The first sentence of a help text."""
    words = " ".join((help_text or "").split())
    first, stop, _ = words.partition(". ")
    return first + stop.strip()


def suggestion(word: str, known: list[str]) -> str:
    """The end of a sentence about an unknown word: the nearest known ones, or nothing."""
    from difflib import get_close_matches

    close = get_close_matches(word, known)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _load(name: str, entry: Entry) -> Any:
    module, _, attribute = entry.target.partition(":")
    target = getattr(importlib.import_module(module), attribute)
    if not isinstance(target, typer.Typer):
        holder = typer.Typer(add_completion=False, rich_markup_mode=None)
        holder.command(name, cls=Command, hidden=entry.hidden)(target)
        target = holder
    command = typer_main.get_command(target)
    command.name = name
    return command
