"""``robustcmp completion``: what a shell needs to complete the commands and their options."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from . import command
from .command import Parser, run_command

SHELLS = ("bash", "zsh", "tcsh")  # those of shtab
FILES, DIRECTORIES = ("FILE",), ("DIR", "RUN")  # what options call their values


def _parser() -> Parser:
    parser = Parser(
        "robustcmp completion",
        "Print the script that completes robustcmp's commands and options in a shell.",
        "  robustcmp completion bash > ~/.local/share/bash-completion/completions/robustcmp\n"
        "  robustcmp completion zsh > ~/.zfunc/_robustcmp  # a directory of $fpath",
    )
    parser.add_argument("shell", choices=SHELLS, help=", ".join(SHELLS))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the script and return the exit status."""
    return run_command(_completion, "robustcmp completion", arguments)


def _completion(given: Sequence[str]) -> None:
    options = _parser().parse_args(given)
    try:
        import shtab
    except ImportError as error:
        raise UsageError(f"completion needs shtab ({error}): pip install 'robustcmp[completion]'") from None
    whole = command.parser(whole=True)
    for action in command.actions(whole):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in DIRECTORIES:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(whole, options.shell))
