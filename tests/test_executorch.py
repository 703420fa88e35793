"""ExecuTorch in its environment: programs agree with their sources, and broken files are refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import deployed
import pytest
from conftest import HOSTS

from robustcmp.deployments.executorch import RUNTIME
from robustcmp.errors import DeploymentError, RobustcmpError
from robustcmp.hosts import environments


@pytest.fixture(scope="module", autouse=True)
def runtime() -> Iterator[None]:
    """The environment of this machine's user, as the tests' own cache has none."""
    python = HOSTS / "executorch" / environments.PYTHON
    if not python.exists():
        pytest.skip("there is no environment of ExecuTorch: robustcmp hosts create executorch")
    setup = environments.RUNTIMES["executorch"]
    with pytest.MonkeyPatch.context() as patch:
        start = partial(environments.run, "executorch", python, setup.script, setup.arguments)
        patch.setattr(environments, "start", lambda name: start())
        yield
        if RUNTIME._host._process is not None:
            RUNTIME._host._process.close()


@pytest.mark.slow
@pytest.mark.parametrize("source", deployed.SOURCES, ids=str)
def test_a_float_conversion_answers_as_its_source(source: deployed.Source, tmp_path: Path) -> None:
    model, images = deployed.asked(source)
    session = deployed.converted(RUNTIME, model, "", None, tmp_path)
    deployed.check_agreement(model, session, images)
    deployed.check_independence(session, images)
    deployed.check_threads(session, images[:10])


@pytest.mark.slow
@pytest.mark.parametrize("source", deployed.SOURCES, ids=str)
def test_an_int8_conversion_changes_few_classes(source: deployed.Source, tmp_path: Path) -> None:
    model, images = deployed.asked(source)
    session = deployed.converted(RUNTIME, model, "int8", deployed.calibration(source), tmp_path)
    assert deployed.distance(model, session, images) > 1e-4
    assert deployed.changed(model, session, images) <= 0.05 * len(images)
    deployed.check_independence(session, images)
    deployed.converted(RUNTIME, model, "", None, tmp_path / "float32")
    sizes = [path.stat().st_size for path in (tmp_path / "float32" / "network.pte", tmp_path / "network.pte")]
    assert sizes[0] > 2 * sizes[1]


@pytest.mark.slow
def test_files_that_are_cut_or_no_programs_are_refused(tmp_path: Path) -> None:
    model, _ = deployed.asked(deployed.SOURCES[0])
    path = tmp_path / "a.pte"
    RUNTIME.convert(model, "", None, path)
    whole = path.read_bytes()
    for content in (b"\0" * 100, b"", whole[: len(whole) // 2], whole[:300]):
        path.write_bytes(content)
        with pytest.raises(RobustcmpError):
            RUNTIME.load(path)


def test_what_has_no_architecture_is_refused(tmp_path: Path) -> None:
    model, images = deployed.own_network()
    with pytest.raises(DeploymentError, match="by their architecture"):
        RUNTIME.convert(model, "", images, tmp_path / "a.pte")
