"""Networks from files alone: the framework follows from the file, and the name is the file's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..deployments import MODULES, runtime
from ..errors import ModelError, UsageError
from ..frameworks import FILES
from ..networks.weights import is_sealed
from .from_code import call_function, framework_of, is_function
from .named_files import PROPERTY


def describe_files(texts: Sequence[str]) -> list[str]:
    """Return files and functions as `file_origins` takes them, ``NAME:FRAMEWORK=FILE``.

    Models are named by their files, by their folders where files have the same name.

    Raises
    ------
    UsageError
        A file is not there or is of no known kind, or names are equal.

    Examples
    --------
    >>> describe_files(["README.md"])
    Traceback (most recent call last):
    ...
    robustcmp.errors.UsageError: README.md is of no known kind. ...
    """
    sources = [PROPERTY.split(text)[0] for text in texts]
    frameworks = [_find_framework(source) for source in sources]
    names = [_name(source, folder=False) for source in sources]
    if len({*names}) < len(names):
        names = [_name(source, folder=True) for source in sources]
    if len({*names}) < len(names):
        raise UsageError(
            f"expected files of different names, or in folders of different names, received {', '.join(sources)}"
        )
    return [f"{name}:{framework}={text}" for name, framework, text in zip(names, frameworks, texts, strict=True)]


def _find_framework(source: str) -> str:
    """Return the framework or the runtime that a file or a function is of."""
    if is_function(source):
        framework = framework_of(call_function(source))
        if framework is None:
            raise ModelError(f"{source} returned no network of a known framework")
        return framework
    path = Path(source)
    if not path.exists():
        raise UsageError(f"there is no file {source}")
    for name in MODULES:
        if path.suffix and path.suffix in runtime(name).suffixes:
            return name
    if path.suffix == ".h5" and is_sealed(path):
        return "torch"  # weights in the canonical layout, for any framework
    for framework, endings in FILES.items():
        if path.name.endswith(tuple(endings)):
            return framework
    suffixes = sorted(set().union(*(runtime(name).suffixes for name in MODULES), *FILES.values()) - {""} | {".h5"})
    raise UsageError(
        f"{source} is of no known kind. Files end in {', '.join(suffixes)}; or name your own code that returns the "
        "network, module:function"
    )


def _name(source: str, folder: bool) -> str:
    path = Path(source)
    if is_function(source):
        return source.partition(":")[2]
    return re.sub(r"[^\w .+@-]", "-", path.resolve().parent.name if folder else path.name)[:40]
