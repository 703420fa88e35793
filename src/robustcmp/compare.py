"""The whole comparison: from models and images to a run on disk and its results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .analysis.deployments import answers_alike
from .analysis.results import Results
from .attacks.suite import AnySuite
from .errors import LOG, ControlError, enough_memory
from .evaluation import Evaluation
from .frameworks import DataFormat, Device
from .processes import Limits
from .records.store import Run
from .report.format import duration
from .report.progress import make_progress
from .report.words import behaviour_notes
from .runs.accuracy import note_causes
from .runs.assembly import assemble
from .runs.executors import Executor, InProcess, Isolated, choose_executor, execute
from .runs.followups import FollowUps
from .runs.loading import Models, check_models, load, set_batch_sizes
from .runs.manifest import complete, describe
from .runs.plan import Plan, make_plan
from .runs.progress import Progress, Unseen
from .runs.question import Question, validate
from .runs.subset import choose_subset, classify

HOUR = 3600.0  # seconds, from which an estimate is said
LONG = 180.0  # seconds of attacks beside which processes of their own cost less than a twentieth: docs/clusters.md


def evaluate(
    models: Models,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    *,
    suite: AnySuite = "guo2019",
    n: int | None = None,
    repeats: int | Mapping[str, int] | None = None,
    spread_repeats: bool = False,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    data_format: DataFormat | None = None,
    keep_images: bool = True,
    progress: bool | Progress = True,
    about: dict[str, Any] | None = None,
    device: Device = "auto",
    executor: str | None = None,
    group_seconds: float | None = None,
    group_memory: float | None = None,
) -> Evaluation:
    """Attack the images that all models classify correctly, and compare how often each model is fooled.

    Every finished cell (one model, attack and repeat) is stored at once. Repeats finish together if they share queries,
    as those of single pixel do, or if the images of one repeat do not fill a batch. Repeat the call with the same
    `out` to run only the missing cells.

    Parameters
    ----------
    models : dict of str to model, or to a list of models
        Foolbox models, from `wrap`, `load_model`, `fit` or Foolbox itself, or origins (`robustcmp.sources.deployed`),
        which are loaded here. A list holds trainings of one model with different seeds.
    images : ndarray of float32, shape (N, H, W, C)
        In [0, 1]; models with other bounds are converted with Foolbox's `transform_bounds`. Pass the whole test set:
        the attacked subset is chosen from it.
    labels : ndarray of int, shape (N,)
        The true classes.
    suite : str, path or dict of str to attack, default "guo2019"
        A suite's name or its TOML file, or attacks by the names that they have in results.
    n : int, optional
        How many images are attacked (default: the suite's number).
    repeats : int or dict of str to int, optional
        Repeats of all attacks, or of each named attack (default: the suite's number).
    spread_repeats : bool, default False
        Divide the repeats of an attack among the trainings of a model, rounded up to the same number for each, instead
        of running all of them on every training. Each training then has its own draws, and the suite's single pixel
        is not exact. Draws usually vary much less than trainings, so this compares frameworks at a fraction of the
        cost.
    seed : int, default 0
        The attacks' seed. Every draw is a function of (seed, attack, repeat, image).
    out : path, optional
        The run's directory. Without it, the run is deleted together with the returned object.
    batch_size : int, optional
        Images per forward pass (default: measured).
    data_format : str, optional
        ``"channels_last"`` or ``"channels_first"``: where the channels of the images are, (N, H, W, C) or
        (N, C, H, W). Without it they are last, and images that seem to have them first are refused.
    keep_images : bool, default True
        Store the adversarial images.
    progress : bool or Progress, default True
        Show the progress on standard error: a live table of rates in a terminal, elsewhere one line per
        attack. Pass a `robustcmp.runs.progress.Progress` to receive the progress yourself.
    about : dict, optional
        Notes for the manifest, JSON types: ``model`` and ``dataset`` appear in headings.
    device : str, default "auto"
        Where origins are loaded: ``"auto"``, ``"cpu"`` or ``"cuda"``. Models that are passed stay on their device.
    executor : str, optional
        Where the attacks run: in this process (the default), in a process of its own for each framework
        (``"isolated"``), on workers of Dask on this machine (``"dask:4"``), or on those of a scheduler of Dask
        (``"tcp://host:8786"``). ``"auto"`` is isolated where the attacks that are missing take more than about three
        minutes. All give the same results, bit for bit. Outside of this process, an exception, a crash or a limit
        ends one attack on one model (`Evaluation.failed`).
    group_seconds : float, optional
        How long one attack on one model may take, in all missing repeats, with loading the model. A limit means
        ``"isolated"`` unless an executor is named.
    group_memory : float, optional
        How many bytes of memory its process may hold; Linux only.

    Returns
    -------
    Evaluation

    Raises
    ------
    UsageError
        An argument is invalid; no work was started.
    ModelError
        A model is not a classifier that returns logits, no image is classified correctly by all models, or no attack of
        the suite can run on any model.
    StoreError
        A file of the run is broken, or another process is writing the run.
    DiskError
        The disk is full. What is finished is kept.

    Notes
    -----
    An attack that cannot run on a model, such as FGSM on a model without gradients, has no cells there. The manifest
    and the tables give the reason; R and the tests use only the attacks that every model ran. The same holds for an
    attack that failed on a model (`failed`) in another process; the same call tries it again.

    Examples
    --------
    >>> import robustcmp as rc
    >>> data = rc.load_dataset("digits")
    >>> models = {name: rc.load_model("lenet1", framework=name, dataset="digits") for name in ("torch", "jax")}
    >>> ev = rc.evaluate(models, data.images, data.labels, suite="smoke", n=5, repeats=1, progress=False)
    >>> ev.success_rate.sizes["attack"], sorted(ev.indicator)
    (3, ['jax', 'torch'])
    """
    question = validate(images, labels, suite, n, repeats, spread_repeats, seed, batch_size, data_format)
    where: Executor = choose_executor(executor, Limits(group_seconds, group_memory))
    with (
        _resumable(out, about),
        progress_of(progress) as shown,
        enough_memory("this comparison", "batch_size or n"),
        Run.create(out, keep_images).lock() as store,
    ):
        plan, manifest = prepare(models, question, store, about or {}, device, shown)
        if executor == "auto" and isinstance(where, InProcess):
            seconds = sum(plan.seconds(store).values())
            if seconds > LONG:
                where = Isolated(Limits())
            if seconds > HOUR:
                LOG.warning(
                    "the attacks take about %s on this machine; fewer images take less (--images, n=)",
                    duration(seconds),
                )
        store.write_manifest(manifest)
        execute(plan, store, where, shown)
        return _write(plan, complete(manifest, plan, store), store, shown)


def prepare(
    models: Models, question: Question, store: Run, about: dict[str, Any], device: Device, progress: Progress
) -> tuple[Plan, dict[str, Any]]:
    """Do everything before the first attack; return the plan, and what the run keeps about it."""
    trained = load(models, device, progress)
    check_models(trained, question, progress)
    question = question.share_among([model.name for model in trained])
    batch_sizes = set_batch_sizes(trained, question, store.manifest())
    classify(trained, question)
    note_causes(trained, question)
    indices = choose_subset(trained, question, progress)
    plan = make_plan(trained, question, indices, store.manifest(), store.keep_images)
    manifest = describe(plan, batch_sizes, about)
    _check_exact(manifest.get("deployments", ()))
    for sentence in behaviour_notes(manifest["models"]):
        LOG.warning("%s", sentence)
    return plan, manifest


def _write(plan: Plan, manifest: dict[str, Any], store: Run, shown: Progress) -> Evaluation:
    """Put all results together and store them."""

    def show_again(progress: bool) -> AbstractContextManager[Progress]:
        return progress_of(shown if progress and not isinstance(shown, Unseen) else progress)

    margins = {model.key: model.margins for model in plan.models}
    arrays = assemble(store, plan.cells, plan.suite.records, plan.question.repeats, plan.indices, plan.labels, margins)
    store.write_manifest(manifest)
    store.write_results(arrays, manifest)
    store.write_clean(plan.images)
    return Evaluation(Results(store, arrays, store.manifest()), FollowUps(plan, show_again))


def _check_exact(deployments: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ControlError` for a deployed network in float32 that does not answer as its source."""
    for entry in deployments:
        if entry["exact"] and not answers_alike(entry["logits"], entry["changed"]):
            name, seed = entry["model"]
            raise ControlError(
                f"{name}, training seed {seed}, does not answer as {entry['source'][0]}: its logits differ by up to "
                f"{entry['logits']:.1g} of their spread, and {entry['changed']:.1%} of the images change their class. "
                "A conversion in float32 should change neither, so nothing was attacked. Report it, or leave it out."
            )


@contextmanager
def _resumable(out: str | os.PathLike[str] | None, about: dict[str, Any] | None) -> Iterator[None]:
    """Say what is kept if the caller interrupts a comparison; a command says it itself."""
    try:
        yield
    except KeyboardInterrupt:
        if "command" not in (about or {}):
            sentence = f"What is finished is kept in {out}: repeat the call to resume."
            LOG.warning("interrupted. %s", sentence if out else "Without out= nothing is kept.")
        raise


@contextmanager
def progress_of(progress: bool | Progress) -> Iterator[Progress]:
    """Return whom to tell of the progress, until it ends."""
    shown = progress if isinstance(progress, Progress) else make_progress() if progress else Unseen()  # type: ignore[abstract]
    try:
        yield shown
    finally:
        shown.end()
