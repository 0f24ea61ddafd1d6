"""The command line: `divsim <command>`, one file a command. Heavy imports happen inside the commands."""

import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from divsim import __version__
from divsim.cli.claims import claims
from divsim.cli.common import BadCall, die_with_the_pipe
from divsim.cli.exact import EXACT
from divsim.cli.lm import LM
from divsim.cli.verify import verify


def exact() -> int:
    """Experiments where everything can be enumerated."""
    raise BadCall(f"say which experiment, such as divsim exact direction; they are {', '.join(EXACT)}")


def lm() -> int:
    """Small language models, reinforced from stale samples."""
    raise BadCall(f"say what to do, such as divsim lm train; there is {', '.join(LM)}")


COMMANDS: dict[str, Callable[..., int]] = {"verify": verify, "exact": exact, "lm": lm, "claims": claims}
GROUPS: dict[str, dict[str, Callable[..., int]]] = {"exact": EXACT, "lm": LM}
"""Commands that have commands of their own."""

DESCRIPTION = "Trust-region masks for reinforcement learning of language models: proven, simulated, taught."


def main(args: Sequence[str] | None = None) -> None:
    """Run one command.

    The exit code: 0 if all is well, 1 if a check failed, 2 if the call was wrong, 130 if interrupted.

    Args:
      args: the command line without the program's name; None reads `sys.argv`.
    """
    if args is None:
        args = sys.argv[1:]
        _behave_in_a_shell()
    if list(args) == ["--version"]:
        print(f"divsim {__version__}")
        return
    try:
        code = _parse(args)()
    except BadCall as error:
        print(f"divsim: {error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("divsim: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


def _parse(args: Sequence[str]) -> Callable[[], int]:
    """The call that the arguments ask for, not yet made."""
    commands, prog, description = COMMANDS, "divsim", DESCRIPTION
    if args and args[0] in GROUPS:
        prog, description = f"divsim {args[0]}", str(commands[args[0]].__doc__)
        commands, args = GROUPS[args[0]], args[1:]

    def deferred(command: Callable[..., int]) -> Callable[..., Callable[[], int]]:
        @functools.wraps(command)
        def bind(*values: Any, **settings: Any) -> Callable[[], int]:
            return functools.partial(command, *values, **settings)

        return bind

    calls = {name: deferred(command) for name, command in commands.items()}
    terminal = os.environ.get("TERM")
    if "NO_COLOR" in os.environ:
        os.environ["TERM"] = "dumb"  # tyro knows no NO_COLOR, but it writes no colour to a dumb terminal
    try:
        call: Callable[[], int] = tyro.extras.subcommand_cli_from_dict(
            calls, prog=prog, description=description, args=args
        )
    finally:
        if terminal is not None:
            os.environ["TERM"] = terminal
    return call


def _behave_in_a_shell() -> None:
    """Die silently when a pipe closes, stop on SIGTERM as on Ctrl-C, and print on any terminal's encoding."""
    die_with_the_pipe()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
