"""A suite as its TOML file says it, before any attack is looked up."""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec

from .. import limits
from ..errors import UsageError, unknown
from ..files import as_path
from ..untrusted import read_toml

SHIPPED = files("robustcmp.resources.attacks")
Subset = Literal["common", "all"]


class SuiteFile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a suite's file.

    Attributes
    ----------
    attacks : dict of str to dict
        By the names that tables and results have: the class as ``"attack"``, and its parameters.
    description : str
        What the suite is for.
    images, repeats : int
        How many images are attacked how often, if the caller does not say.
    subset : str
        ``"common"``: images that all models classify correctly. ``"all"``: all, and a misclassified one has fallen.
    """

    attacks: dict[str, dict[str, Any]]
    description: str = ""
    images: Annotated[int, msgspec.Meta(ge=1, le=limits.IMAGES)] = 1000
    repeats: Annotated[int, msgspec.Meta(ge=1, le=limits.REPEATS)] = 10
    subset: Subset = "common"


def suite_names() -> list[str]:
    """Return the names of the suites that ship.

    >>> suite_names()
    ['boundary-long', 'control', 'guo2019', 'reference', 'smoke']
    """
    return sorted(file.name.removesuffix(".toml") for file in SHIPPED.iterdir() if file.name.endswith(".toml"))


def read_suite_file(suite: str | os.PathLike[str]) -> SuiteFile:
    """Read the file of a suite that ships, by its name, or any other by its path, which ends in ``.toml``.

    Raises
    ------
    UsageError
        There is no such suite, or its file has a mistake that shows without its attacks.
    """
    path = as_path(suite, "suite")
    if path.suffix == ".toml":
        table = read_toml(path, "the suite")
    elif str(suite) in suite_names():
        table = read_toml(SHIPPED / f"{suite}.toml", "the suite")
    else:
        raise unknown("suite", suite, [*suite_names(), "FILE.toml"])
    try:
        for key in table:
            if key not in SuiteFile.__struct_fields__:
                raise unknown("key", key, SuiteFile.__struct_fields__)
        content = msgspec.convert(table, SuiteFile)
        if not content.attacks:
            raise UsageError("expected at least one table [attacks.NAME]")
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"the suite {path}: {error}") from None
    return content
