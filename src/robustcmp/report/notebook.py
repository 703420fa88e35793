"""A run as a notebook shows it: the answer, and one table."""

from __future__ import annotations

from ..analysis.results import Results
from . import deployments
from .page import render
from .summary import answer, rates, setting
from .text import title
from .verdict_text import is_nominal, said, said_together


def to_notebook(results: Results) -> str:
    """Return the answer and the rates of a run as HTML that stands in a notebook, light or dark."""
    return render(
        "notebook.html",
        title=title(results),
        setting=setting(results),
        answer=answer(results) if results.compares_sources else "",
        verdicts=[said(verdict, is_nominal(results)) for verdict in results.verdicts],
        together=said_together(results),
        deployed=deployments.answer(results) if results.has_deployments else "",
        table=rates(results),
    )
