"""Files of PyTorch weights from anywhere, read without running anything that they hold."""

from __future__ import annotations

import mmap
import re
import warnings
from pathlib import Path
from typing import Any

import torch

from ..errors import LOG, ModelError, UsageError, WeightsError
from ..networks.architecture import Shape
from ..networks.weights import pair_arrays
from ..untrusted import check_archive, is_archive

SAFETENSORS = ".safetensors"
COUNTERS = ("num_batches_tracked", "n_averaged")


def load_weights(path: Path, native: Any) -> torch.nn.Module:
    """Return a module with the arrays of a file, told by their names or, where the names are others, their shapes."""
    if not isinstance(native, torch.nn.Module):
        raise ModelError(f"expected a torch.nn.Module for the weights of {path}, received {type(native).__name__}")
    expected = _arrays(native.state_dict())
    received = _arrays(_state_dict(path))
    if any(torch.nn.parameter.is_lazy(tensor) for tensor in expected.values()):
        raise ModelError(f"the network for {path} has lazy layers: call it once, so that its shapes are known")
    pairs = pair_arrays(_shapes(received), _shapes(expected), str(path))
    if not all(theirs.endswith(ours) for ours, theirs in pairs.items()):
        some = ", ".join(f"{theirs} as {ours}" for ours, theirs in list(pairs.items())[:2])
        LOG.warning("%s names its arrays in its own way, so they are told by their shapes: %s, …", path, some)
    parameters = dict(native.named_parameters())
    for ours, theirs in pairs.items():
        _check_values(f"{path}: {theirs}", received[theirs], expected[ours], ours in parameters)
    with torch.no_grad():
        for ours, theirs in pairs.items():
            expected[ours].copy_(received[theirs])
    return native.eval()


def _state_dict(path: Path) -> dict[str, Any]:
    if path.suffix == SAFETENSORS:
        return _safetensors(path)
    _check_archive(path)
    try:
        with warnings.catch_warnings():
            # An error follows where it matters.
            warnings.filterwarnings("ignore", r"Detected pickle protocol|torch\.quantize|TypedStorage")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a broken archive can raise anything
        refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it refers to {refused[1]}" if refused else type(error).__name__
        raise WeightsError(
            f"{path} is broken, or it holds more than tensors, which is not loaded because it could run code "
            f"({reason}). Save its weights alone with torch.save(network.state_dict(), path), or return the network "
            "from a function of your own, module:function."
        ) from None
    if isinstance(content, dict) and "pytorch-lightning_version" in content:  # whose averaged weights have a copy
        content = content.get("state_dict")
    inner = {key: value for key, value in content.items() if _is_state_dict(value)} if isinstance(content, dict) else {}
    if len(inner) == 1:  # a checkpoint with more beside it
        (content,) = inner.values()
    if not _is_state_dict(content):
        names = ", ".join(map(str, inner or content))[:200] if isinstance(content, dict) else "no names"
        raise WeightsError(
            f"{path} should hold one state dict, tensors by their names; received a {type(content).__name__} with "
            f"{names or 'nothing'}. Save it with torch.save(network.state_dict(), path)."
        )
    return dict(content)


def _safetensors(path: Path) -> dict[str, Any]:
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise UsageError(
            f'{path} takes the package safetensors, which is not installed: pip install "robustcmp[safetensors]"'
        ) from None
    try:
        content: dict[str, Any] = load_file(path)
    except Exception as error:  # a broken file can raise anything
        raise WeightsError(
            f"{path} is no whole safetensors file ({type(error).__name__}: {' '.join(str(error).split())[:200]}). Save "
            "it with safetensors.torch.save_model(network, path), or copy it again."
        ) from None
    if not content:
        raise WeightsError(f"{path} holds no tensors. Save it with safetensors.torch.save_model(network, path).")
    return content


def _is_state_dict(content: Any) -> bool:
    named = isinstance(content, dict) and bool(content) and all(isinstance(name, str) for name in content)
    return named and all(isinstance(tensor, torch.Tensor) for tensor in content.values())


# A file can ask torch to make an array of any size, or to move a tensor to a device; a state dict does neither.
NOT_IN_STATE_DICTS = (b"bytearray", b"_rebuild_device_tensor")


def _check_archive(path: Path) -> None:
    """Raise `WeightsError` for a file that is damaged, or that refers to what no state dict has."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        refused = [name.decode() for name in NOT_IN_STATE_DICTS if content.find(name) >= 0]
    if refused:
        raise WeightsError(
            f"{path} holds more than tensors: it refers to {refused[0]}. Save it with "
            "torch.save(network.state_dict(), path)."
        )
    if is_archive(path):  # else of torch before 1.6
        check_archive(path)


def _check_values(what: str, received: torch.Tensor, expected: torch.Tensor, finite: bool) -> None:
    """Raise `WeightsError` for a tensor whose values cannot become those of a network; a mask may hold −∞."""
    is_plain = type(received) in (torch.Tensor, torch.nn.Parameter) and received.layout == torch.strided
    has_values = is_plain and not received.is_quantized and not received.is_meta and not received.is_complex()
    if not has_values or received.is_floating_point() != expected.is_floating_point():
        raise WeightsError(
            f"{what} should be a dense tensor of {expected.dtype} or of another precision, received a "
            f"{type(received).__name__} of {received.dtype} in the layout {received.layout} on {received.device}. "
            f"Convert it before saving, for example with tensor.to_dense(), .dequantize() or .to({expected.dtype})."
        )
    converted = received.to(expected.dtype)
    if expected.is_floating_point() and not bool((converted.isfinite() if finite else ~converted.isnan()).all()):
        raise WeightsError(f"{what} has NaN or infinite values. Train again, or save an earlier state.")


def _shapes(tensors: dict[str, torch.Tensor]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _arrays(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return a state dict without the counters of batch norms and of averaged weights, which no answer depends on."""
    return {name: tensor for name, tensor in state.items() if name.rpartition(".")[2] not in COUNTERS}
