"""The figures of a run, read from its records."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas
from numpy.typing import NDArray

from ..errors import UsageError, unknown
from ..records.answers import Checked
from ..records.attack import OWN_NAMES
from ..records.manifest import attack_records
from ..records.results_file import Arrays, make_dataset
from ..records.store import Run
from .deployments import DEPLOYED_MARGIN, compare_deployments, describe_deployments, judge_control
from .figures import Distances, ExactPixel, Trainings, root_mean_std
from .followups import Conditioning, average_blocks, read_checked, read_conditioned, read_transferred
from .indicator import IndicatorRange, indicator_ranges, robustness_indicator
from .outcomes import Outcomes, collect_outcomes
from .significance import Level, has_framework_level, run_tests
from .statistics import NO_EVIDENCE, Interval, bootstrap_interval, wilson_interval
from .twins import Twins, read_key
from .verdicts import Verdict, decide

if TYPE_CHECKING:
    import xarray

LACK = ("not_applicable", "failed")  # what the manifest has of a model, why it did not run an attack


class Results:
    """The outcomes of a comparison and the figures that are read from them.

    Attributes
    ----------
    run : Run
        Where they are kept.
    arrays : dict of str to ndarray
        The variables and the axes of `Evaluation.dataset`, by their names.
    manifest : dict
        What was requested and used: suite, models, versions, hardware, digests.
    on_all_images : bool
        Whether all images are attacked, and one that a model misclassifies has fallen.
    has_deployments : bool
        Whether deployed networks stand beside the trained models that they were converted from.
    models : list of str
        The models' names, in the order in which they were passed.
    has_several_trainings : bool
        Whether a framework has two trainings or more.
    keys : list of (str, int)
        The trained models' names and training seeds, in the order of the manifest.
    labels : list of str
        The trained models: ``torch``, or ``torch/3`` where there are several trainings.
    sources : list of str
        The models that are compared with each other: all but deployed networks beside their source.
    attacks : list of str
        The attacks' names, in the order of the suite.
    attack_records : dict of str to AttackRecord
        The record of each attack, by its name.
    twins : list of Twins
        The pairs of trained models that began from the same weights.
    common_attacks, indicator_attacks : list of str
        Those that every trained model ran, deployed ones among them; and those of them that R sums over.
    distances, exact_pixel, trainings
        The figures of one kind.
    """

    def __init__(self, run: Run, arrays: Arrays, manifest: dict[str, Any]):
        self.run = run
        self.arrays = arrays
        self.manifest = manifest
        self.on_all_images = manifest["images"].get("subset") == "all"
        self.has_deployments = bool(manifest.get("deployments"))
        self.models: list[str] = list(dict.fromkeys(model["name"] for model in manifest["models"]))
        self.keys = [read_key((model["name"], model["training_seed"])) for model in manifest["models"]]
        self.has_several_trainings = len(self.keys) > len(self.models)
        self.labels = [f"{name}/{seed}" if self.has_several_trainings else name for name, seed in self.keys]
        deployed = {read_key(entry["model"]) for entry in manifest.get("deployments", [])}
        self.sources = list(dict.fromkeys(key[0] for key in self.keys if key not in deployed))
        self.attacks: list[str] = arrays["attack"].tolist()
        self.attack_records = attack_records(manifest)
        self.twins = [
            Twins(read_key(pair["a"]), read_key(pair["b"]), pair["correlation"]) for pair in manifest.get("twins", [])
        ]
        self.common_attacks = self._select_common(self.models)
        self.indicator_attacks = [name for name in self.common_attacks if self.attack_records[name].in_indicator]
        self.distances = Distances(self)
        self.exact_pixel = ExactPixel(self)
        self.trainings = Trainings(self)
        self._tests: dict[Level | None, pandas.DataFrame] = {}

    @cached_property
    def dataset(self) -> xarray.Dataset:
        """Every outcome with its axes; see `Evaluation.dataset`."""
        return make_dataset(self.arrays, self.attack_records)

    def seeds(self, model: str, attack: str) -> list[int]:
        """Return the training seeds of a model that ran an attack."""
        i, k = self._place(model, attack)
        return list(map(int, self.arrays["training_seed"][self.arrays["ran"][i, :, k]]))

    @property
    def single_trainings(self) -> list[str]:
        """The sources with one training where others have several, which no test covers; none where all are alike."""
        counts = Counter(name for name, _ in self.keys)
        single = [name for name in self.sources if counts[name] == 1]
        return single if len(single) < len(self.sources) else []

    def repeats(self, attack: str) -> int:
        """Return how many repeats an attack has; those of a deterministic one are all the same."""
        return int(self.arrays["repeats"][self.attacks.index(attack)])

    def reasons(self, lack: Literal["not_applicable", "failed"]) -> dict[str, dict[str, str]]:
        """Return why attacks did not run, by the model's label and the attack; only where one did not."""
        pairs = zip(self.labels, self.manifest["models"], strict=True)
        return {label: model[lack] for label, model in pairs if model.get(lack)}

    def values(self, model: str, attack: str, name: str = "success", training_seed: int | None = None) -> NDArray[Any]:
        """Return a variable of one model and attack, (training seeds that ran, …), or of one training, (1, …).

        Over repeats of the attack and images, unless it is an extra that no repeat changes, or over ε.
        """
        i, k = self._place(model, attack)
        extras = self.attack_records[attack].extras
        if name in extras and name not in self.arrays:
            name = "success"  # no model ran the attack, so nothing is left of this one either
        values: NDArray[Any] = self.arrays[name][i, self.arrays["ran"][i, :, k], k]
        if training_seed is not None:
            self._cell_key(model, attack, training_seed)  # or there is none
            values = values[[self.seeds(model, attack).index(training_seed)]]
        has_repeats = extras[name].per_repeat if name in extras else name in OWN_NAMES
        return values[:, : self.repeats(attack)] if has_repeats else values

    def _place(self, model: str, attack: str) -> tuple[int, int]:
        """Return where a model and an attack stand on the axes, or raise `UsageError` for what the run has not."""
        if model not in self.models:
            raise unknown("model", model, self.models)
        if attack not in self.attacks:
            raise unknown("attack", attack, self.attacks)
        return self.models.index(model), self.attacks.index(attack)

    def rate(self, model: str, attack: str) -> float:
        """Return the mean success rate over trainings and repeats, from whole counts; NaN where none were attacked."""
        success = self.values(model, attack)
        return float(np.count_nonzero(success)) / success.size if success.size else math.nan

    def rates(self, attacks: Iterable[str] | None = None) -> dict[str, dict[str, float]]:
        """Return the mean success rate over trainings and repeats, by model and attack; of all attacks by default."""
        attacks = self.attacks if attacks is None else list(attacks)
        return {model: {attack: self.rate(model, attack) for attack in attacks} for model in self.models}

    def _select_common(self, names: Sequence[str]) -> list[str]:
        """Return the attacks that every training of some models ran."""
        models = [model for model in self.manifest["models"] if model["name"] in names]
        missing = {attack for model in models for lack in LACK for attack in model.get(lack, {})}
        return [attack for attack in self.attacks if attack not in missing]

    def _cell_key(self, model: str, attack: str, training_seed: int | None = None, repeat: int = 0) -> str:
        """Return the key of a cell; without `training_seed` of the model's smallest one."""
        self._place(model, attack)
        seed = self._first_seed(model) if training_seed is None else training_seed
        cells = [
            (int(cell["repeat"]), str(cell["key"]))
            for cell in self.manifest["cells"]
            if (cell["model"], cell["training_seed"], cell["attack"]) == (model, seed, attack)
        ]
        position = 0 if self.attack_records[attack].deterministic else repeat
        if 0 <= position < len(cells):
            return sorted(cells)[position][1]
        seeds = ", ".join(map(str, self.seeds(model, attack))) or "none"
        raise UsageError(
            f"the run has no repeat {repeat} of {attack} on {model}, training seed {seed}: it has the training seeds "
            f"{seeds} and {self.repeats(attack)} repeats"
        )

    # rates -----------------------------------------------------------------------------------------------------

    @property
    def clean_accuracy(self) -> dict[str, float]:
        """Each model's accuracy on all images that were passed, the mean over its training seeds."""
        return {
            name: float(np.mean([m["clean_accuracy"] for m in self.manifest["models"] if m["name"] == name]))
            for name in self.models
        }

    def interval(self, model: str, attack: str, *, training_seed: int | None = None) -> Interval:
        """Return the 95 % interval of a model's mean success rate, over images."""
        success = self.values(model, attack, training_seed=training_seed)
        if not success.size:
            return NO_EVIDENCE
        if self.attack_records[attack].deterministic and len(success) == 1:
            return wilson_interval(int(np.count_nonzero(success[0, 0])), success.shape[-1])
        return bootstrap_interval(success.mean(axis=(0, 1)))

    def repeat_std(self, model: str, attack: str, *, training_seed: int | None = None) -> float:
        """Return the standard deviation of the success rate over repeats, within a training (root mean square)."""
        if self.attack_records[attack].deterministic and self.seeds(model, attack):
            return 0.0
        return root_mean_std(self.values(model, attack, training_seed=training_seed).mean(axis=2))

    def rounded_rate(self, model: str, attack: str) -> float:
        """Return a model's success rate once adversarial images are saved in 8 bits, NaN if it was not measured."""
        entries = [entry.get("rounded", {}) for entry in self.manifest["models"] if entry["name"] == model]
        rates = [entry[attack] for entry in entries if attack in entry]
        return float(np.mean(rates)) if rates else math.nan

    @cached_property
    def same_weights(self) -> dict[str, Any] | None:
        """How closely frameworks agree on the same weights, None if the models are not from `same_weights`."""
        return judge_control(self)

    # R -----------------------------------------------------------------------------------------------------------

    @property
    def indicator(self) -> dict[str, float]:
        """R(m) by model, from the means over training seeds and repeats; see `robustcmp.robustness_indicator`."""
        if self.same_weights or not any(record.in_indicator for record in self.attack_records.values()):
            return {}
        if not self.indicator_attacks:
            return dict.fromkeys(self.models, math.nan)
        return robustness_indicator(self.rates(self.indicator_attacks))

    @cached_property
    def indicator_ranges(self) -> dict[str, IndicatorRange]:
        """The bootstrap range of R over images and trainings, and the rank shares, by model."""
        counted = [collect_outcomes(self, attack, self.models) for attack in self.indicator_attacks]
        return indicator_ranges(counted) if counted else {}

    # is it real? -------------------------------------------------------------------------------------------------

    @cached_property
    def outcomes(self) -> list[Outcomes]:
        """The outcomes of each attack that every training of the sources ran: what the tests are over."""
        return [collect_outcomes(self, attack, self.sources) for attack in self._select_common(self.sources)]

    def tests(self, level: Level | None = None) -> pandas.DataFrame:
        """Test every attack, for all `sources` jointly and for every pair, on two levels that are never mixed."""
        if level not in self._tests:
            self._tests[level] = run_tests(self.outcomes, level)
        return self._tests[level].copy()

    @property
    def level(self) -> Level:
        """The level of a report: ``"frameworks"`` if there are several `sources`, each with several trainings."""
        return "frameworks" if has_framework_level(self.outcomes) else "models"

    @property
    def compares_sources(self) -> bool:
        """Whether the sources are what is compared; not where one of them alone stands beside its deployed networks."""
        return len(self.sources) > 1 or not self.has_deployments

    @cached_property
    def deployments(self) -> pandas.DataFrame:
        """How much easier each deployed network is to fool than the model that it was converted from."""
        return compare_deployments(self, DEPLOYED_MARGIN)

    @property
    def deployed_networks(self) -> pandas.DataFrame:
        """What each deployed network is, beside its source; see `analysis.deployments.describe_deployments`."""
        return describe_deployments(self)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The answer for each attack, about the `sources`; see `robustcmp.analysis.verdicts.Verdict`."""
        return decide(self)

    # checks, transfer, images --------------------------------------------------------------------------------------

    @cached_property
    def checked(self) -> Checked | None:
        """The health checks and PGD's success, None if they have not been run."""
        return read_checked(self)

    @cached_property
    def transferred(self) -> xarray.Dataset | None:
        """The result of `Evaluation.transfer`, None if it has not been run."""
        return read_transferred(self)

    @property
    def transfer_blocks(self) -> pandas.DataFrame:
        """The mean transfer between trainings of one framework and between frameworks, of the sources."""
        return average_blocks(self)

    @cached_property
    def conditioned(self) -> Conditioning | None:
        """Rates on the subsets of fewer models, None if `Evaluation.run_conditioning` has not been run."""
        return read_conditioned(self)

    def adversarials(
        self, model: str, attack: str, *, training_seed: int | None = None, repeat: int = 0
    ) -> NDArray[np.float32]:
        """Return the adversarial images (N, H, W, C) of one cell, the clean images where the attack failed."""
        return self.run.adversarials(self._cell_key(model, attack, training_seed, repeat))

    @cached_property
    def clean(self) -> NDArray[np.float32] | None:
        """The clean images (N, H, W, C) that were attacked, in [0, 1]; None if the run has no images."""
        return self.run.read_clean()

    def has_adversarials(self, model: str, attack: str) -> bool:
        """Return whether the first cell of a model and an attack was stored with its adversarial images."""
        if self._first_seed(model) not in self.seeds(model, attack):
            return False
        return self.run.has_images(self._cell_key(model, attack))

    def _first_seed(self, model: str) -> int:
        return min(seed for name, seed in self.keys if name == model)


def open_results(directory: str | os.PathLike[str]) -> Results:
    """Read the results of a finished run."""
    run = Run.open(directory)
    return Results(run, *run.read_results())
