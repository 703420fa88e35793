"""Text that a terminal can show: nothing in a name or a message moves the cursor, recolours a line or hides a word."""

from __future__ import annotations

import logging
import re

# C0 and C1 but for tab and newline; marks that turn or hide text; line separators; halves of surrogate pairs, which are
# what is left of a file name that is no UTF-8, and which no stream can encode; and Unicode's invisible tags.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    r"""Return text with control characters written as Python writes them, ``\x1b`` for ESC; newline and tab stay.

    Everything that goes to a terminal passes here: the messages of errors when they are made, the lines of the log,
    what the commands say and print, and every text in a table. What is stored stays as it is.

    Examples
    --------
    >>> print(printable("a\x1b[31mb\rc"))
    a\x1b[31mb\rc
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def is_name(text: str) -> bool:
    """Say whether text is a name on one line: not empty, and without control characters."""
    return bool(text.strip()) and "\n" not in text and "\t" not in text and printable(text) == text


def _log_printable(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), ()
    return True


logging.getLogger("robustcmp").addFilter(_log_printable)
