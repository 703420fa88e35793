"""Where the variance lies: what makes the rates of two trained models differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...analysis.outcomes import split_variance
from ...analysis.results import Results
from ...errors import UsageError
from .style import Axes, Figure, bare, panel_per_attack

PARTS = {
    "framework": "framework",
    "training_run": "training run",
    "image": "choice of images",
    "repeat": "repeats",
}
GREY = "#7f7f7f"  # the colours are those of models; this one shows on a light and on a dark page


def that_vary(results: Results) -> list[str]:
    """Return the attacks under which the rates of trained models vary; none where their variance cannot be split."""
    try:
        components = split_variance(results.outcomes)[list(PARTS)]
    except UsageError:  # one training of each, or different numbers of them
        return []
    return [str(attack) for attack in components.index[(components.fillna(0) > 0).any(axis=1)]]


def draw(
    results: Results, *, attacks: Sequence[str] | None = None, figure: Figure | None = None
) -> NDArray[np.object_]:
    """Draw the standard deviation of a trained model's success rate by where it comes from, a panel an attack.

    In percentage points. Between frameworks and between training runs of one framework they are components of the
    nested analysis of variance, and a negative estimate of a variance is drawn as 0; what the choice of images and the
    repeats add to one model's rate stands beside them. See `Evaluation.variance`.

    Parameters
    ----------
    attacks : sequence of str, optional
        The attacks to draw; those whose rates vary at all if nothing is said.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new figure if nothing is said.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (attacks,)

    Raises
    ------
    UsageError
        There is one training per framework, their numbers differ, or nothing varies.
    """
    components = split_variance(results.outcomes)
    attacks = that_vary(results) if attacks is None else attacks

    def panel(axes: Axes, attack: str) -> None:
        _panel(axes, attack, [float(components[part][attack]) for part in PARTS])

    return panel_per_attack(attacks, panel, figure, size=(3.4, 2.1))


def _panel(axes: Axes, attack: str, variances: list[float]) -> None:
    deviations = 100 * np.sqrt(np.maximum(variances, 0))
    for position, deviation in enumerate(deviations):
        is_known = np.isfinite(deviation)
        axes.barh(
            position,
            deviation if is_known else 0,
            height=0.65,
            color=GREY,
            linewidth=0,
        )
        axes.annotate(
            f"{deviation:.2f}" if is_known else "not known",
            (deviation if is_known else 0, position),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_yticks(range(len(PARTS)), list(PARTS.values()))
    axes.set(title=f"{attack}: sd, points", xlim=(0, 1.25 * max(np.nanmax(deviations), 0.1)))
    axes.set_ylim(len(PARTS) - 0.5, -0.5)
    bare(axes, "x")
