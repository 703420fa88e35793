"""JavaScript packages of the npm registry: the files of a pinned version, downloaded once and checked at each use.

Node.js is not needed. The registry is the one that npm would ask: ``$npm_config_registry``, a line in ``.npmrc``, else
what npm itself says.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import DeploymentError
from ..files import user_cache, write_bytes_atomically

# Seconds to connect and seconds between two bytes: a firewall that drops packets must not look like work.
DOWNLOAD_TIMEOUT = (10.0, 30.0)
UNREADABLE = (OSError, EOFError, KeyError, tarfile.TarError)


@dataclass(frozen=True)
class Package:
    """One version of a package, and what is used of it.

    Attributes
    ----------
    name, version : str
        As in ``npm install NAME@VERSION``.
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
    def archive(self) -> str:
        """The name of its archive."""
        return f"{self.name.rpartition('/')[2]}-{self.version}.tgz"

    @property
    def folder(self) -> Path:
        """Where its files lie in the user cache."""
        return user_cache() / "npm" / self.archive.removesuffix(".tgz")

    def fetch(self) -> dict[str, Path]:
        """Return its files by their names; whatever is not in the user cache is downloaded.

        Raises
        ------
        DeploymentError
            It cannot be downloaded, or the archive is another one.
        """
        paths = {member: self.folder / member.rpartition("/")[2] for member in self.files}
        if not all(_is(path, self.files[member]) for member, path in paths.items()):
            self._unpack(paths)
        return {path.name: path for path in paths.values()}

    def _unpack(self, paths: Mapping[str, Path]) -> None:
        with tempfile.TemporaryDirectory(prefix="robustcmp-npm-") as temporary:
            archive = self._archive(Path(temporary))
            try:
                with tarfile.open(archive) as tar:
                    for member, path in paths.items():
                        file = tar.extractfile(tar.getmember(member))
                        content = b"" if file is None else file.read()
                        if hashlib.sha256(content).hexdigest() != self.files[member]:
                            raise DeploymentError(f"{archive}: {member} is not the file that was published")
                        write_bytes_atomically(path, content)
            except UNREADABLE as error:
                raise DeploymentError(
                    f"{self.name} {self.version} cannot be unpacked into {self.folder}: {error}"
                ) from None

    def _archive(self, folder: Path) -> Path:
        """Return the archive: one that the user has put into the cache, else downloaded into a folder."""
        import pooch

        sha512 = base64.b64decode(self.integrity.removeprefix("sha512-")).hex()
        by_hand = self.folder / self.archive
        if _is(by_hand, sha512, "sha512"):
            return by_hand
        url = f"{registry(self.name)}/{self.name}/-/{self.archive}"
        downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=DOWNLOAD_TIMEOUT)
        logger = pooch.get_logger()
        logger.addFilter(_is_warning)
        try:
            return Path(pooch.retrieve(url, f"sha512:{sha512}", self.archive, folder, downloader=downloader))
        except (OSError, ValueError) as error:  # the network, the disk; another checksum
            reason = " ".join(str(error).split())[:300]
            raise DeploymentError(
                f"{self.name} {self.version} is not in the user cache, and downloading it from {url} failed: {reason}. "
                f"Name another registry with npm_config_registry, or put {self.archive} into {self.folder}."
            ) from None
        finally:
            logger.removeFilter(_is_warning)


def fetch(packages: Sequence[Package]) -> dict[str, Path]:
    """Return the files of some packages by their names."""
    return {name: path for package in packages for name, path in package.fetch().items()}


def registry(package: str) -> str:
    """Return the address of the registry that npm is told to ask for a package.

    Raises
    ------
    DeploymentError
        Neither npm nor its settings name one, or it is no address of the web.

    Examples
    --------
    >>> import os
    >>> os.environ.setdefault("npm_config_registry", "https://registry.example.org/npm/")
    'https://registry.example.org/npm/'
    >>> registry("onnxruntime-web")
    'https://registry.example.org/npm'
    >>> del os.environ["npm_config_registry"]
    """
    address = next(_configured(package), "").rstrip("/") or _of_npm()
    if not address:
        raise DeploymentError(
            f"{package} is not in the user cache, and nothing says where npm's packages are: install npm, or set "
            "npm_config_registry to the address of its registry"
        )
    if urlsplit(address).scheme not in ("https", "http") or not urlsplit(address).hostname:
        raise DeploymentError(f"npm's registry should be an address https://…, received {address!r}")
    return address


def _of_npm() -> str:
    """Return the address that npm itself would ask, "" where there is no npm."""
    npm = shutil.which("npm")
    if npm is None:
        return ""
    try:
        said = subprocess.run(
            [npm, "config", "get", "registry"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip().rstrip("/")


def _configured(package: str) -> Iterator[str]:
    """Yield what npm's settings say, the first being the one that counts."""
    settings = [_settings(path) for path in _files()]
    scope = package.partition("/")[0] if package.startswith("@") else None
    if scope:
        yield from (lines[f"{scope}:registry"] for lines in settings if f"{scope}:registry" in lines)
    yield from (value for name, value in os.environ.items() if name.lower() == "npm_config_registry" and value)
    yield from (lines["registry"] for lines in settings if lines.get("registry"))


def _files() -> Iterator[Path]:
    yield Path(".npmrc")
    given = next((value for name, value in os.environ.items() if name.lower() == "npm_config_userconfig"), None)
    yield Path(given) if given else Path(os.path.expanduser("~")) / ".npmrc"


def _settings(path: Path) -> dict[str, str]:
    """Return what stands in a file of npm's settings about registries; nothing else of it is kept."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return {}
    found = re.findall(r"^\s*((?:@[^:\s=]+:)?registry)\s*=\s*(.*?)\s*$", text, re.MULTILINE)
    return {name: os.path.expandvars(value.strip("\"'")) for name, value in found}


def _is(path: Path, digest: str, kind: str = "sha256") -> bool:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, kind).hexdigest() == digest
    except OSError:
        return False


def _is_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING
