"""What the commands share: arguments, exit statuses, and the console script ``robustcmp``."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from ..errors import MissingWeightsError, RobustcmpError, UsageError

DONE, FAILED, UNUSABLE, INTERRUPTED = 0, 1, 2, 130
COMMANDS = {
    "eval": "compare trained models",
    "train": "train a model by a recipe of the zoo",
    "hosts": "frameworks in environments of their own",
}


class Parser(argparse.ArgumentParser):
    """Refuses abbreviated options, and leaves every message to `run_command`."""

    def __init__(self, prog: str, description: str):
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}. See {self.prog} --help")


OPTIONS = {
    "architecture": "--architecture",
    "batch_size": "--batch-size",
    "data_dir": "--data-dir",
    "dataset": "--dataset",
    "epochs": "--epochs",
    "framework": "--framework",
    "keep_images": "--no-images",
    "n": "--images",
    "out": "--out",
    "python": "--python",
    "repeats": "--repeats",
    "requirements": "--requirements",
    "script": "--script",
    "seed": "--seed",
    "training_seeds": "--training-seeds",
}
"""What the parameters of Python functions are called at the terminal."""


def described(error: RobustcmpError) -> str:
    """Return the message of an error, with the options that it is about, and the command where there is one."""
    text = f"error: {error.reason if isinstance(error, MissingWeightsError) else error}"
    options = [OPTIONS[name] for name in error.parameters if name in OPTIONS]
    if options:
        text += f"\nSee {', '.join(options)}."
    if isinstance(error, MissingWeightsError):
        text += "\nTrain them with: python -m robustcmp.train " + " ".join(
            f"--{'training-seeds' if name == 'seed' else name} {value}" for name, value in error.fit_arguments.items()
        )
    return text


def say(text: str) -> None:
    """Print a line for the person at the terminal; standard output is left to results."""
    print(text, file=sys.stderr, flush=True)


def run_command(run: Callable[[Sequence[str]], None], command: str, arguments: Sequence[str] | None) -> int:
    """Run a command on its arguments, those of the process if there are none, and return its exit status.

    Errors of ours are one message, without a traceback.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        run(given)
    except RobustcmpError as error:
        say(described(error))
        return UNUSABLE if isinstance(error, UsageError) else FAILED
    except OSError as error:  # a full disk, a pipe that was closed
        say(f"error: {error}. What is finished is kept.")
        return FAILED
    except KeyboardInterrupt:
        say(f"\ninterrupted. What is finished is kept; this goes on from there:\n  {command} {shlex.join(given)}")
        return INTERRUPTED
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``robustcmp eval …``, ``robustcmp train …`` or ``robustcmp hosts …``."""
    parser = Parser("robustcmp", "Compare the robustness of one network design trained in several frameworks.")
    commands = "; ".join(f"{name}: {what}" for name, what in COMMANDS.items())
    parser.add_argument("command", choices=COMMANDS, help=commands)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see robustcmp COMMAND --help")

    try:
        parsed = parser.parse_args(arguments)
    except UsageError as error:
        say(f"error: {error}")
        return UNUSABLE
    status: int = import_module(f".{parsed.command}", __package__).main(parsed.options)
    return status
