"""The host of programs of PyTorch, TorchScript or `torch.export`. They can run code, so they run here alone.

`load` takes `program`, uint8, and its ``kind``, and answers ``is``, its number; `sizes` answers `input`, int64: the
sizes of a batch (N, C, H, W), 0 where one is open; `logits` takes such a batch.
"""

import io
import warnings
from typing import Any, List

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # the operators of programs in int8, which it registers
from protocol import Array, Arrays, Network, serve

CHANNELS = (3, 1, 4)
SIDES = (224, *range(4, 128), *range(128, 385, 16), 227, 299)  # of images that a TorchScript program is tried with
ANY = (32, 64)  # a program that answers images of both is taken to answer any
warnings.simplefilter("ignore")


class _Program:
    """A program that is ready to be asked."""

    def __init__(self, content: bytes, kind: str) -> None:
        if kind == "TorchScript":
            jit: Any = torch.jit
            self._network = jit.load(io.BytesIO(content), map_location="cpu").eval()
            self._sizes = self._try_sizes()
        else:
            program = torch.export.load(io.BytesIO(content))
            self._network = program.module()
            inputs = program.graph_signature.user_inputs
            (images,) = (node for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs)
            self._sizes = [size if isinstance(size, int) else 0 for size in images.meta["val"].shape]

    def _try_sizes(self) -> List[int]:
        """Return the sizes of a batch, which a TorchScript program does not say."""
        for channels in CHANNELS:
            if all(self._takes(channels, side) for side in ANY):
                return [0, channels, 0, 0]
            for side in SIDES:
                if self._takes(channels, side):
                    return [0, channels, side, side]
        raise ValueError(
            "a TorchScript program does not say the size of its images, and this one answers no square images that "
            "were tried. Save it with torch.export, or return it from a function of your own, module:function"
        )

    def _takes(self, channels: int, side: int) -> bool:
        try:
            return len(self.logits(np.zeros((2, channels, side, side), np.float32))) == 2
        except Exception:  # it can raise anything
            return False

    def sizes(self) -> Arrays:
        """Return the shape of a batch."""
        return {"input": np.array(self._sizes)}

    def logits(self, images: Array) -> Array:
        """Return the answer to images in its own layout."""
        with torch.no_grad():
            answer = self._network(torch.from_numpy(images))
        if not isinstance(answer, torch.Tensor):
            raise ValueError(f"expected a program that returns logits (N, K), received a {type(answer).__name__}")
        return answer.float().numpy()


class _TorchProgram(Network):  # type: ignore[misc]
    framework = "torch"
    version = torch.__version__
    calls = {"load": (("program", "kind"), "is"), "sizes": ((), "arrays")}

    threads = staticmethod(torch.set_num_threads)

    @staticmethod
    def load(program: Array, kind: str) -> _Program:
        return _Program(program.tobytes(), kind)


if __name__ == "__main__":
    serve(_TorchProgram)
