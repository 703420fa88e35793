"""Suites: those that ship, any attack of Foolbox, and every kind of mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import foolbox as fb
import pytest

import robustcmp as rc
from robustcmp.analysis.indicator import read_published
from robustcmp.attacks.foolbox import FoolboxAttack
from robustcmp.attacks.suite import FOOLBOX, OURS, load_suite
from robustcmp.errors import UsageError
from robustcmp.records.manifest import suite_names

Write = Callable[[str], Path]
FGSM = '[attacks.x]\nattack = "FGSM"\n'
PGD = '[attacks.x]\nattack = "LinfPGD"\n'


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a suite and returns its path."""

    def write_suite(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_suite


# those that ship


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_that_ships_loads(name: str) -> None:
    suite = load_suite(name)
    assert suite.name == name
    assert suite.description
    assert suite.attacks
    assert suite.images > 0
    assert suite.repeats > 0
    # Settings are stored as JSON and are enough to make the attack again.
    for attack in suite.attacks.values():
        assert type(attack)(**attack.settings).settings == attack.settings


def test_the_suites_that_are_promised() -> None:
    assert {"guo2019", "smoke", "boundary-long", "control"} <= set(suite_names())


def test_guo2019_is_the_papers() -> None:
    settings = read_published()["settings"]
    suite = load_suite("guo2019")
    assert (suite.images, suite.repeats) == (settings["images"], settings["repeats"]) == (1000, 10)
    assert list(suite.attacks) == ["fgsm", "single_pixel", "boundary"]
    classes = {"fgsm": rc.attacks.FGSM, "single_pixel": rc.attacks.SinglePixel, "boundary": rc.attacks.Boundary}
    for name, attack in suite.attacks.items():
        assert type(attack) is classes[name]
        exact = {"exact": True} if name == "single_pixel" else {}  # what it knows beside the paper's draws
        assert attack.settings == classes[name](**settings[name], **exact).settings
        assert settings[name].items() <= attack.settings.items()


def test_control_is_guo2019_without_what_the_control_does_not_hold() -> None:
    control, guo2019 = load_suite("control"), load_suite("guo2019")
    assert control.images == guo2019.images
    assert [type(attack).__name__ for attack in control.attacks.values()] == [
        name for name, cls in OURS.items() if cls.in_control
    ]
    for name, attack in control.attacks.items():
        assert attack.settings.items() <= {**guo2019.attacks[name].settings, "exact": False}.items()


def test_boundary_long_runs_long() -> None:
    suite = load_suite("boundary-long")
    assert (suite.images, suite.repeats) == (100, 1)
    settings = suite.attacks["boundary"].settings
    assert (settings["iterations"], settings["max_directions"]) == (5000, 25)


# files


def test_a_file_of_ones_own(write: Write) -> None:
    suite = load_suite(
        write('description = "short"\nimages = 7\nrepeats = 2\n' + FGSM + "epsilons = 4\nmax_epsilon = 1\n")
    )
    assert (suite.name, suite.description, suite.images, suite.repeats) == ("mine", "short", 7, 2)
    assert suite.attacks["x"].settings == {"epsilons": 4, "max_epsilon": 1.0}
    assert suite.attacks["x"].grid == [0.25, 0.5, 0.75, 1.0]


def test_a_path_may_be_a_string(write: Write) -> None:
    path = write(FGSM)
    assert load_suite(str(path)).attacks.keys() == load_suite(path).attacks.keys() == {"x"}


def test_attacks_stay_in_the_order_of_the_file(write: Write) -> None:
    names = ["b", "a", "c2", "a_b"]
    path = write("".join(f'[attacks.{name}]\nattack = "FGSM"\n' for name in names))
    assert list(load_suite(path).attacks) == names


def test_what_is_left_out_is_the_papers(write: Write) -> None:
    suite = load_suite(write(FGSM))
    assert (suite.images, suite.repeats) == (1000, 10)
    assert suite.attacks["x"].settings == {"epsilons": 100, "max_epsilon": 0.1}


def test_ours_wins_over_foolboxs_alias(write: Write) -> None:
    assert fb.attacks.FGSM is not rc.attacks.FGSM
    assert type(load_suite(write(FGSM)).attacks["x"]) is rc.attacks.FGSM
    other = load_suite(write('[attacks.x]\nattack = "LinfFastGradientAttack"\nepsilons = [0.1]\n')).attacks["x"]
    assert isinstance(other, FoolboxAttack)
    assert type(other._wrapped) is fb.attacks.FGSM


# Foolbox's


def test_an_attack_of_foolbox_with_its_parameters(write: Write) -> None:
    attack = load_suite(write(PGD + "epsilons = [0.3, 0.1, 1]\nsteps = 5\nrandom_start = false\n")).attacks["x"]
    assert isinstance(attack, FoolboxAttack)
    assert type(attack._wrapped) is fb.attacks.LinfPGD
    assert attack._wrapped.steps == 5
    assert attack._wrapped.random_start is False
    assert attack.grid == [0.1, 0.3, 1.0]
    assert attack.settings == {
        "class": fb.attacks.LinfPGD.__name__,
        "steps": 5,
        "random_start": False,
        "epsilons": [0.1, 0.3, 1.0],
        "foolbox": fb.__version__,
    }
    assert attack.needs_gradient
    assert not attack.deterministic


def test_an_attack_that_looks_for_the_smallest_needs_no_epsilons(write: Write) -> None:
    attack = load_suite(write('[attacks.x]\nattack = "L2CarliniWagnerAttack"\nsteps = 3\n')).attacks["x"]
    assert isinstance(attack, FoolboxAttack)
    assert type(attack._wrapped) is fb.attacks.L2CarliniWagnerAttack
    assert attack.grid == []
    assert attack.settings["epsilons"] is None


@pytest.mark.parametrize("name", sorted(FOOLBOX.keys() - OURS.keys()))
def test_any_attack_of_foolbox_loads_or_says_why_not(name: str, write: Write) -> None:
    path = write(f'[attacks.x]\nattack = "{name}"\nepsilons = [0.1]\n')
    try:
        attack = load_suite(path).attacks["x"]
    except UsageError as error:
        message = str(error)
    else:
        assert isinstance(attack, FoolboxAttack)
        assert type(attack._wrapped) is FOOLBOX[name]
        return
    assert message.startswith(f"the suite {path}: [attacks.x]: {name}")
    assert "missing" in message or "needs another package" in message or "remove the key epsilons" in message


def test_a_package_that_foolbox_lacks_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lacking(fb.attacks.L2DeepFoolAttack):
        def __init__(self) -> None:
            raise ModuleNotFoundError("No module named 'numba'", name="numba")

    monkeypatch.setitem(FOOLBOX, "Lacking", Lacking)
    with pytest.raises(UsageError, match=r"mine\.toml: \[attacks\.x\]: Lacking needs another package: .*numba"):
        load_suite(write('[attacks.x]\nattack = "Lacking"\n'))


# mistakes

MISTAKES: dict[str, tuple[str, list[str]]] = {
    "unknown key": (
        "imges = 3\n" + FGSM,
        ["'imges'", "did you mean 'images'", "attacks, description, images, repeats"],
    ),
    "unknown parameter": (
        FGSM + "epsilon = 3\n",
        ["[attacks.x]", "FGSM", "'epsilon'", "did you mean 'epsilons'", "epsilons, max_epsilon"],
    ),
    "unknown parameter of Foolbox's": (
        PGD + "epsilons = [0.1]\nstep = 3\n",
        ["[attacks.x]", "LinfPGD", "'step'", "did you mean 'steps'", "random_start"],
    ),
    "unknown attack": (
        '[attacks.x]\nattack = "SinglePixl"\n',
        ["[attacks.x]", "'SinglePixl'", "'SinglePixel'", "FGSM"],
    ),
    "unknown attack of Foolbox's": ('[attacks.x]\nattack = "LinfPDG"\n', ["[attacks.x]", "did you mean 'LinfPGD'"]),
    "no attack named": ("[attacks.x]\nepsilons = 3\n", ["[attacks.x]", "key attack", "received None"]),
    "attack is no name": ("[attacks.x]\nattack = 3\n", ["[attacks.x]", "key attack", "received 3"]),
    "attack is abstract": (
        '[attacks.x]\nattack = "MinimizationAttack"\n',
        ["[attacks.x]", "unknown attack 'MinimizationAttack'"],
    ),
    "no attacks": ("images = 3\n", ["attacks"]),
    "attacks are empty": ("[attacks]\n", ["[attacks.NAME]"]),
    "attacks are no table": ("attacks = 3\n", ["attacks", "int"]),
    "an attack is no table": ("[attacks]\nfgsm = 3\n", ["attacks", "int"]),
    "capital in a name": ('[attacks.Fgsm]\nattack = "FGSM"\n', ["[attacks.Fgsm]", "a-z, 0-9 and _"]),
    "space in a name": ('[attacks."a b"]\nattack = "FGSM"\n', ["[attacks.a b]", "a-z, 0-9 and _"]),
    "digit before a name": ('[attacks.1a]\nattack = "FGSM"\n', ["[attacks.1a]", "a-z, 0-9 and _"]),
    "empty name": ('[attacks.""]\nattack = "FGSM"\n', ["[attacks.]", "a-z, 0-9 and _"]),
    "no images": ("images = 0\n" + FGSM, ["images", "int", ">= 1"]),
    "no repeats": ("repeats = 0\n" + FGSM, ["repeats", "int", ">= 1"]),
    "negative repeats": ("repeats = -1\n" + FGSM, ["repeats", "int", ">= 1"]),
    "images are text": ('images = "many"\n' + FGSM, ["images", "int", "str"]),
    "repeats are broken": ("repeats = 2.5\n" + FGSM, ["repeats", "int", "float"]),
    "description is a number": ("description = 3\n" + FGSM, ["description", "str", "int"]),
    "parameter is text": (FGSM + 'max_epsilon = "big"\n', ["[attacks.x]", "max_epsilon", "float", "str"]),
    "parameter is a list": (FGSM + "epsilons = [0.1]\n", ["[attacks.x]", "epsilons", "int", "array"]),
    "parameter is truth": (
        '[attacks.x]\nattack = "SinglePixel"\nmax_pixels = true\n',
        ["[attacks.x]", "max_pixels", "int", "bool"],
    ),
    "truth is a number": ('[attacks.x]\nattack = "SinglePixel"\nexact = 1\n', ["[attacks.x]", "exact", "bool", "int"]),
    "parameter of Foolbox's is broken": (
        PGD + "epsilons = [0.1]\nsteps = 5.5\n",
        ["[attacks.x]", "LinfPGD", "steps", "int", "float"],
    ),
    "parameter is an object": (
        '[attacks.x]\nattack = "BoundaryAttack"\ninit_attack = "LinfPGD"\n',
        ["[attacks.x]", "BoundaryAttack", "init_attack"],
    ),
    "FGSM without steps": (FGSM + "epsilons = 0\n", ["[attacks.x]", "epsilons should be 1 or more", "received 0"]),
    "FGSM without size": (FGSM + "max_epsilon = 0.0\n", ["[attacks.x]", "max_epsilon should be more than 0", "0.0"]),
    "FGSM without end": (FGSM + "max_epsilon = inf\n", ["attacks.x.max_epsilon", "inf"]),
    "FGSM of no number": (
        FGSM + "max_epsilon = nan\n",
        ["attacks.x.max_epsilon should be a finite number", "nan"],
    ),
    "no pixels": (
        '[attacks.x]\nattack = "SinglePixel"\nmax_pixels = 0\n',
        ["[attacks.x]", "max_pixels should be 1 or more", "0"],
    ),
    "no iterations": ('[attacks.x]\nattack = "Boundary"\niterations = 0\n', ["[attacks.x]", "iterations", "0"]),
    "no step": (
        '[attacks.x]\nattack = "Boundary"\nsource_step = 0.0\n',
        ["[attacks.x]", "source_step should be more than 0"],
    ),
    "epsilons missing": (PGD, ["[attacks.x]", "LinfPGD", "key epsilons"]),
    "epsilons empty": (PGD + "epsilons = []\n", ["[attacks.x]", "epsilons", ">= 1"]),
    "epsilons negative": (PGD + "epsilons = [0.1, -0.1]\n", ["[attacks.x]", "epsilons", "> 0"]),
    "epsilons zero": (PGD + "epsilons = [0.0]\n", ["[attacks.x]", "epsilons", "> 0"]),
    "epsilons without end": (PGD + "epsilons = [inf]\n", ["attacks.x.epsilons", "inf"]),
    "epsilons are one number": (PGD + "epsilons = 0.1\n", ["[attacks.x]", "epsilons", "array", "float"]),
    "epsilons are text": (PGD + 'epsilons = ["a"]\n', ["[attacks.x]", "epsilons", "float", "str"]),
    "no TOML": ("[attacks.x\n", ["line 1"]),
    "a key twice": (FGSM + "epsilons = 3\nepsilons = 4\n", ["line 4"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_the_file_the_key_and_what_is_allowed(mistake: str, write: Write) -> None:
    text, parts = MISTAKES[mistake]
    path = write(text)
    with pytest.raises(UsageError) as caught:
        load_suite(path)
    message = str(caught.value)
    assert message.startswith(f"the suite {path}: ")
    assert [part for part in parts if part not in message] == [], message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["guo2091", "Guo2019"])
def test_an_unknown_name(name: str) -> None:
    with pytest.raises(UsageError, match=rf"unknown suite '{name}': did you mean 'guo2019'\? .*FILE\.toml.*smoke"):
        load_suite(name)


@pytest.mark.parametrize("name", ["", ".", "../guo2019"])
def test_a_name_that_is_no_file_either(name: str) -> None:
    with pytest.raises(UsageError, match=r"unknown suite .*Expected one of FILE\.toml, "):
        load_suite(name)
