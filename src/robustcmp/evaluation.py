"""What a comparison found: an evaluation, opened from its records."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from .analysis.conditioning import Conditioning
from .analysis.results import Results, missing
from .analysis.transfer import as_dataset
from .errors import RobustcmpError, UsageError
from .files import write_named
from .records.checks import Checked
from .records.contested import Contested
from .records.store import Run
from .records.upkeep import verify
from .report.exports import to_bibtex, to_dataframe, to_latex
from .report.page import to_html, to_notebook
from .report.text import summary, to_text

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import xarray
    from numpy.typing import NDArray

    from .report.plots import Plots


class AtHand(Protocol):
    """The loaded models of a comparison, which checks and transfer run again."""

    def run_checks(self, results: Results, shown: bool) -> Checked: ...
    def run_transfer(self, results: Results, shown: bool) -> NDArray[np.int64]: ...
    def run_conditioning(self, attacks: Sequence[str] | None, shown: bool) -> Contested: ...


class Evaluation(Results):
    """The results of a comparison, from `evaluate` or `open_run`. Printing it shows the summary.

    `run_checks` and `run_transfer` run the models that `evaluate` compared and store their results with the run;
    `checks` and `transfer` read the stored results, also of an opened run.
    """

    def __init__(self, run: Run, dataset: xarray.Dataset, manifest: dict[str, Any], at_hand: AtHand | None = None):
        super().__init__(run, dataset, manifest)
        self._at_hand = at_hand

    @property
    def has_models(self) -> bool:
        """Whether the models are loaded: true after `evaluate`, false after `open_run`."""
        return self._at_hand is not None

    def run_checks(self, *, progress: bool = False) -> pandas.DataFrame:
        """Run the health checks on every model, with at most 100 of the images, and store them with the run.

        Parameters
        ----------
        progress : bool, default False
            Show the progress on standard error.

        Returns
        -------
        pandas.DataFrame
            As `checks`.

        Raises
        ------
        UsageError
            The run was opened with `open_run`, so its models are not loaded.
        """
        checked = self._models_for("checks").run_checks(self, progress)
        self.run.write_answer("checks", self.question, checked.to_json())
        self.checked = self.noting(checked)
        return self.checks

    @property
    def checks(self) -> pandas.DataFrame:
        """Health checks of every model: a success rate means nothing if the attack is broken.

        One row per check and model: check, model, outcome, figure, advice. The outcome is ``"pass"``, ``"fail"``,
        ``"not applicable"``, or ``"noted"`` for a failure that the settings of an attack imply.
        `run_checks` runs the checks.

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

    def run_transfer(self, *, progress: bool = False) -> xarray.Dataset:
        """Test every model on the adversarial images of each other model, and store the result with the run.

        Parameters
        ----------
        progress : bool, default False
            Show the progress on standard error.

        Returns
        -------
        xarray.Dataset
            As `transfer`.

        Raises
        ------
        UsageError
            The run was opened with `open_run`, so its models are not loaded.
        StoreError
            The run was stored without images.
        """
        counts = self._models_for("transfer").run_transfer(self, progress)
        self.run.write_answer("transfer", self.question, {"counts": counts.tolist(), "attacks": self.attacks})
        self.transferred = as_dataset(counts, self.labels, self.attacks)
        return self.transferred

    def transfer(self) -> xarray.Dataset:
        """Return how many adversarial images of each trained model also fool each other model.

        `run_transfer` measures it.

        Returns
        -------
        xarray.Dataset
            Over (source, target, attack): ``of_all``, the share of all attacked images whose adversarial image also
            fools the target, and ``of_successes``, the share of the source's successes that do, NaN if there are
            none; over all repeats. `transfer_blocks` has the means within and across frameworks.

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

    def run_conditioning(self, attacks: Sequence[str] | None = None, *, progress: bool = False) -> pandas.DataFrame:
        """Attack the images that some models classify correctly and others do not, and store the outcomes with the run.

        Each model is attacked on those that it classifies correctly, at most as many as the comparison was asked for,
        with its seed and repeats.

        Parameters
        ----------
        attacks : sequence of str, optional
            The attacks to run (default: all of the run); what is stored of others stays.
        progress : bool, default False
            Show the progress on standard error.

        Returns
        -------
        pandas.DataFrame
            As `conditioning`.

        Raises
        ------
        UsageError
            The run was opened with `open_run`, so its models are not loaded; the suite attacks all images; or it has
            no such attack.
        """
        contested = self._models_for("conditioning").run_conditioning(attacks, progress)
        stored = self._stored_contested()
        if stored is not None:
            contested = contested.beside(stored)
        self.run.write_arrays("contested", self.question, contested.to_arrays())
        self.conditioned = Conditioning(self, contested)
        return self.conditioning()

    def _models_for(self, what: str) -> AtHand:
        if self._at_hand is None:
            raise missing(what)
        return self._at_hand

    @property
    def plot(self) -> Plots:
        """The plots of the run, as Matplotlib axes: ``ev.plot.trainings()``.

        Raises
        ------
        UsageError
            Matplotlib is not installed.
        """
        from .report.plots import Plots  # Matplotlib, which no other reader needs

        return Plots(self)

    def to_html(self, path: str | os.PathLike[str], *beside: Results) -> None:
        """Write one self-contained page: the answer, pictures, tables, and a gallery of adversarial images.

        The page opens offline. Its pictures need Matplotlib (extra `plot`); without it the page has only tables.

        Parameters
        ----------
        path : path
            The file.
        *beside : Results
            At most one other run, shown side by side with this one.

        Raises
        ------
        UsageError
            The file cannot be written, or there is more than one other run.
        """
        text = to_html(self, *beside)
        write_named(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))

    # for other programs --------------------------------------------------------------------------------------------

    def to_dataframe(self, *, per_image: bool = False) -> pandas.DataFrame:
        """Return the run as a tidy table.

        Parameters
        ----------
        per_image : bool, default False
            One row per outcome instead of one row per rate.

        Returns
        -------
        pandas.DataFrame
            One row per model, training seed and attack: model, training_seed, attack, images, repeats, success_rate,
            low and high (95 % over images), repeat_std, clean_accuracy, framework, framework_version. NaN if an
            attack is not applicable.
            With `per_image`, one row per model, training seed, attack, repeat and image: label, success, l0, l2, linf,
            adversarial_class, queries, and the values of single attacks, as in `dataset`. A deterministic attack has
            only its first repeat, because all are the same.
        """
        return to_dataframe(self, per_image=per_image)

    def to_csv(self, path: str | os.PathLike[str], *, per_image: bool = False) -> None:
        """Write `to_dataframe` as CSV.

        Raises
        ------
        UsageError
            The file cannot be written.
        """
        frame = self.to_dataframe(per_image=per_image)
        write_named(path, lambda temporary: frame.to_csv(temporary, index=False))

    def to_parquet(self, path: str | os.PathLike[str], *, per_image: bool = False) -> None:
        """Write `to_dataframe` as Parquet.

        Raises
        ------
        UsageError
            The file cannot be written, or pyarrow is not installed.
        """
        try:
            import pyarrow  # type: ignore[import-untyped, unused-ignore]  # noqa: F401
        except ImportError as error:
            raise UsageError(f"Parquet needs pyarrow ({error}): pip install 'robustcmp[parquet]'") from None
        frame = self.to_dataframe(per_image=per_image)
        write_named(path, lambda temporary: frame.to_parquet(temporary, engine="pyarrow", index=False))

    def to_latex(self) -> str:
        """Return a LaTeX table like the paper's: one row per model with success rates, intervals and R.

        The intervals are over trainings if each framework has several, else over images. The table needs the LaTeX
        package booktabs.
        """
        return to_latex(self)

    def to_bibtex(self) -> str:
        """Return what to cite for the run as BibTeX: the method, its attacks, frameworks, datasets and networks.

        Your own attack is cited by its attribute `cite`. Datasets and networks unknown to robustcmp have no entry.
        """
        return to_bibtex(self)

    def summary(self, *, width: int | None = None, color: bool = False) -> str:
        """Return the answer on one screen: what the command prints, and what ``print(ev)`` shows.

        Parameters
        ----------
        width : int, optional
            In columns, at most 100 (the default).
        color : bool, default False
            Write escape sequences for a terminal's colours.
        """
        return summary(self, width, color)

    def to_text(self, *, width: int | None = None, color: bool = False) -> str:
        """Return all tables and notes, as ``--full`` prints them.

        Parameters
        ----------
        width : int, optional
            In columns, 100 by default; wider tables are split between columns.
        color : bool, default False
            Write escape sequences for a terminal's colours.
        """
        return to_text(self, width, color)

    def __repr__(self) -> str:
        return summary(self)

    def _repr_html_(self) -> str:
        """Show the answer and the rates in a notebook."""
        return to_notebook(self)


def _computes_no_longer(reader: str, maker: str) -> None:
    warnings.warn(
        f"from the next release on, ev.{reader} only reads stored results: call ev.{maker}() first",
        DeprecationWarning,
        stacklevel=3,
    )


def open_run(directory: str | os.PathLike[str]) -> Evaluation:
    """Open a finished run. No framework is needed.

    Parameters
    ----------
    directory : path
        The directory that was passed as `out`.

    Raises
    ------
    UsageError
        The directory is not a run, or the run was interrupted before its results were complete.
    StoreError
        A file is broken.
    """
    store = Run.open(directory)
    return Evaluation(store, *store.read_results())


def answered(directory: str | os.PathLike[str], about: dict[str, Any]) -> Evaluation | None:
    """Return the finished run in a directory if its notes are just these, else None; no model is needed.

    What the notes say has to be all that the outcome depends on, but for the command that was given.
    """
    run = Run(directory)
    try:
        manifest = run.manifest()
        if any(model.get("failed") for model in manifest.get("models", [])):
            return None  # it is tried again
        same = _without_command(manifest.get("about", {})) == _without_command(about)
        if same and not any(verify(run)):  # what is broken should not be hidden
            return open_run(directory)
    except RobustcmpError:
        pass  # whatever it is, `robustcmp.evaluate` says so or mends it
    return None


def _without_command(about: dict[str, Any]) -> dict[str, Any]:
    return {name: said for name, said in about.items() if name != "command"}
