"""The answer of a gate: on a screen, as Markdown, as JUnit XML, and on the page of its run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import msgspec

from ..analysis.gate import AccuracyVerdict, AttackVerdict, Gate
from ..analysis.results import Results
from .format import percent, plural
from .layout import Column, Table, names, write_markdown, write_text
from .page import SECTIONS, Block, Section, render_page
from .words import describe_setting, title


def to_text(gate: Gate, width: int | None = None, color: bool = False) -> str:
    """Return the answer for a terminal."""
    return write_text(_say_outcome(gate), [], _tables(gate), _notes(gate), width, color).rstrip()


def to_markdown(gate: Gate) -> str:
    """Return the answer for the summary of a job."""
    return write_markdown([_say_outcome(gate)], _tables(gate), _notes(gate))


def to_html(gate: Gate, results: Results) -> str:
    """Return the page of a run with the answer of its gate at the top."""
    blocks = [Block("answer", _say_outcome(gate)), Block("list", _notes(gate))]
    blocks += [Block("table", table) for table in _tables(gate)]
    section = Section("gate", "The gate", "", lambda _results, _pictures: blocks)
    return render_page([section, *SECTIONS], results, title(results), describe_setting(results))


def to_json(gate: Gate) -> str:
    """Return the verdicts as JSON of the schema ``gate.schema.json``, rates and margins as fractions."""
    return msgspec.json.encode(gate).decode()


def _say_outcome(gate: Gate) -> str:
    """Return the answer in one sentence."""
    models = [verdict.model for verdict in gate.accuracies]
    new = f"{', '.join(models)} {'is' if len(models) == 1 else 'are'}"
    margin = _points(gate.margin)
    if gate.outcome == "easier":
        worse = [f"{verdict.model} under {verdict.attack}" for verdict in gate.attacks if verdict.answer == "easier"]
        return f"Not passed: easier to fool than {gate.baseline} by more than {margin}: {', '.join(worse)}."
    if gate.outcome == "less accurate":
        worse = [verdict.model for verdict in gate.accuracies if verdict.answer == "worse"]
        more = _points(gate.accuracy_margin)
        return f"Not passed: less accurate than {gate.baseline} by more than {more}: {', '.join(worse)}."
    if gate.outcome == "passed":
        return f"Passed: {new} not easier to fool than {gate.baseline} (margin {margin})."
    return f"Not shown that {new} not easier to fool than {gate.baseline} (margin {margin})."


def _explain_attack(verdict: AttackVerdict) -> str:
    """Return why there is no answer under an attack, or not the usual one, "" otherwise."""
    if verdict.gradient_of and verdict.answer != "not shown":
        return (
            f"{verdict.attack} follows the gradient of {verdict.gradient_of} on a model that answers differently: a "
            "gradient of its own might fool more images."
        )
    if verdict.answer == "uninformative":
        return f"{verdict.attack} fools too few or too many images of both models to compare them."
    if verdict.answer != "not shown":
        return ""
    if verdict.images_needed is not None:
        return f"{verdict.attack}: about {verdict.images_needed:,} images would show it; there are {verdict.images:,}."
    if verdict.unit == "training":
        return f"{verdict.attack}: trainings differ too much; compare more of them."
    return f"{verdict.attack}: the difference found is near or above the margin, so more images may not show it."


def _explain_accuracy(gate: Gate, verdict: AccuracyVerdict) -> str:
    """Return what is shown about clean accuracy."""
    rates = (
        f"Clean accuracy {100 * verdict.baseline_accuracy:.1f} % and {100 * verdict.accuracy:.1f} % ({verdict.model})"
    )
    if verdict.answer == "holds":
        return f"{rates}: at most {_points(max(verdict.high, 0))} lower."
    if verdict.answer == "worse":
        return f"{rates}: at least {_points(verdict.low)} lower."
    return (
        f"{rates}: {plural(verdict.images, 'image')} do not show that it holds within {_points(gate.accuracy_margin)}."
    )


def _tables(gate: Gate) -> list[Table]:
    """Return a table for each new model with a row for each attack, fit for 80 columns."""
    return [_table(gate, accuracy.model) for accuracy in gate.accuracies]


def _table(gate: Gate, model: str) -> Table:
    verdicts = [verdict for verdict in gate.attacks if verdict.model == model]
    rates = [Column("old", percent), Column("new", percent)]
    differences = [Column("points more", _signed_points), Column("at most", _signed_points)]
    columns = [*names("attack"), *rates, *differences, *names("answer")]
    rows: list[tuple[Any, ...]] = [
        (verdict.attack, verdict.baseline_rate, verdict.rate, verdict.difference, verdict.high, verdict.answer)
        for verdict in verdicts
    ]
    if any(verdict.rounded is not None for verdict in verdicts):
        columns.append(Column("both in 8 bits", _write_rounded))
        rows = [(*row, verdict) for row, verdict in zip(rows, verdicts, strict=True)]
    return Table(f"Images fooled, of {gate.baseline} and {model} (at most: 95 % upper bound)", columns, rows)


def _notes(gate: Gate) -> list[str]:
    """Return what stands below the table."""
    lines = [_explain_accuracy(gate, verdict) for verdict in gate.accuracies]
    lines += [f"{attack} is not compared: a model has no gradient, or cannot run it." for attack in gate.not_run]
    for verdict in gate.attacks:
        if explanation := _explain_attack(verdict):
            lines.append(f"{verdict.model}, {explanation}" if len(gate.accuracies) > 1 else explanation)
    return lines


def write_junit(gate: Gate) -> str:
    """Return JUnit XML with a test case for each verdict; what is not shown is a failure."""
    suite = ElementTree.Element("testsuite", name=f"robustcmp gate {gate.baseline}")
    verdicts: Sequence[AttackVerdict | AccuracyVerdict] = [*gate.attacks, *gate.accuracies]
    for verdict in verdicts:
        if isinstance(verdict, AttackVerdict):
            name, text = (
                verdict.attack,
                _explain_attack(verdict) or f"{_points(verdict.difference)} more images are fooled",
            )
        else:
            name, text = "clean accuracy", _explain_accuracy(gate, verdict)
        case = ElementTree.SubElement(suite, "testcase", classname=verdict.model, name=name)
        if verdict.answer == "uninformative":
            ElementTree.SubElement(case, "skipped", message=text)
        elif verdict.answer not in ("not easier", "holds"):
            ElementTree.SubElement(case, "failure", message=text, type=verdict.answer)
    for attack in gate.not_run:
        case = ElementTree.SubElement(suite, "testcase", classname=gate.baseline, name=attack)
        ElementTree.SubElement(case, "skipped", message="a model has no gradient, or cannot run it")
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _write_rounded(verdict: AttackVerdict) -> str:
    """Return both success rates after rounding to 8 bits."""
    if verdict.baseline_rounded is None or verdict.rounded is None:
        return ""
    return f"{100 * verdict.baseline_rounded:.1f}, {100 * verdict.rounded:.1f}"


def _signed_points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _points(value: float) -> str:
    return f"{100 * value:.1f} points"
