"""What published rates say of how they came about: granularity, and the fingerprints they resemble."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustcmp.analysis.forensics import Fingerprint, distance, fingerprints, nearest, read_published
from robustcmp.analysis.statistics import granularity
from robustcmp.cli import command
from robustcmp.errors import UsageError

RATES = """
[settings]
images = 100
repeats = 4
[success_rate.lenet5]
torch = { fgsm = 0.2, pixel = 0.0250 }
jax = { fgsm = 1, pixel = 0.105 }
"""


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    path = tmp_path / "rates.toml"
    path.write_text(RATES)
    return path


# granularity ---------------------------------------------------------------------------------------------------------


@given(
    st.integers(2, 400),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(2, 6),
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
)
def test_means_are_consistent_with_what_they_were_made_from(
    images: int, repeats: int, times: int, decimals: int, drawn: list[float]
) -> None:
    outcomes = images * repeats
    rates = [round(round(rate * outcomes) / outcomes, decimals) for rate in drawn]
    found = granularity(rates, images, repeats * times, decimals)
    assert repeats in found.consistent
    assert {repeats * k for k in range(1, times + 1)} <= set(found.consistent)
    assert found.fewest == min(found.consistent)
    assert found.rates == sum(0 < rate < 1 for rate in rates)
    assert math.isnan(found.chance) if not found.rates else 0 < found.chance <= 1


@given(st.integers(1, 10), st.integers(1, 20))
def test_the_chance_where_the_decimals_show_every_step(fewest: int, n: int) -> None:
    """1,000 images × 10 repeats to 7 decimals: each rate is one of `fewest` × 1,000 steps by chance fewest / 10."""
    rates = [round((7 * i + 1) / (1000 * fewest), 7) for i in range(1, n + 1)]
    found = granularity(rates, 1000, 10, 7)
    assert found.fewest is not None
    divides = [r for r in range(1, 11) if 10 % r == 0]
    if found.fewest in divides:
        assert found.chance == pytest.approx((found.fewest / 10) ** n)


def test_rates_that_no_number_of_repeats_can_have() -> None:
    found = granularity([0.333, 0.5], images=100, repeats=2, decimals=3)  # steps of 0.005
    assert (found.consistent, found.fewest) == ([], None)
    assert math.isnan(found.chance)


def test_the_papers_rates() -> None:
    """By hand: all twelve are multiples of 0.0002, and 0.0424 is none of 0.001; half of 10,000 outcomes' means are."""
    published = read_published()
    pixel = [rates["single_pixel"] for _, _, rates in published.rows]
    steps = np.array(pixel) / 0.0002
    assert np.allclose(steps, np.rint(steps), rtol=0, atol=1e-9)
    found = published.granularity
    assert published.decimals == 4
    assert found["single_pixel"].fewest == 5
    assert found["single_pixel"].rates == len(pixel) == 12
    assert found["single_pixel"].chance == pytest.approx(2**-12)
    assert found["fgsm"].fewest == 1  # as of an attack without randomness
    assert math.isnan(found["boundary"].chance)  # all are 1


@pytest.mark.parametrize(
    ("rates", "options", "says"),
    [
        ([0.5, 1.5], {}, "from 0 to 1"),
        ([math.nan], {}, "from 0 to 1"),
        ([0.12345], {}, "at most 4 decimals"),
        ([0.5], {"images": 0}, "images should be 1 or more"),
        ([0.5], {"repeats": -1}, "repeats should be 1 or more"),
    ],
)
def test_rates_that_cannot_be(rates: list[float], options: dict[str, int], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        granularity(rates, **({"images": 1000, "repeats": 10, "decimals": 4} | options))


# files ---------------------------------------------------------------------------------------------------------------


def test_a_file_of_rates(rates: Path) -> None:
    published = read_published(rates)
    assert published.attacks == ["fgsm", "pixel"]
    assert published.decimals == 3  # of 0.105
    assert (published.settings.images, published.settings.repeats) == (100, 4)
    assert published.granularity["pixel"].fewest == 2
    assert published.stating(images=200).granularity["pixel"].fewest == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "success_rate"),
        ("[success_rate]", "received none"),
        ("[success_rate.net]\ntorch = { fgsm = 20.1 }", r"net\.torch\.fgsm = 20\.1"),
        ("[success_rate.net]\ntorch = 0.2", "success_rate"),
        ("[success_rate.net", "rates.toml"),
    ],
)
def test_files_that_hold_none(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "rates.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_published(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_published(tmp_path / "none.toml")


# fingerprints --------------------------------------------------------------------------------------------------------


def test_the_fingerprints_that_ship() -> None:
    known = fingerprints()
    assert {one.model for one in known} == {"lenet1", "lenet5", "resnet20"}
    keys = [(one.name, one.model, one.recipe, one.training_seed, one.bounds) for one in known]
    assert len(set(keys)) == len(keys)
    for one in known:
        assert one.images > 0
        assert one.bounds[0] < one.bounds[1]
        assert set(one.rates) == set(one.of_correct) == {"fgsm", "single_pixel", "boundary"}
        for attack, rate in one.rates.items():  # what is misclassified counts as fallen
            among = one.of_correct[attack]
            fallen = 0 if among is None else one.clean_accuracy * among
            assert rate == pytest.approx(1 - one.clean_accuracy + fallen, abs=1e-6)
        if one.name in ("as it should be", "images common to all networks"):
            assert one.clean_accuracy == 1


def of(name: str, model: str = "lenet5", dataset: str = "mnist", **rates: float) -> Fingerprint:
    about = {"recipe": "default", "training_seed": 0, "framework": "torch", "bounds": (0.0, 1.0), "seed": 0}
    measured = {"images": 10, "common": False, "clean_accuracy": 1.0, "test_accuracy": 0.9}
    return Fingerprint(
        name=name,
        model=model,
        dataset=dataset,
        rates=rates,
        of_correct={},
        weights="",
        versions={},
        **about,
        **measured,
    )


def test_the_nearest_come_first() -> None:
    known = [of("far", fgsm=0.9), of("near", fgsm=0.21), of("other attack", pixel=0.2), of("other", "vgg", fgsm=0.2)]
    assert [one.fingerprint.name for one in nearest("lenet5", {"fgsm": 0.2}, known)] == ["near", "far"]
    assert [one.fingerprint.name for one in nearest("lenet5", {"fgsm": 0.2}, known, 1)] == ["near"]


def test_without_a_fingerprint_of_the_network_those_of_its_dataset_are_taken() -> None:
    known = [of("digits", fgsm=0.2), of("pictures", "resnet20", "cifar10", fgsm=0.2)]
    assert [one.fingerprint.name for one in nearest("vgg16", {"fgsm": 0.2}, known)] == ["pictures"]
    assert len(nearest("mine", {"fgsm": 0.2}, known)) == 2


@given(st.dictionaries(st.sampled_from("abc"), st.floats(0, 1), min_size=1))
def test_a_distance(rates: dict[str, float]) -> None:
    assert distance(rates, rates) == 0
    assert distance(rates, {attack: 1 - rate for attack, rate in rates.items()}) <= math.pi + 1e-9
    assert math.isnan(distance(rates, {}))


# the command ---------------------------------------------------------------------------------------------------------


def test_the_command(rates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["forensics", str(rates), "--nearest", "2"]) == 0
    shown = capsys.readouterr().out
    assert "lenet5, torch" in shown
    assert "as it should be" in shown
    assert command.main(["forensics", str(rates), "--json", "--nearest", "2", "--repeats", "6"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], found["repeats"], found["decimals"]) == (100, 6, 3)
    assert found["granularity"]["pixel"]["consistent"] == [2, 4, 6]
    assert found["granularity"]["fgsm"]["rates"] == 1
    assert [len(row["nearest"]) for row in found["published"]] == [2, 2]
    assert found["published"][0]["rates"] == {"fgsm": 0.2, "pixel": 0.025}


def test_the_command_on_the_papers_rates(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["forensics"]) == 0
    shown = capsys.readouterr().out
    assert "2.4e-04" in shown
    assert "vgg16, theano" in shown


def test_numbers_that_cannot_be(rates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["forensics", str(rates), "--images", "0"]) == 2
    assert "--images should be 1 or more" in capsys.readouterr().err
