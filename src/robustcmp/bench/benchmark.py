"""How fast frameworks train and predict: a benchmark, opened from its records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_named
from . import frames as measured_frames
from . import text as measured_text
from .page import to_html, to_notebook
from .performance import Performance
from .store import BenchmarkStore
from .tensorboard import to_tensorboard

if TYPE_CHECKING:
    import pandas

    from .plots import BenchmarkPlots


class Benchmark(Performance):
    """The measurements of a benchmark, from `benchmark` or `open_benchmark`. Printing it shows the summary."""

    @property
    def plot(self) -> BenchmarkPlots:
        """The plots of the benchmark, as Matplotlib axes: ``found.plot.latency()``.

        Raises
        ------
        UsageError
            Matplotlib is not installed.
        """
        from .plots import BenchmarkPlots  # Matplotlib, which no other reader needs

        return BenchmarkPlots(self)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page: answers, tables, pictures, and what is not known.

        The page opens offline. Its pictures need Matplotlib (extra `plot`); without it the page has only tables.

        Raises
        ------
        UsageError
            The file cannot be written.
        """
        text = to_html(self)
        write_named(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the benchmark as a tidy table, a row a process.

        Returns
        -------
        pandas.DataFrame
            task, subject, images, batch_size, repetition; call_seconds (the median after warm-up), p90, p95, p99,
            throughput; epochs, epoch_seconds, first_epoch_seconds, seconds_to_accuracy, convergence_epoch, loss,
            training_accuracy, validation_accuracy; ready_seconds, first_seconds, calls, warm_up
            (calls), warm_up_seconds, drift, drifts, seconds, cpu_seconds, peak_memory, gpu_memory, energy; processors,
            cpu_temperature, gpu, gpu_temperature, gpu_power from when it was ready; others (what other programs used
            of its processors), others_most (likewise, over two seconds), busy, load_before, load_after, threads,
            device, version, parameters, bytes, file_bytes, place (in the random order), began. NaN where there is none.
        """
        return self.processes.copy()

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dataframe` as CSV.

        Raises
        ------
        UsageError
            The file cannot be written.
        """
        text = measured_frames.to_csv(self)
        write_named(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))

    def to_tensorboard(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Write one log of TensorBoard for each training: loss, accuracies and seconds by epoch.

        Returns
        -------
        list of Path
            The logs' directories.

        Raises
        ------
        UsageError
            The directory cannot be written, or tensorboardX is not installed (extra `tensorboard`).
        """
        return to_tensorboard(self.measurements, directory)

    def to_json(self) -> dict[str, Any]:
        """Return what was found as the types of JSON: the summaries, the tests, the answers, and what is absent."""
        return measured_frames.to_json(self)

    def summary(self, *, width: int | None = None, color: bool = False) -> str:
        """Return the answer on one screen: what the command prints, and what ``print(found)`` shows.

        Parameters
        ----------
        width : int, optional
            In columns, at most 100 (the default).
        color : bool, default False
            Write escape sequences for a terminal's colours.
        """
        return measured_text.summary(self, width, color)

    def to_text(self, *, width: int | None = None, color: bool = False) -> str:
        """Return all tables and notes, as ``--full`` prints them.

        Parameters
        ----------
        width : int, optional
            In columns, 100 by default; wider tables are split between columns.
        color : bool, default False
            Write escape sequences for a terminal's colours.
        """
        return measured_text.to_text(self, width, color)

    def to_markdown(self) -> str:
        """Return all tables and notes as Markdown."""
        return measured_text.to_markdown(self)

    def __repr__(self) -> str:
        return measured_text.summary(self)

    def _repr_html_(self) -> str:
        """Show the answers and the times in a notebook."""
        return to_notebook(self)


def open_benchmark(directory: str | os.PathLike[str]) -> Benchmark:
    """Open a benchmark, finished or not. No framework is needed.

    Parameters
    ----------
    directory : path
        The directory that was passed as `out`.

    Raises
    ------
    UsageError
        The directory is not a benchmark, or has no finished measurement.
    StoreError
        A file is broken.

    Examples
    --------
    >>> open_benchmark("no-such-directory")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    robustcmp.errors.UsageError: no-such-directory is not a benchmark of robustcmp: it has no manifest.json
    """
    return Benchmark(BenchmarkStore(directory))
