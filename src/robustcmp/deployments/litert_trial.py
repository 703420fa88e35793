"""One file of LiteRT, opened and asked: a script for `robustcmp.deployments.trial`."""

from __future__ import annotations

import sys

IMAGES = (3, 1)  # first another number than a file has by itself


def ask(content: bytes) -> None:
    """Ask a network with images of ones, in batches of several sizes where it takes them."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content)
    for n in IMAGES:
        for taken in interpreter.get_input_details():
            if taken["shape_signature"][:1] == -1:
                interpreter.resize_tensor_input(taken["index"], [n, *taken["shape"][1:]], strict=True)
        interpreter.allocate_tensors()
        for taken in interpreter.get_input_details():
            interpreter.set_tensor(taken["index"], np.ones(taken["shape"], taken["dtype"]))
        interpreter.invoke()
        for given in interpreter.get_output_details():
            interpreter.get_tensor(given["index"])


if __name__ == "__main__":
    ask(sys.stdin.buffer.read())
