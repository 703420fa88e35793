"""Files whose format can run code: only those that this user's robustcmp has written are opened.

A file gets another beside it, with a code (HMAC-SHA-256) that only this user's key gives. The key lies in the user
cache and is readable by the user alone.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from ..errors import DeploymentError
from ..files import user_cache

SUFFIX = ".own"
KEY_BYTES = 32


def mark_own(path: Path) -> None:
    """Write what shows later that robustcmp has written a file."""
    own_mark(path).write_text(_code(path) + "\n", encoding="ascii")


def check_own(path: Path) -> None:
    """Raise `DeploymentError` for a file that was not written by this user's robustcmp, or has changed since."""
    try:
        said = own_mark(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        said = ""
    if not hmac.compare_digest(said, _code(path)):
        raise DeploymentError(
            f"{path} was not written by robustcmp for this user, or it has changed. A file of torch.export can run "
            "code when it is opened, so no other is. Convert the network itself: robustcmp.deploy"
        )


def own_mark(path: Path) -> Path:
    """Return the file that shows that another was written here."""
    return path.with_name(path.name + SUFFIX)


def _code(path: Path) -> str:
    return hmac.new(_key(), path.read_bytes(), hashlib.sha256).hexdigest()


def _key() -> bytes:
    """Return this user's key, a new one where there is none."""
    folder = user_cache()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "deployments.key"
    with suppress(FileExistsError):
        new = folder / f".deployments.key~{secrets.token_hex(8)}"
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        try:
            os.link(new, path)  # whole or not at all, and never over another's
        finally:
            new.unlink()
    return path.read_bytes()
