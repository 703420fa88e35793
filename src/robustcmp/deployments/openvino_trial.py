"""One network of OpenVINO, opened and asked: a script for `robustcmp.deployments.trial`.

From standard input come its .xml and its .bin file, one after the other, with the length of the first in eight bytes
before them.
"""

from __future__ import annotations

import sys

LENGTH = 8  # bytes


def ask(content: bytes) -> None:
    """Ask a network with an image of ones, or with as many as it takes."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # as in openvino.py
    import numpy as np
    import openvino

    end = LENGTH + int.from_bytes(content[:LENGTH], "little")
    core = openvino.Core()
    try:
        network = core.read_model(content[LENGTH:end], content[end:])
    except Exception as error:
        raise ValueError(f"it is no network of OpenVINO, or it or its .bin file is cut: {error}") from None
    request = core.compile_model(network, "CPU", {"INFERENCE_NUM_THREADS": 1}).create_infer_request()
    taken = {}
    for place, given in enumerate(network.inputs):
        sizes = [1 if size.is_dynamic else size.get_length() for size in given.partial_shape]
        taken[place] = np.ones(sizes, given.get_element_type().to_dtype())
    request.infer(taken)


if __name__ == "__main__":
    ask(sys.stdin.buffer.read())
