"""What a comparison found: an evaluation, opened from its records."""

from __future__ import annotations

import os
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .analysis.results import Results, missing
from .analysis.transfer import as_dataset
from .errors import RobustcmpError, UsageError
from .files import write_text_atomically
from .records.checks import Checked
from .records.store import Run
from .report.page import to_html
from .report.text import to_text

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import xarray
    from numpy.typing import NDArray

    from .report.plots import Plots


class AtHand(Protocol):
    """The models of a comparison that are at hand: they can be asked once more about what was found."""

    def run_checks(self, results: Results) -> Checked: ...
    def run_transfer(self, results: Results) -> NDArray[np.int64]: ...


class Evaluation(Results):
    """What `evaluate` and `open_run` return; printed, it is the table.

    `run_checks` and `run_transfer` ask the models that `evaluate` compared, and store what comes out with the run;
    `checks` and `transfer` read it, of an opened run as well.
    """

    def __init__(self, run: Run, dataset: xarray.Dataset, manifest: dict[str, Any], at_hand: AtHand | None = None):
        super().__init__(run, dataset, manifest)
        self._at_hand = at_hand

    @property
    def has_models(self) -> bool:
        """Whether the models are at hand: they are after `evaluate`, and not after `open_run`."""
        return self._at_hand is not None

    def run_checks(self) -> pandas.DataFrame:
        """Make the health checks of every model, on at most 100 of the images, and store them with the run.

        Returns
        -------
        pandas.DataFrame
            As `checks`.

        Raises
        ------
        UsageError
            The run was opened, so its models are not at hand.
        """
        self.checked = self._models_for("checks").run_checks(self)
        self.run.write_answer("checks", self.question, self.checked.to_json())
        return self.checks

    @property
    def checks(self) -> pandas.DataFrame:
        """Health checks of every model: a success rate means nothing if the attack is broken.

        A row a check and model: check, model, outcome (``"pass"``, ``"fail"`` or ``"not applicable"``), figure, advice.
        `run_checks` makes them.

        Raises
        ------
        UsageError
            The run was stored without its checks.
        """
        import pandas

        if self.checked is None:
            self._models_for("checks")
            _computes_no_longer("checks", "run_checks")
            return self.run_checks()
        return pandas.DataFrame([asdict(check) for check in self.checked.checks])

    def run_transfer(self) -> xarray.Dataset:
        """Ask every model about the adversarial images of each other one, and store what comes out with the run.

        Returns
        -------
        xarray.Dataset
            As `transfer`.

        Raises
        ------
        UsageError
            The run was opened, so its models are not at hand.
        StoreError
            The run was made without images.
        """
        counts = self._models_for("transfer").run_transfer(self)
        self.run.write_answer("transfer", self.question, {"counts": counts.tolist(), "attacks": self.attacks})
        self.transferred = as_dataset(counts, self.labels, self.attacks)
        return self.transferred

    def transfer(self) -> xarray.Dataset:
        """Return how many adversarial images of each trained model also fool each other one.

        `run_transfer` asks the models.

        Returns
        -------
        xarray.Dataset
            Over (source, target, attack): ``of_all``, the share of all attacked images whose adversarial image also
            fools the target, and ``of_successes``, the same of those that succeeded on the source, NaN where none
            did; over all repeats. `transfer_blocks` has the means within and across frameworks.

        Raises
        ------
        UsageError
            The run was stored without its transfer.
        """
        if self.transferred is None:
            self._models_for("transfer")
            _computes_no_longer("transfer()", "run_transfer")
            return self.run_transfer()
        return self.transferred

    def _models_for(self, what: str) -> AtHand:
        if self._at_hand is None:
            raise missing(what)
        return self._at_hand

    @property
    def plot(self) -> Plots:
        """The pictures of the run, as Matplotlib axes: ``ev.plot.trainings()``.

        Raises
        ------
        UsageError
            Matplotlib is not installed.
        """
        from .report.plots import Plots  # Matplotlib, which no other reader needs

        return Plots(self)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page with the tables and a few adversarial images.

        Raises
        ------
        UsageError
            The file cannot be written.
        """
        text = to_html(self)
        try:
            write_text_atomically(Path(path), text)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None

    def __repr__(self) -> str:
        return to_text(self)


def _computes_no_longer(reader: str, maker: str) -> None:
    warnings.warn(
        f"ev.{reader} will only read what is stored from the next release on: call ev.{maker}() first",
        DeprecationWarning,
        stacklevel=3,
    )


def open_run(directory: str | os.PathLike[str]) -> Evaluation:
    """Read a finished run. No framework is needed.

    Parameters
    ----------
    directory : path
        What was passed as `out`.

    Raises
    ------
    UsageError
        The directory is no run, or the run was interrupted before its results were complete.
    StoreError
        A file is broken.
    """
    store = Run.open(directory)
    return Evaluation(store, *store.read_results())


def answered(directory: str | os.PathLike[str], about: dict[str, Any]) -> Evaluation | None:
    """Return the finished run in a directory if its notes are just these, else None; no model is needed.

    What the notes say has to be all that the outcome depends on.
    """
    run = Run(directory)
    try:
        manifest = run.manifest()
        if manifest.get("about") == about:
            for cell in manifest["cells"]:
                run.load(cell["key"])  # a broken one is an error that should not be hidden
            return open_run(directory)
    except RobustcmpError:
        pass  # whatever it is, `robustcmp.evaluate` says so or mends it
    return None
