"""JavaScript packages of npm: the files of a pinned version, fetched once and checked at each use."""

from __future__ import annotations

import base64
import hashlib
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import DeploymentError, in_one_line
from ...files import user_cache, write_bytes_atomically

REGISTRY = "https://registry.npmjs.org"
SECONDS = 60.0  # without an answer


@dataclass(frozen=True)
class Package:
    """One version of a package, and what is used of it.

    Attributes
    ----------
    name, version : str
        As in the registry of npm.
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
    def folder(self) -> Path:
        """Where its files lie in the user cache."""
        return user_cache() / "npm" / f"{self.name.rpartition('/')[2]}-{self.version}"

    def fetch(self) -> dict[str, Path]:
        """Return its files by their names; whatever is not in the user cache is downloaded.

        Raises
        ------
        DeploymentError
            The registry does not answer, or the archive is another one.
        """
        paths = {member: self.folder / member.rpartition("/")[2] for member in self.files}
        if not all(_has_digest(path, self.files[member]) for member, path in paths.items()):
            self._unpack(paths)
        return {path.name: path for path in paths.values()}

    def _unpack(self, paths: Mapping[str, Path]) -> None:
        """Download the archive, and write what is used of it into the user cache."""
        import pooch

        pooch.get_logger().setLevel("WARNING")
        url = f"{REGISTRY}/{self.name}/-/{self.name.rpartition('/')[2]}-{self.version}.tgz"
        digest = base64.b64decode(self.integrity.removeprefix("sha512-")).hex()
        try:
            with tempfile.TemporaryDirectory(prefix="robustcmp-npm-") as folder:
                downloader = pooch.HTTPDownloader(timeout=SECONDS)
                archive = pooch.retrieve(url, f"sha512:{digest}", "package.tgz", folder, downloader=downloader)
                with tarfile.open(archive) as tar:
                    for member, path in paths.items():
                        file = tar.extractfile(tar.getmember(member))
                        write_bytes_atomically(path, b"" if file is None else file.read())
        except (OSError, ValueError, KeyError, tarfile.TarError) as error:
            raise DeploymentError(
                f"{self.name}@{self.version} is not in the user cache, and downloading it from {url} into "
                f"{self.folder} failed: {in_one_line(error)}. Check the connection, and rerun the command."
            ) from None


def fetch(packages: Sequence[Package]) -> dict[str, Path]:
    """Return the files of some packages by their names."""
    return {name: path for package in packages for name, path in package.fetch().items()}


def _has_digest(path: Path, digest: str) -> bool:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == digest
    except OSError:
        return False
