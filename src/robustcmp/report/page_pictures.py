"""The pictures of a page: Matplotlib's SVG, inline, in colours that the page's style decides."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import printable
from .plots.style import COLORS, as_picture

if TYPE_CHECKING:
    from markupsafe import Markup

STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud and set in the page's font
    "text.parse_math": False,  # a name with two dollars is a name
    "svg.hashsalt": "robustcmp",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
}
VARIABLES = {color: f"var(--data-{place})" for place, color in enumerate(COLORS)} | {
    "#000000": "currentColor",
    "#ffffff": "var(--paper)",
    "#b0b0b0": "var(--line)",
}
"""What a colour of Matplotlib becomes in the page, which has values for light and for dark."""
SMALL = 64  # pixels: the longest side of an image in the page


class Picture(NamedTuple):
    """A picture with its text alternative."""

    svg: Markup
    width: float


Draw = Callable[[Any], object]


class Pictures:
    """Draws the pictures of one run.

    Parameters
    ----------
    prefix : str
        What the identifiers of its pictures begin with, so that no two in a page are alike.
    """

    def __init__(self, prefix: str):
        self.prefix = prefix
        self.count = 0

    def draw(self, draw: Draw, title: str, description: str) -> Picture:
        """Return what a function draws into the figure that it is passed.

        Parameters
        ----------
        draw : callable
            Takes a Matplotlib figure.
        title, description : str
            What it shows, and what is to be seen: for those who do not see it.
        """
        from markupsafe import Markup, escape
        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        self.count += 1
        name = f"{self.prefix}{self.count}"
        stream = io.StringIO()
        with rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the browser has others
            figure = Figure()
            FigureCanvasSVG(figure)
            draw(figure)
            figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
        inner = _inner(stream.getvalue(), name)
        width, height = (72 * side for side in figure.get_size_inches())
        svg = (
            f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{name}-title {name}-desc">'
            f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
            f"{inner}</svg>"
        )
        return Picture(Markup(printable(svg)), width)


def _inner(svg: str, name: str) -> str:
    """Return what stands in an SVG, with identifiers of its own and colours that the page decides."""
    inner = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    inner = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", inner, flags=re.DOTALL)
    inner = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', inner)
    inner = re.sub(r'href="#([^"]*)"', rf'href="#{name}-\1"', inner.replace("xlink:href", "href"))
    inner = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", inner)
    inner = inner.replace("'DejaVu Sans', sans-serif", "var(--font)").replace("'DejaVu Sans'", "var(--font)")
    inner = re.sub(r"\n\s*", "\n", inner)
    return re.sub("|".join(VARIABLES), lambda found: VARIABLES[found[0].lower()], inner, flags=re.IGNORECASE)


def png(image: NDArray[np.float32]) -> str:
    """Return an image (H, W, C) in [0, 1] as a data URI, scaled down where it is large."""
    from PIL import Image

    drawn = Image.fromarray(np.rint(np.clip(as_picture(image), 0, 1) * 255).astype(np.uint8))
    drawn.thumbnail((SMALL, SMALL))
    stream = io.BytesIO()
    drawn.save(stream, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
