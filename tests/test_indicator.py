"""R(m) on the paper's own rates, and its properties."""

from __future__ import annotations

import math
import tomllib
from fractions import Fraction
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustcmp import robustness_indicator
from robustcmp.analysis.indicator import NO_SPREAD, _common_attacks, _variants, indicator_terms
from robustcmp.errors import UsageError

Exact = dict[str, dict[str, Fraction]]

PAPER: dict[str, Exact] = tomllib.loads(
    (files("robustcmp.resources") / "guo2019.toml").read_text(encoding="utf-8"), parse_float=Fraction
)["success_rate"]

# Rates as they come from counts over 1,000 images: equal, or at least 0.001 apart.
counts = st.integers(0, 1000)


@st.composite
def counted_rates(draw: st.DrawFn, models: int = 1) -> dict[str, dict[str, float]]:
    attacks = [f"attack{i}" for i in range(draw(st.integers(1, 4)))]
    names = [f"model{i}" for i in range(draw(st.integers(models, 5)))]
    return {name: {attack: draw(counts) / 1000 for attack in attacks} for name in names}


def exact_indicator(rates: Exact) -> dict[str, Fraction]:
    result = dict.fromkeys(rates, Fraction(0))
    for attack in next(iter(rates.values())):
        values = [its[attack] for its in rates.values()]
        if max(values) > min(values):
            for model in rates:
                result[model] += (rates[model][attack] - min(values)) / (max(values) - min(values))
    return result


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        # FGSM from 0.201 to 0.283, single pixel from 0.0248 to 0.0366, boundary 1 for all.
        (
            "lenet5",
            {"tensorflow": 0 + Fraction(1), "theano": Fraction(32, 82) + 0, "torch": 1 + Fraction(62, 118)},
        ),
        # FGSM from 0.992 to 1, single pixel from 0.548 to 0.987.
        (
            "vgg16",
            {"tensorflow": 0 + Fraction(22, 4390), "theano": Fraction(1, 8) + 0, "torch": Fraction(2)},
        ),
    ],
)
def test_r_of_the_papers_rates(network: str, expected: dict[str, Fraction]) -> None:
    rates = {model: {a: float(rate) for a, rate in its.items()} for model, its in PAPER[network].items()}
    result = robustness_indicator(rates)
    assert result == pytest.approx({model: float(r) for model, r in expected.items()}, abs=1e-9)


@given(counted_rates())
def test_r_is_the_formula_on_any_counts(rates: dict[str, dict[str, float]]) -> None:
    exact = {m: {a: Fraction(round(rate * 1000), 1000) for a, rate in its.items()} for m, its in rates.items()}
    expected = {model: float(r) for model, r in exact_indicator(exact).items()}
    assert robustness_indicator(rates) == pytest.approx(expected, abs=1e-9)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3),
        st.fixed_dictionaries({"a": st.floats(0, 1), "b": st.floats(0, 1)}),
        min_size=1,
        max_size=6,
    )
)
def test_p_is_from_0_to_1_and_reaches_both_ends(rates: dict[str, dict[str, float]]) -> None:
    terms = indicator_terms(rates)
    for attack in ("a", "b"):
        values = [rates[model][attack] for model in rates]
        p = [terms[model][attack] for model in rates]
        assert all(0 <= value <= 1 for value in p)
        if max(values) - min(values) > NO_SPREAD:
            assert (min(p), max(p)) == (0, 1)
            assert p[values.index(max(values))] == 1
            assert p[values.index(min(values))] == 0
        else:
            assert set(p) == {0}
    assert robustness_indicator(rates) == {model: sum(its.values()) for model, its in terms.items()}


def test_one_model_alone_has_0() -> None:
    assert robustness_indicator({"a": {"fgsm": 0.9, "boundary": 1.0}}) == {"a": 0.0}


@pytest.mark.parametrize("second", [{"fgsm": 0.4}, {"fgsm": 0.4, "pgd": math.nan}, {"fgsm": 0.4, "pgd": math.inf}])
def test_an_attack_that_a_model_lacks_is_left_out(second: dict[str, float]) -> None:
    for rates in (
        {"a": {"fgsm": 0.2, "pgd": 0.9}, "b": second},
        {"b": second, "a": {"fgsm": 0.2, "pgd": 0.9}},
    ):
        assert _common_attacks(rates) == ["fgsm"]
        assert robustness_indicator(rates) == {"a": 0.0, "b": 1.0}
        assert indicator_terms(rates)["a"] == {"fgsm": 0.0}


@pytest.mark.parametrize("rate", [-0.001, 1.001, 20.1])
@pytest.mark.parametrize("model", ["a", "b"])
def test_a_rate_outside_0_to_1_is_an_error(rate: float, model: str) -> None:
    rates = {"a": {"fgsm": 0.2, "pgd": 0.5}, "b": {"fgsm": 0.4, "pgd": 0.5}}
    rates[model]["pgd"] = rate
    with pytest.raises(UsageError, match=rf"should be in \[0, 1\], received .*{rate}.* for 'pgd'"):
        robustness_indicator(rates)


def test_what_r_hides_in_the_papers_own_rates() -> None:
    rates = {model: {attack: float(rate) for attack, rate in its.items()} for model, its in PAPER["lenet5"].items()}
    found = _variants(rates)
    attacks = list(next(iter(rates.values())))
    assert list(found) == ["all", *(f"without {a}" for a in attacks), *(f"{m} left out" for m in rates)]
    assert found["all"] == robustness_indicator(rates)
    terms = indicator_terms(rates)
    for attack in attacks:
        for model, r in found[f"without {attack}"].items():
            assert r == pytest.approx(found["all"][model] - terms[model][attack])
    for model in rates:
        assert found[f"{model} left out"] == robustness_indicator({m: its for m, its in rates.items() if m != model})


def test_with_little_to_leave_out() -> None:
    assert list(_variants({"a": {"x": 0.1}, "b": {"x": 0.2}})) == ["all"]
    assert list(_variants({"a": {"x": 0.1, "y": 0.3}})) == ["all", "without x", "without y"]
