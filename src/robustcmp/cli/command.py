"""What the commands share: arguments, exit statuses, and the console script ``robustcmp``."""

from __future__ import annotations

import argparse
import faulthandler
import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Any

from ..errors import MissingWeightsError, RobustcmpError, UsageError, enough_memory, nearest, printable, unknown
from ..provenance import own_version
from .ending import describe_end
from .screen import wrap
from .script import main as main

DONE = 0  # and 128 + N after signal N
FAILED = 1
UNUSABLE = 2
COMMANDS = {
    "eval": "compare trained models",
    "gate": "decide whether a new model may replace an old one",
    "train": "train a model with a recipe of the zoo",
    "bench": "measure training and prediction",
    "report": "write a run as a page, text, CSV, JSON, LaTeX or BibTeX",
    "plan": "plan a comparison that detects a difference",
    "list": "list models, suites, datasets, runs, hosts or deployments",
    "verify": "check that every file of a run is as it was written",
    "hosts": "manage frameworks that run in separate environments",
}
EXAMPLES = """\
examples:
  robustcmp eval --model lenet5
  robustcmp eval --weights torch=mine.pt tensorflow=yours.keras --architecture lenet5
  robustcmp report runs/lenet5-mnist-guo2019 --format latex
  robustcmp list suites

Run robustcmp COMMAND --help for details."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Wraps a description, leaves examples as they are, and shows the defaults that say something."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text if "\n" in text else argparse.HelpFormatter._fill_text.__get__(self)
        return str(fill(text, width, indent))

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = action.default
        if not action.help or default is False or default in (None, [], argparse.SUPPRESS):
            return action.help
        value = " ".join(map(str, default)) if isinstance(default, list) else default
        return f"{action.help} (default: {value})"


class Parser(argparse.ArgumentParser):
    """Refuses abbreviated options, suggests the nearest one, and leaves every message to `run_command`."""

    def __init__(self, prog: str, description: str = "", examples: str = "", **options: Any):
        super().__init__(
            prog=prog,
            description=description,
            epilog=examples and f"examples:\n{examples}",
            allow_abbrev=False,
            formatter_class=_Formatter,
            **options,
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Look at the options first: that one is mistyped says more than that another is missing."""
        words = list(sys.argv[1:] if args is None else args)
        for word in words[: words.index("--")] if "--" in words else words:
            option = word.partition("=")[0]
            if re.match(r"--?[A-Za-z]", option) and option not in self._option_string_actions:
                near = nearest(option, self._option_string_actions)
                self.error(f"unknown option {option}" + (f": did you mean {near}?" if near else ""))
        return super().parse_known_args(words, namespace)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise unknown(action.option_strings[0] if action.option_strings else action.dest, value, action.choices)

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}{'' if message.endswith('?') else '.'} See {self.prog} --help")


# What the parameters of Python functions are called at the terminal.
OPTIONS = {
    "accuracy": "--accuracy",
    "architecture": "--architecture",
    "batch_size": "--batch-size",
    "batch_sizes": "--batch-size",
    "data_dir": "--data-dir",
    "dataset": "--dataset",
    "epochs": "--epochs",
    "framework": "--framework",
    "group_memory": "--executor",
    "executor": "--executor",
    "group_seconds": "--executor",
    "images": "--images",
    "keep_images": "--no-images",
    "n": "--images",
    "out": "--out",
    "power": "--power",
    "python": "--python",
    "repeats": "--repeats",
    "requirements": "--requirements",
    "script": "--script",
    "seed": "--seed",
    "training_seeds": "--training-seeds",
}


def describe(error: RobustcmpError) -> str:
    """Return the message of an error, with the options that it is about, and the command where there is one."""
    text = f"error: {error.reason if isinstance(error, MissingWeightsError) else error}"
    options = [OPTIONS[name] for name in error.parameters if name in OPTIONS]
    if options:
        text += f"\nSee {', '.join(options)}."
    if isinstance(error, MissingWeightsError):
        text += "\nTrain them with:" + "".join(f"\n  {command}" for command in _list_commands(error.fit_arguments))
    return text


def _list_commands(missing: Sequence[dict[str, str | int]]) -> list[str]:
    """Return the commands that train some models, one for each framework."""
    seeds: dict[str, list[str]] = {}
    for arguments in missing:
        options = [f"--{name} {shlex.quote(str(value))}" for name, value in arguments.items() if name != "seed"]
        seeds.setdefault(" ".join(options), []).append(str(arguments["seed"]))
    return [f"python -m robustcmp.train {options} --training-seeds {' '.join(seeds[options])}" for options in seeds]


def say(text: str) -> None:
    """Print a line for the person at the terminal; standard output is left to results."""
    if sys.stderr is None:  # closed
        return
    print(wrap(printable(text), sys.stderr), file=sys.stderr, flush=True)


def as_command(name: str) -> Callable[[Callable[[Sequence[str]], int | None]], Callable[..., int]]:
    """Make a command of what takes its arguments: it is run on those of the process if none are passed."""

    def decorate(run: Callable[[Sequence[str]], int | None]) -> Callable[..., int]:
        @wraps(run)
        def main(arguments: Sequence[str] | None = None) -> int:
            return run_command(run, name, arguments)

        return main

    return decorate


def run_command(run: Callable[[Sequence[str]], int | None], command: str, arguments: Sequence[str] | None) -> int:
    """Run a command on its arguments, those of the process if there are none, and return its exit status.

    `command` is the module that ``python -m`` runs. Errors of ours and interrupts are one message, without a
    traceback.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not faulthandler.is_enabled():
        with suppress(OSError, ValueError, RuntimeError):  # there is no standard error
            faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with enough_memory("this command", "--images or --batch-size"):
            status = run(words)
            sys.stdout.flush()
    except RobustcmpError as error:
        say(describe(error))
        return UNUSABLE if isinstance(error, UsageError) else FAILED
    except BrokenPipeError:  # who reads has read enough, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        with suppress(OSError):
            say("error: the output was closed before everything was printed. Finished work is saved.")
        return FAILED
    except OSError as error:  # a full disk
        say(f"error: {error}. Finished work is saved.")
        return FAILED
    except KeyboardInterrupt:
        say(describe_end(signal.SIGINT, command, words))
        return 128 + signal.SIGINT
    return status or DONE


def _make_parser() -> Parser:
    """Return the parser of ``robustcmp`` itself."""
    top = Parser("robustcmp", "Is one trained model easier to fool than another, and is the difference real?")
    top.epilog = EXAMPLES
    top.add_argument("--version", action="version", version=f"robustcmp {own_version()}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    return top


def _run(given: Sequence[str]) -> None:
    """Do what is asked without a command: help, the version; or say what is wrong."""
    top = _make_parser()
    top.parse_args(given[:1])
    top.print_help()


def run_named(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names, and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in COMMANDS:
        return run_command(_run, "robustcmp", words)
    return int(import_module(f".{words[0]}", __package__).main(words[1:]))
