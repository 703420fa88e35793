"""Workers of Dask on this machine, with a scheduler of their own."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from ..errors import RobustcmpError
from ..threads import cores
from .isolated import last_lines

CONNECT_SECONDS = 30
CLOSE_SECONDS = 5
TTL_SECONDS = 60  # after which a worker that gives no sign of life is replaced
MOST_STARTS = 3  # of workers that end before they are there


class LocalWorkers:
    """A scheduler and workers, which end with it. A worker that ends, or is silent, is replaced.

    Parameters
    ----------
    count : int
        How many workers.
    resources : str
        What each advertises, as `dask worker --resources` takes it.
    """

    def __init__(self, count: int, resources: str):
        self._count, self._resources = count, resources
        self._started, self._failed = 0, 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: set[str] = set()

    def __enter__(self) -> LocalWorkers:
        import dask
        from distributed import LocalCluster

        self._directory = tempfile.mkdtemp(prefix="robustcmp-workers-")
        with dask.config.set({"distributed.scheduler.worker-ttl": f"{TTL_SECONDS}s"}):
            self._cluster = LocalCluster(
                n_workers=0,
                host="127.0.0.1",
                protocol="tcp://",
                dashboard_address="127.0.0.1:0",  # none is shown, but a port is opened
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            )
        self.address: str = self._cluster.scheduler_address
        self.restart(set())
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            _kill(process)
        self._cluster.close(timeout=CLOSE_SECONDS)
        shutil.rmtree(self._directory, ignore_errors=True)

    def restart(self, there: set[str]) -> None:
        """Start workers in the place of those that are gone, given the names of those that are there."""
        self._seen |= there
        for name, process in list(self._processes.items()):
            if process.poll() is None and (name in there or name not in self._seen):
                continue
            if name not in self._seen:
                self._failed += 1
                if self._failed == MOST_STARTS:
                    wrote = last_lines(self._output(name).read_text(errors="replace"))
                    raise RobustcmpError(f"the workers of Dask do not start on this machine. One wrote last: {wrote}")
            _kill(process)
            del self._processes[name]
        while len(self._processes) < self._count:
            self._start()

    def _output(self, name: str) -> Path:
        return Path(self._directory, f"{name}.txt")

    def _start(self) -> None:
        name = f"local-{self._started}"
        self._started += 1
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        options = ["--no-nanny", "--no-dashboard", "--memory-limit", "0", "--death-timeout", str(CONNECT_SECONDS)]
        threads = str(max(1, cores() // self._count))
        place = ["--name", name, "--nthreads", threads, "--local-directory", self._directory]
        place += ["--resources", self._resources]
        with open(self._output(name), "wb") as output:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_worker", self.address, *options, *place],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the head
                env={**os.environ, "PYTHONPATH": path},
            )


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
