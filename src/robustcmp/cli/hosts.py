"""``robustcmp hosts``: the environments of frameworks and runtimes that run in host processes."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from .command import Parser, as_command, say


def _parser() -> Parser:
    parser = Parser(
        "robustcmp hosts",
        "Create and remove the environments of frameworks and runtimes that run in host processes.",
        "  robustcmp hosts create theano\n  robustcmp hosts remove theano",
    )
    parser.add_argument("action", choices=["create", "remove"], help="what to do")
    parser.add_argument("names", nargs="+", metavar="NAME", help="the host: theano, …")
    create = parser.add_argument_group("create")
    create.add_argument("--python", metavar="FILE", help="the Python interpreter (default: searched for)")
    create.add_argument("--script", metavar="FILE", help="the file of your own host")
    create.add_argument("--requirements", metavar="FILE", help="pip requirements of your own host, with hashes")
    return parser


@as_command("robustcmp hosts")
def main(given: Sequence[str]) -> None:
    """Do what the arguments name."""
    options = _parser().parse_args(given)
    if options.action != "create" and (options.python or options.script or options.requirements):
        raise UsageError("--python, --script and --requirements are options of create only")
    from ..frameworks import NAMES
    from ..hosts.environments import create, remove

    for name in options.names:
        if options.action == "create":
            create(
                name,
                script=options.script,
                requirements=options.requirements,
                python=options.python,
                reserved=NAMES,
                say=say,
            )
        else:
            remove(name)
            say(f"{name} is removed")
