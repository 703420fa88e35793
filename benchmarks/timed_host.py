"""A host that says how much processor time its logits took; its arguments are those of another."""

import runpy
import sys
import time
from typing import Any

import numpy as np
import protocol

serve = protocol.serve


def serve_timed(network: Any) -> None:
    """Serve a subclass that times what it answers."""

    class Timed(network):  # type: ignore[misc]
        calls = dict(network.calls, seconds=((), "seconds"))
        asked = 0.0

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            answer = self.logits  # some hosts compile it for each network

            def time_logits(images: Any) -> Any:
                start = time.process_time()
                logits = np.asarray(answer(images), np.float32)
                self.asked += time.process_time() - start
                return logits

            self.logits = time_logits

        def seconds(self) -> Any:
            return np.array([time.process_time(), self.asked])

    serve(Timed)


protocol.serve = serve_timed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
