"""One ONNX file, opened and asked by ONNX Runtime: a script for `robustcmp.deployments.trial`.

The file has no values in other files, and no library of operators is loaded for it.
"""

from __future__ import annotations

import sys

IMAGES = (3, 1)
SIDE = 32  # of images, where any size is taken
DTYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16"}


def ask(content: bytes) -> None:
    """Ask a network with images of ones, in batches of several sizes where it takes them."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    for n in IMAGES:
        taken = {}
        for value in session.get_inputs():
            open_sizes = [n, *[SIDE] * len(value.shape)]
            sizes = [size if isinstance(size, int) else open_sizes[i] for i, size in enumerate(value.shape)]
            taken[value.name] = np.ones([max(size, 1) for size in sizes], DTYPES.get(value.type, value.type[7:-1]))
        session.run(None, taken)


if __name__ == "__main__":
    ask(sys.stdin.buffer.read())
