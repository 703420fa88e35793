"""What people bring: it is compared and gives the figures of its plain form, or a message says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from brought import LANGUAGES, Case, attacks, defences, images, models, parametrize, strangers

from robustcmp.cli import gate as gate_command
from robustcmp.errors import RobustcmpError

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.meshgrid:UserWarning"),  # by Foolbox's SpatialAttack
    pytest.mark.filterwarnings("ignore:.*(torch.ao.quantization|torch.jit).*:DeprecationWarning"),
    # Keras reads its own variables in a way that NumPy 2 warns of, when it saves them.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
]


@parametrize([*models.CASES, *images.CASES, *attacks.CASES, *defences.CASES])
def test_what_people_bring(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(LANGUAGES.get(case.group, "numpy"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    if case.message:
        with pytest.raises(RobustcmpError, match=case.message) as caught:
            case.make()
        assert "\n" not in str(caught.value)
        return
    for figures, expected in case.figures(case.make(), case):
        np.testing.assert_allclose(figures, expected, atol=case.near)


@parametrize(strangers.CASES)
def test_models_of_strangers_are_gated(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    make: Callable[[], strangers.Brought] = case.make
    brought = make()
    np.savez("test.npz", images=brought.images, labels=brought.labels)
    Path("suite.toml").write_text(strangers.SUITE)
    options = ["--dataset", "npz:test.npz", "--suite", "suite.toml", "--json", *brought.more]
    assert gate_command.main([*brought.models, *options]) in (0, 3, 4)
    gate = json.loads(capfd.readouterr().out)
    [accuracies] = gate["accuracies"]
    assert accuracies["baseline_accuracy"] >= 0.9
    assert accuracies["accuracy"] >= 0.9
    assert all(attack["images"] >= 0.9 * min(len(brought.images), 40) for attack in gate["attacks"])
