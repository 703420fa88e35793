"""What older runs do not say of their attacks: frozen, as those runs are. The first format said next to nothing.

Then readers knew the attacks by their classes. This is what those classes would have said of themselves; no attack of
today is looked up here.
"""

from __future__ import annotations

from typing import Any

from .. import limits
from ..errors import SealError

FORMAT = "robustcmp run 1"
_AN_IMAGE: dict[str, Any] = {}
_CITE = {
    "FGSM": """\
@inproceedings{goodfellow2015explaining,
  title         = {Explaining and Harnessing Adversarial Examples},
  author        = {Goodfellow, Ian J. and Shlens, Jonathon and Szegedy, Christian},
  booktitle     = {International Conference on Learning Representations (ICLR)},
  year          = {2015},
  eprint        = {1412.6572},
  archiveprefix = {arXiv}
}""",
    "SinglePixel": """\
@misc{narodytska2016simple,
  title         = {Simple Black-Box Adversarial Perturbations for Deep Networks},
  author        = {Narodytska, Nina and Kasiviswanathan, Shiva Prasad},
  year          = {2016},
  eprint        = {1612.06299},
  archiveprefix = {arXiv}
}""",
    "Boundary": """\
@inproceedings{brendel2018decision,
  title         = {Decision-Based Adversarial Attacks: Reliable Attacks Against Black-Box Machine Learning Models},
  author        = {Brendel, Wieland and Rauber, Jonas and Bethge, Matthias},
  booktitle     = {International Conference on Learning Representations (ICLR)},
  year          = {2018},
  eprint        = {1712.04248},
  archiveprefix = {arXiv}
}""",
}


def declared(said: dict[str, Any]) -> dict[str, Any]:
    """Return what the manifest says of an attack, with what its class would have said."""
    declare = {"FGSM": _fgsm, "SinglePixel": _single_pixel, "Boundary": _boundary, "FoolboxAttack": _foolbox}
    return said | declare[said["class"]](said["settings"]) | {"cite": _CITE.get(said["class"], "")}


def converging(said: dict[str, Any]) -> dict[str, Any]:
    """Return what a manifest says of an attack, with what it did not say before distances had to have converged."""
    if said["class"] != "Boundary" or "convergence" in said or "l2_half" not in said.get("extras", {}):
        return said
    iterations = said["settings"]["iterations"]
    notes, longer = [], "more iterations"
    if iterations <= 100:
        notes = [f"at {iterations} iterations success only means that a start was found."]
        longer = "the suite boundary-long"
    convergence = {"step": "source_step", "half": "l2_half", "largest_step": 1e-4, "largest_gain": 0.15}
    return said | {
        "convergence": convergence | {"otherwise": f"the walk has not converged; run {longer}"},
        "notes": notes,
    }


def _fgsm(settings: dict[str, Any]) -> dict[str, Any]:
    if not 0 < settings["epsilons"] <= limits.EPSILONS:
        raise SealError(f"expected from 1 to {limits.EPSILONS} epsilons, received {settings['epsilons']}")
    return {
        "norm": "linf",
        "extras": {"smallest_epsilon": _AN_IMAGE},
        "grid": [settings["max_epsilon"] * k / settings["epsilons"] for k in range(1, settings["epsilons"] + 1)],
        "at_epsilon": "smallest_epsilon",
        "in_control": True,
    }


def _single_pixel(settings: dict[str, Any]) -> dict[str, Any]:
    if not settings["exact"]:
        return {"norm": "l0", "in_control": True}
    vulnerable_map = {"dims": ["byte"], "per_repeat": False, "empty": 0}
    return {
        "norm": "l0",
        "extras": {"vulnerable_pixels": _AN_IMAGE, "pixels": _AN_IMAGE, "vulnerable_map": vulnerable_map},
        "position_draws": {
            "vulnerable": "vulnerable_pixels",
            "positions": "pixels",
            "vulnerable_map": "vulnerable_map",
            "tried": settings["max_pixels"],
        },
        "in_control": True,
    }


def _boundary(settings: dict[str, Any]) -> dict[str, Any]:
    within = [
        {"title": f"L2 ≤ {budget}", "value": "l2", "statistic": "within", "limit": budget, "percent": True}
        for budget in (1, 2, 3, 5)
    ]
    return {
        "norm": "l2",
        "extras": dict.fromkeys(("start", "source_step", "spherical_step", "l2_half"), _AN_IMAGE),
        "start": "start",
        "compares_distances": True,
        "table": {
            "title": "starts, success within an L2 distance, and the median distance",
            "columns": [
                {"title": "with a start", "value": "start", "percent": True},
                *within,
                {"title": "median L2", "value": "l2", "statistic": "median"},
            ],
        },
        "expected_failures": ["boundary has converged"] if settings["iterations"] <= 100 else [],
    }


def _foolbox(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "extras": {"epsilon_success": {"dims": ["epsilon"], "in_results": False}} if settings["epsilons"] else {},
        "grid": settings["epsilons"] or [],
        "at_epsilon": "epsilon_success" if settings["epsilons"] else "",
        "notes": ["Foolbox's own, at the largest epsilon; its draws depend on the batch size and the framework."],
    }
