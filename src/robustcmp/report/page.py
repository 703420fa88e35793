"""One self-contained page: the tables, the notes, and a few adversarial images."""

from __future__ import annotations

import base64
import io
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.paper import published
from ..analysis.results import Results
from .headline import headline
from .notes import notes
from .tables import tables
from .text import title

SHOWN_IMAGES = 6


def to_html(results: Results) -> str:
    """Return one self-contained page: the tables, the notes, and a few adversarial images."""
    from jinja2 import Environment

    template = (files("robustcmp.resources") / "report.html").read_text(encoding="utf-8")
    return (
        Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        .from_string(template)
        .render(
            title=title(results),
            headline=headline(results),
            tables=tables(results),
            notes=notes(results),
            galleries=[gallery for attack in results.attacks for gallery in _gallery(results, attack)],
            environment=results.manifest["environment"],
            models=results.manifest["models"],
            paper=published()["settings"] if results.paper else None,
        )
    )


def _gallery(results: Results, attack: str) -> list[dict[str, Any]]:
    """Return, for each model, its first adversarial images with what they are taken for."""
    galleries = []
    for model in results.models:
        if not results.has_adversarials(model, attack):
            continue
        outcome = results.dataset.sel(model=model, attack=attack, training_seed=results.first_seed(model)).isel(
            repeat=0
        )
        images = results.adversarials(model, attack)
        shown = [
            {
                "source": _png(images[i]),
                "caption": f"{int(outcome.label[i])} taken for {int(outcome.adversarial_class[i])}, "
                f"L2 {float(outcome.l2[i]):.2f}",
            }
            for i in np.flatnonzero(outcome.success.values)[:SHOWN_IMAGES]
        ]
        if shown:
            galleries.append({"attack": attack, "model": model, "images": shown})
    return galleries


def _png(image: NDArray[np.float32]) -> str:
    """Return an image (H, W, C) in [0, 1] as a data URI."""
    from PIL import Image

    pixels = np.rint(image * 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(stream, format="PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
