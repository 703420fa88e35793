"""Core ML: networks are converted, and asking says why it cannot be."""

from __future__ import annotations

from pathlib import Path

import deployed
import pytest

from robustcmp.deployments.coreml import RUNTIME
from robustcmp.errors import DeploymentError


@pytest.mark.slow
@pytest.mark.parametrize("source", deployed.SOURCES, ids=str)
def test_a_network_is_converted_and_not_asked(source: deployed.Source, tmp_path: Path) -> None:
    pytest.importorskip("coremltools", exc_type=ImportError)
    model, _ = deployed.asked(source)
    sizes = {}
    for kind in RUNTIME.conversions:
        path = tmp_path / f"a{kind}.mlpackage"
        RUNTIME.convert(model, kind, None, path)
        sizes[kind] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        with pytest.raises(DeploymentError, match="not applicable: Core ML answers on macOS alone"):
            RUNTIME.open(path)
    assert model.architecture is not None
    assert sizes[""] > 4 * model.architecture.parameters > sizes["float16"]
    assert "not applicable" in RUNTIME.missing()
