"""What a comparison found: an evaluation, opened from its records."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import msgspec
import pandas

from .analysis.deployments import DEPLOYED_MARGIN, compare_deployments
from .analysis.followups import read_checked, read_conditioned, read_transferred, require
from .analysis.gate import MARGIN, Gate, open_gate
from .analysis.outcomes import split_variance
from .analysis.planning import plan
from .analysis.results import Results, open_results
from .analysis.statistics.power import POWER
from .analysis.verdicts import tabulate_equivalence
from .errors import RobustcmpError
from .files import write_named
from .records.store import Run
from .records.upkeep import verify
from .report.exports import to_dataframe, to_json, to_latex
from .report.page import to_html, to_notebook
from .report.text import summary

if TYPE_CHECKING:
    import numpy as np
    import xarray
    from numpy.typing import NDArray

    from .analysis.figures import Distances, ExactPixel, Trainings
    from .analysis.indicator import IndicatorRange
    from .analysis.significance import Level
    from .analysis.verdicts import Verdict
    from .report.plots import Plots


COSTS = ("model", "training_seed", "attack", "repeats", "images", "seconds", "queries", "worker")


class Evaluation:
    """The results of a comparison, from `evaluate` or `open_run`. Printing it shows the summary.

    `run_checks`, `run_transfer` and `run_conditioning` run the models that `evaluate` compared and store their results
    with the run; `checks`, `transfer` and `conditioning` read the stored results, also of an opened run.

    Attributes
    ----------
    results : Results
        The records of the run, with the figures that reports are made of.

    Parameters
    ----------
    at_hand : robustcmp.runs.followups.FollowUps, optional
        The loaded models, for `run_checks` and its like.
    """

    def __init__(self, results: Results, at_hand: Any = None):
        self.results = results
        self._at_hand = at_hand

    # records -----------------------------------------------------------------------------------------------------

    @property
    def dataset(self) -> xarray.Dataset:
        """Every outcome, one value per image over (model, training_seed, attack, repeat, image).

        ``success``, ``l0``, ``l2``, ``linf`` (+inf where the attack failed), ``adversarial_class`` and ``queries``, and
        what only some attacks have (NaN for the others): ``smallest_epsilon`` of FGSM, ``start``, ``source_step``,
        ``spherical_step`` and ``l2_half`` of boundary, ``vulnerable_pixels`` and ``pixels`` of exact single pixel,
        whose ``vulnerable_map`` has no repeats and bits for positions. ``repeats`` says how many repeats each attack
        has; where there are more, they are empty (no success, NaN). Repeats count from a training's first: where they
        are spread over trainings, each training has its own draws, and the manifest's cells say which. Distances are
        in [0, 1] images. The coordinate ``image`` says where an image stands in the data that was passed.
        """
        return self.results.dataset

    @property
    def manifest(self) -> dict[str, Any]:
        """What was requested and used: suite, models, versions, hardware, digests."""
        return self.results.manifest

    @property
    def failed(self) -> dict[str, dict[str, str]]:
        """Why an attack failed on a trained model, by the model's label and the attack; only where one did."""
        return self.results.reasons("failed")

    @property
    def costs(self) -> pandas.DataFrame:
        """What each task of the run cost, one row per model, attack and session, in the order of their ends.

        Columns: model, training_seed, attack, repeats (how many were finished), images (in each of them), seconds,
        queries (as the attack's definition counts them; NaN where it does not), worker (empty for the process of the
        comparison itself). Without rows for a run whose costs were not logged.
        """
        return _tabulate_costs(self.results)

    def adversarials(
        self, model: str, attack: str, *, training_seed: int | None = None, repeat: int = 0
    ) -> NDArray[np.float32]:
        """Return the adversarial images (N, H, W, C) of one cell, the clean images where the attack failed.

        `training_seed` defaults to the model's smallest.

        Raises
        ------
        UsageError
            The cell does not exist.
        StoreError
            The run was stored without images.
        """
        return self.results.adversarials(model, attack, training_seed=training_seed, repeat=repeat)

    # rates and R -------------------------------------------------------------------------------------------------

    @property
    def success_rate(self) -> xarray.DataArray:
        """The share of images fooled, over (model, training_seed, attack, repeat); NaN if none were attacked."""
        has_run = self.dataset.ran & (self.dataset.repeat < self.dataset.repeats)
        return self.dataset["success"].mean("image").where(has_run).rename("success_rate")

    @property
    def epsilon_curve(self) -> xarray.DataArray:
        """The success rate at each ε, over (model, training_seed, attack, epsilon); NaN for attacks without ε."""
        return self.dataset["epsilon_curve"]

    @property
    def distances(self) -> Distances:
        """Distances between adversarial and clean images: quantiles, and success within a budget."""
        return self.results.distances

    @property
    def trainings(self) -> Trainings:
        """Variation between trainings of one framework."""
        return self.results.trainings

    @property
    def exact_pixel(self) -> ExactPixel:
        """Expected results of exact single pixel, over all draws of positions."""
        return self.results.exact_pixel

    @property
    def indicator(self) -> dict[str, float]:
        """R(m) by model, from the means over training seeds and repeats; see `robustcmp.robustness_indicator`.

        Uses the attacks that every trained model ran, without references beside R; NaN if there are none. Empty for a
        suite of references alone, and for the same-weights control, which has nothing to rank.
        """
        return self.results.indicator

    @property
    def indicator_ranges(self) -> dict[str, IndicatorRange]:
        """The bootstrap range of R over images and trainings, and the rank shares, by model."""
        return self.results.indicator_ranges

    # is it real? -------------------------------------------------------------------------------------------------

    @property
    def verdicts(self) -> list[Verdict]:
        """The answer for each attack, about the models that are no deployments.

        Empty for a single source and for the same-weights control. `deployments` answers about deployed networks.
        """
        return self.results.verdicts

    def tests(self, level: Level | None = None) -> pandas.DataFrame:
        """Test every attack, for all sources jointly and for every pair, on two levels that are never mixed.

        Deployed networks are in no test here, and in no family of Holm's: `deployments` compares each with its source.

        *Models*: is this trained network easier to fool than that one, on images like these? Cochran's Q and McNemar
        for a deterministic attack, permutations and sign flips of the images' means over repeats for a random one,
        Friedman and signs for distances, where an attack is about them. *Frameworks*: are networks trained in this
        framework easier to fool? Tests of Brown and Forsythe, and Welch's t, of success rates and median distances; the
        training run is the unit of analysis, and frameworks may vary unequally. F, and permutations of the trainings,
        stand beside them. Frameworks whose trainings are twins of each other are tested by the paired t instead of
        Welch's.

        Parameters
        ----------
        level : str, optional
            ``"models"`` or ``"frameworks"`` (default: every level that the data allow).

        Returns
        -------
        pandas.DataFrame
            One row per test: level, test, a, b, attack, n, statistic, p, p_adjusted, effect, low, high,
            p_westfall_young. Empty for one model. Joint tests have ``a`` ``"all"``, no ``b`` and NaN for an interval;
            their ``effect`` is the largest rate minus the smallest one. For pairs it is a's rate minus b's, with its
            interval before adjustment. Of distances, at the level of models it is the share of images on which a is
            fooled at a smaller distance, minus that for b (NaN for the joint test), and at that of frameworks the
            difference of the mean median distance, in the norm of the attack, which the test's name has at its end.
            ``n`` counts images or training runs.

            ``p_adjusted`` is Holm's over all pairs and attacks of the level, and over the joint tests of the level. A
            test is in neither family, with NaN for both p, if its outcomes are the same for all trained models:
            exchanging models then changes nothing, so this can be said without looking at which model has which
            outcome. ``"F"`` rows, a family of their own, assume equal spreads and decide nothing.
            ``p_westfall_young``, for joint tests of frameworks, is adjusted by permutations of the trainings instead
            (`robustcmp.statistics.permute`). Rows with ``attack`` ``"all"`` test all of them at once: their
            success rates, and these with the distances.

        Raises
        ------
        UsageError
            The level is unknown, or frameworks cannot be compared because they have one training each.
        """
        return self.results.tests(level)

    def equivalence(self, margin: float, level: Level | None = None) -> pandas.DataFrame:
        """Test whether sources differ by less than a margin: two one-sided tests (Schuirmann 1987).

        A difference that is not significant may still be large. This asks for evidence that it is small.

        Parameters
        ----------
        margin : float
            Of success rates, chosen before the results are known: 0.02 is two points.
        level : str, optional
            ``"models"`` or ``"frameworks"`` (default: that of `verdicts`). Frameworks whose trainings are twins are
            compared pair by pair.

        Returns
        -------
        pandas.DataFrame
            level, a, b, attack, n (images or training runs), difference (a's value minus b's), low and high (its 90 %
            interval), p, equivalent (p < 5 %). In the first row of an attack ``a`` is ``"all"``: the pair that is
            hardest to call equivalent. All pairs are equivalent if that one is, which needs no adjustment for their
            number (Berger 1982, "Multiparameter hypothesis testing and acceptance sampling").

        Raises
        ------
        UsageError
            The margin is not above 0, or above 1; or frameworks have one training each.
        """
        return tabulate_equivalence(self.results.outcomes, level or self.results.level, margin)

    def gate(self, margin: float = MARGIN, accuracy_margin: float | None = None) -> Gate:
        """Decide whether new models may replace a baseline, the first model of the comparison.

        Under each attack, the difference of the success rates on the same images is tested against the margin: by the
        score of Tango (1998) over images, and over trainings as well where both models have several.

        Parameters
        ----------
        margin : float, default 0.02
            By how much a new model may be easier to fool, in (0, 1): 0.02 is two points.
        accuracy_margin : float, optional
            By how much its clean accuracy may be lower, in (0, 1); `margin` if it is not given.

        Returns
        -------
        Gate
            ``outcome`` is ``"passed"``, ``"easier"``, ``"less accurate"`` or ``"not shown"``; ``attacks`` and
            ``accuracies`` have the verdicts with their bounds.

        Raises
        ------
        UsageError
            There is one model, or a margin is no fraction.
        ModelError
            The first model is less than half as accurate as the best, or no better than chance.

        Examples
        --------
        >>> import robustcmp as rc
        >>> ev = rc.open_run("docs/results/lenet5-mnist-deployed")
        >>> ev.gate(margin=0.02).outcome
        'passed'
        """
        return open_gate(self.results, margin, accuracy_margin)

    def variance(self) -> pandas.DataFrame:
        """Return where the variance of a trained model's success rate lies, one row per attack.

        A deployed network is no further training: it would hide how far trainings differ, and is left out.

        Returns
        -------
        pandas.DataFrame
            ``framework`` and ``training_run`` are the components of `robustcmp.statistics.nested_variance`, ``share``,
            ``low`` and ``high`` the share of frameworks between trained models with its interval. Beside them stand
            two variances of one trained model's rate: ``repeat``, from its repeats, and ``image``, from the choice of
            images, without what repeats add. All models see the same images and draws. What these do to all of them
            alike is not in ``training_run``; what they do to each model in its own way is. Exact single pixel is
            analysed by its expectation, where repeats do nothing; ``repeat`` is then what as many draws would have
            added, exactly. ``image`` is NaN for one image, both are NaN for one repeat of a random attack that is not
            exact.

        Raises
        ------
        UsageError
            Frameworks have one training each, or different numbers of trainings.
        """
        return split_variance(self.results.outcomes)

    def deployments(self, margin: float = DEPLOYED_MARGIN) -> pandas.DataFrame:
        """Return how much easier each deployed network is to fool than the model that it was converted from.

        Parameters
        ----------
        margin : float, default 0.02
            Of equivalence, in the unit of the rates, chosen before the results are known.

        Returns
        -------
        pandas.DataFrame
            One row per deployment and attack. ``value`` is the deployment's success rate or, in a row of its own for an
            attack whose distances are compared, its median in the attack's norm; ``difference`` is that minus the
            source's, with a 95 % interval. ``unit`` says over what. With several trainings the unit is the training:
            the paired t test. With one it is the image: McNemar's test where there is one outcome an image, sign flips
            for a random attack's repeats, and the interval by the bootstrap over images. ``p_adjusted`` is Holm's over
            all rows with a p; it is NaN where no outcome differs. ``detectable`` is the difference that the test finds
            with 80 % power, at 5 % divided by the number of tests. ``only_source`` and ``only_deployed`` count outcomes
            (trainings × repeats × images) of which one falls and the other does not. ``equivalent_low`` and
            ``equivalent_high`` are the ends of the 90 % interval, ``p_equivalent`` that of two one-sided tests, and
            ``equivalent`` says whether it is below 5 %: the difference is smaller than the margin. ``not_compared``
            says why distances say nothing, because the search has not converged; "" in every other row. ``gradient``
            is ``"source"`` where the attack followed the gradient of the source: then both were asked about the same
            candidates.

        Raises
        ------
        UsageError
            The margin is not above 0, or above 1.
        """
        return compare_deployments(self.results, margin)

    # the next comparison -----------------------------------------------------------------------------------------

    def plan(
        self,
        difference: float,
        *,
        power: float = POWER,
        attack: str | None = None,
    ) -> pandas.DataFrame:
        """Plan the comparison that detects a difference between frameworks, with this run as the pilot.

        The joint test is Brown-Forsythe at 5 %, divided by the number of joint tests, as in `verdicts`. The images
        and repeats are those of the pilot, and frameworks keep the ratio of their variances. The number of trainings is
        that of `robustcmp.statistics.trainings_needed`.

        Parameters
        ----------
        difference : float
            Between the largest mean rate of a framework and the smallest, on the images attacked: 0.05 is five points.
        power : float, default 0.8
            The probability of detection.
        attack : str, optional
            Plan for one attack only.

        Returns
        -------
        pandas.DataFrame
            Three rows per attack, of the design ``"pilot"`` and twice of ``"same images"`` (and repeats, as the pilot):
            attack, design, variance, trainings (of each framework), images, repeats (on each training), detectable (in
            the unit of the rates), room (how close a framework's mean rate comes to 0 or 1: for larger differences the
            pilot's variance does not hold), why. It is planned with the variance at its ``"estimate"``, and at its
            upper 80 % limit, ``"upper limit"`` (`robustcmp.statistics.upper_variance`), because few trainings estimate
            it badly. NaN for what is not known; an attack without information has only the row of the pilot, with the
            reason in ``why``.

        Raises
        ------
        UsageError
            A number is out of range, the attack is unknown, a framework has one training, or the run is a same-weights
            control.
        """
        return plan(self.results, difference, power, attack)

    # health checks, transfer, conditioning -----------------------------------------------------------------------

    def run_checks(self, *, progress: bool = False) -> pandas.DataFrame:
        """Run the health checks on every model, with at most 50 of the images, and store them with the run.

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
        checked = require(self._at_hand, "checks").run_checks(self.results, progress)
        self.results.run.write_answer("checks", msgspec.to_builtins(checked))
        self.results.checked = read_checked(self.results)
        return self.checks

    @property
    def checks(self) -> pandas.DataFrame:
        """Health checks of every model: a success rate means nothing if the attack is broken.

        One row per check and model: check, model, outcome, figure, advice. The outcome is ``"pass"``, ``"fail"``,
        ``"not applicable"``, or ``"noted"`` for a failure that the settings of an attack imply.

        Raises
        ------
        UsageError
            `run_checks` has not been called.
        """
        checked = require(self.results.checked, "checks")
        return pandas.DataFrame([msgspec.to_builtins(check) for check in checked.checks])

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
        results = self.results
        counts = require(self._at_hand, "transfer").run_transfer(results, progress)
        results.run.write_answer("transfer", {"counts": counts.tolist(), "attacks": results.attacks})
        results.transferred = read_transferred(results)
        return self.transfer

    @property
    def transfer(self) -> xarray.Dataset:
        """How many adversarial images of each trained model also fool each other model.

        Over (source, target, attack): ``of_all``, the share of all attacked images whose adversarial image also fools
        the target, and ``of_successes``, the share of the source's successes that do, NaN if there are none; over all
        repeats.

        Raises
        ------
        UsageError
            `run_transfer` has not been called.
        """
        return require(self.results.transferred, "transfer")

    def run_conditioning(self, *, progress: bool = False) -> pandas.DataFrame:
        """Attack the images that some models classify correctly and others do not, and store the outcomes with the run.

        Each model is attacked on those that it classifies correctly, at most as many as the comparison was asked for,
        with its seed and repeats.

        Parameters
        ----------
        progress : bool, default False
            Show the progress on standard error.

        Returns
        -------
        pandas.DataFrame
            As `conditioning`.

        Raises
        ------
        UsageError
            The run was opened with `open_run`, so its models are not loaded, or the suite attacks all images.
        """
        contested = require(self._at_hand, "conditioning").run_conditioning(progress)
        self.results.run.write_arrays("contested", contested.to_arrays())
        self.results.conditioned = read_conditioned(self.results)
        return self.conditioning

    @property
    def conditioning(self) -> pandas.DataFrame:
        """The success rates against the number of models whose correct images are attacked.

        The common subset of more models has fewer images, those near a decision boundary missing, so rates fall with
        the number of models. Compare rates only with rates that are conditioned alike.

        One row per attack, model and number of models: attack, model, models (1 to all trained models), images (the
        share of all images that so many models classify correctly), success_rate (the mean over trainings and choices
        of the other models), low and high (the central 95 % of them).

        Raises
        ------
        UsageError
            `run_conditioning` has not been called.
        """
        return require(self.results.conditioned, "conditioning").curve()

    # pictures and files ------------------------------------------------------------------------------------------

    @property
    def plot(self) -> Plots:
        """The plots of the run, as Matplotlib axes: ``ev.plot.trainings()``.

        Raises
        ------
        UsageError
            Matplotlib is not installed.
        """
        from .report.plots import Plots  # Matplotlib, which no other reader needs

        return Plots(self.results)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page: the answer, pictures, tables, and a gallery of adversarial images.

        The page opens offline. Its pictures need Matplotlib (extra `plot`); without it the page has only tables.

        Parameters
        ----------
        path : path
            The file.

        Raises
        ------
        UsageError
            The file cannot be written.
        """
        write_named(path, to_html(self.results))

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the rates as a tidy table; ``ev.dataset.to_dataframe()`` has every outcome.

        Returns
        -------
        pandas.DataFrame
            One row per model, training seed and attack: model, training_seed, attack, images, repeats, success_rate,
            low and high (95 % over images), repeat_std, clean_accuracy, framework, framework_version. NaN if an
            attack is not applicable.
        """
        return to_dataframe(self.results)

    def to_json(self) -> dict[str, Any]:
        """Return the summary that ``python -m robustcmp.eval --json`` prints; undefined values are None."""
        return to_json(self.results)

    def to_latex(self) -> str:
        """Return a LaTeX table like the paper's: one row per model with success rates, intervals and R.

        The intervals are over trainings if each framework has several, else over images. The table needs the LaTeX
        package booktabs.
        """
        return to_latex(self.results)

    def __repr__(self) -> str:
        return summary(self.results)

    def _repr_html_(self) -> str:
        """Show the answer and the rates in a notebook."""
        return to_notebook(self.results)


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
    return Evaluation(open_results(directory))


def _tabulate_costs(results: Results) -> pandas.DataFrame:
    """Return what each task of a run cost, one row per model, attack and session; see `Evaluation.costs`."""
    keys = {cell["key"] for cell in results.manifest["cells"]}
    rows = [
        {
            "model": cost.model,
            "training_seed": cost.training_seed,
            "attack": cost.attack,
            "repeats": len(cost.cells),
            "images": cost.images,
            "seconds": cost.seconds,
            "queries": math.nan if cost.queries is None else cost.queries,
            "worker": cost.worker or "",
        }
        for cost in results.run.costs()
        if keys.intersection(cost.cells)
    ]
    return pandas.DataFrame(rows, columns=list(COSTS))


def find_finished(directory: str | os.PathLike[str], about: dict[str, Any]) -> Evaluation | None:
    """Return the finished run in a directory if its notes are just these, else None; no model is needed.

    The notes have to say all that the outcome depends on, except for the command.
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
        pass  # `robustcmp.evaluate` reports or mends it
    return None


def _without_command(about: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in about.items() if name != "command"}
