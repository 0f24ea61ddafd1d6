"""The command line: `divsim <command>`, one file a command. Heavy imports happen inside the commands."""

import sys
from collections.abc import Sequence

import tyro

from divsim import __version__
from divsim.cli.common import BadCall
from divsim.cli.verify import verify

COMMANDS = {"verify": verify}
DESCRIPTION = "Trust-region masks for reinforcement learning of language models: proven, simulated, taught."


def main(args: Sequence[str] | None = None) -> None:
    """Run one command; exit code 0 if all is well, 1 if a check failed, 2 if the call was wrong.

    Args:
      args: the command line without the program's name; None reads `sys.argv`.
    """
    args = sys.argv[1:] if args is None else args
    if list(args) == ["--version"]:
        print(f"divsim {__version__}")
        return
    try:
        code = tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog="divsim", description=DESCRIPTION, args=args
        )
    except BadCall as error:
        print(f"divsim: {error}", file=sys.stderr)
        code = 2
    sys.exit(code)
