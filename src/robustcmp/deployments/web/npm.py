"""JavaScript packages of npm: the files of a pinned version, fetched once and checked at each use."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import processes
from ...errors import DeploymentError
from ...files import user_cache, write_bytes_atomically

SECONDS = 600.0  # for a package, also on a slow line
UNREADABLE = (OSError, EOFError, KeyError, tarfile.TarError)


@dataclass(frozen=True)
class Package:
    """One version of a package, and what is used of it.

    Attributes
    ----------
    name, version : str
        As in ``npm pack NAME@VERSION``.
    integrity : str
        The SHA-512 of its archive in base64, as the registry says it.
    files : dict of str to str
        The SHA-256 (hex) of the files that are used, by their paths in the archive.
    """

    name: str
    version: str
    integrity: str
    files: Mapping[str, str]

    @property
    def _folder(self) -> Path:
        """Where its files lie in the user cache."""
        return user_cache() / "npm" / f"{self.name.rpartition('/')[2]}-{self.version}"

    def fetch(self) -> dict[str, Path]:
        """Return its files by their names; whatever is not in the user cache is fetched by npm.

        Raises
        ------
        DeploymentError
            npm is not there or fails, or the archive is another one.
        """
        paths = {member: self._folder / member.rpartition("/")[2] for member in self.files}
        if not all(_has_digest(path, self.files[member]) for member, path in paths.items()):
            with tempfile.TemporaryDirectory(prefix="robustcmp-npm-") as temporary:
                self._unpack(self._pack(Path(temporary)), paths)
        return {path.name: path for path in paths.values()}

    def _pack(self, folder: Path) -> Path:
        """Let npm fetch the archive into a folder, and return it."""
        package = f"{self.name}@{self.version}"
        npm = shutil.which("npm")
        if npm is None:
            raise DeploymentError(f"{package} has to be downloaded, and npm is not installed. Install Node.js.")
        command = [npm, "pack", package, "--ignore-scripts", "--silent", "--pack-destination", str(folder)]
        try:
            status, _, errors = processes.run(command, seconds=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DeploymentError(f"npm could not fetch {package}: {error}. Rerun the command.") from None
        archives = [*folder.glob("*.tgz")]
        if status or len(archives) != 1:
            reason = " ".join(errors.split())[-300:] or f"exit status {status}"
            raise DeploymentError(f"npm could not fetch {package}: {reason}. Try it by hand: npm pack {package}")
        return archives[0]

    def _unpack(self, archive: Path, paths: Mapping[str, Path]) -> None:
        """Write what is used of an archive into the user cache."""
        if not _has_digest(archive, base64.b64decode(self.integrity.removeprefix("sha512-")).hex(), "sha512"):
            raise DeploymentError(
                f"npm fetched another archive of {self.name}@{self.version} than the one that was published, whose "
                f"integrity is {self.integrity}. Check which registry npm asks: npm config get registry"
            )
        try:
            with tarfile.open(archive) as tar:
                for member, path in paths.items():
                    file = tar.extractfile(tar.getmember(member))
                    write_bytes_atomically(path, b"" if file is None else file.read())
        except UNREADABLE as error:
            raise DeploymentError(
                f"{self.name}@{self.version} cannot be unpacked into {self._folder}: {error}. Make room there."
            ) from None


def _has_digest(path: Path, digest: str, kind: str = "sha256") -> bool:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, kind).hexdigest() == digest
    except OSError:
        return False
