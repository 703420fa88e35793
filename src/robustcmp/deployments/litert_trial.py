"""One file of LiteRT, from standard input, opened and asked in a process of its own, which it may crash.

A script that `robustcmp.deployments.litert` starts before it opens the file itself. It prints why LiteRT refuses the
file, and then its exit status is 1.
"""

from __future__ import annotations

import os
import sys

IMAGES = (3, 1)  # first another number than a file has by itself


def limit_memory() -> None:
    """Take no more memory than the machine has, so that this process fails and not another one."""
    try:
        import resource
    except ImportError:  # not on every system
        return
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


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
    limit_memory()
    try:
        ask(sys.stdin.buffer.read())
    except Exception as error:
        print(error)
        sys.exit(1)
