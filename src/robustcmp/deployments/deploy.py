"""Trained models converted for a runtime, and files of runtimes, as models."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.arrays import UNIT_BOUNDS, Images, check_unit_images
from ..errors import LOG, DeploymentError, UsageError, enough_memory
from ..files import as_path, digest, json_digest, make_directory, user_cache
from ..models.classifier import Classifier
from ..models.model import Model, check_preprocessing, check_wrapping, shift_and_divide
from ..untrusted import check_answers, check_file
from . import check_runtime, conversion, split
from .base import WRITTEN, Runtime, try_file
from .model import DeployedModel, DeployedNetwork, Files, RuntimeAdapter, channels_last
from .sessions import BYTES, Session
from .silence import silence

SEMANTICS = 1  # of how networks are converted here
DIGEST = "sha256"  # of a converted file, beside it in the user cache
ALIKE = 0.8  # how much two ranges share of what they cover together; calibration images rarely reach both ends


@enough_memory("this conversion", "the size of the network, or the number of calibration images")
def deploy(
    model: Model,
    name: str,
    *,
    calibration: Images | None = None,
    path: str | os.PathLike[str] | None = None,
) -> DeployedModel:
    """Convert a trained model for a runtime, and return the deployed network as a model.

    Parameters
    ----------
    model : Model
        From `wrap`, `load_model` or `fit`.
    name : str
        A runtime and what is done to the network, such as ``"onnxruntime"``, ``"onnxruntime-int8"`` or
        ``"litert-float16"``; ``robustcmp list deployments`` shows all.
    calibration : ndarray of float32, shape (N, H, W, C), optional
        Images in [0, 1], whatever the model's bounds, of the training set and not those that are attacked: a
        conversion to int8 chooses the ranges of activations by them.
    path : path, optional
        Where to write the file (default: the user cache, where the same conversion is found again).

    Returns
    -------
    Model
        A `foolbox.models.base.Model` of NumPy arrays with the bounds and the preprocessing of `model`.
        ``info["deployment"]`` says what it is: size, digest, notes. FGSM and APGD take the gradient of `model`, and ask
        the deployed network; other gradient attacks do not run. For the deployed network's own, pass what it answers
        to `wrap_functions` with ``vjp="finite-differences"``.

    Raises
    ------
    UsageError
        The name is unknown, its package is not installed, or calibration images are missing or unusable.
    DeploymentError
        The network has something that cannot be converted.

    Examples
    --------
    >>> import robustcmp as rc
    >>> model = rc.load_model("lenet1", framework="torch", dataset="digits")
    >>> deployed = deploy(model, "onnxruntime")
    >>> deployed
    <robustcmp.Model lenet1 digits 0 onnxruntime, bounds (0, 1)>
    >>> data = rc.load_dataset("digits")
    >>> bool((rc.predict(deployed, data.images) == rc.predict(model, data.images)).all())
    True
    """
    check_runtime(name)
    if not isinstance(model, Model) or isinstance(model, DeployedModel):
        raise UsageError(
            f"expected a trained model from robustcmp.wrap, load_model or fit, received {type(model).__name__}"
        )
    if "averaged" in model.info:
        raise UsageError("robustcmp.averaged cannot be converted: deploy a network that draws nothing at random")
    runtime, kind = split(name)
    images = _prepare_images(name, model, calibration)
    write = partial(runtime.convert, model, kind, images)
    key = _key(model, name, runtime, images if conversion(name).calibrated else None)
    with silence():
        if path is not None:
            main = _check_path(runtime, path)
            write(main)
        elif key is not None:
            main = _find_or_write(user_cache() / "deployments" / key, runtime, write)
        else:
            main = Path(tempfile.mkdtemp(dir=_own_folder().name), f"{WRITTEN}{runtime.suffix}")
            write(main)
        session = runtime.load(main)
    network = DeployedNetwork(RuntimeAdapter(name, runtime), Files.of(main, runtime.beside(main)), session)
    described = {
        "source": _describe_source(model),
        "calibration": None if images is None else {"images": len(images), "digest": digest({"images": images})},
    }
    info = {name: value for name, value in model.info.items() if name not in ("differences", "source", "sha256")}
    info["deployment"] = _describe(network) | described
    return DeployedModel(network, **channels_last(model), source=model, info=info)


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of networks whose weights are not known, so that they are not found again; it ends with us."""
    return tempfile.TemporaryDirectory(prefix="robustcmp-")


def _check_path(runtime: Runtime, path: str | os.PathLike[str]) -> Path:
    """Return the path of a new file, or raise `UsageError` for one that a runtime's file cannot have."""
    file = as_path(path, "path")
    if file.suffix != runtime.suffix:
        raise UsageError(f"files of {runtime.name} end in {runtime.suffix}, received {path}", parameters=["path"])
    if not file.parent.is_dir() or file.is_dir():
        raise UsageError(f"expected a file in a folder that exists, received {path}", parameters=["path"])
    return file


@enough_memory("this network", "the size of the network")
def open_deployed(
    path: str | os.PathLike[str],
    name: str,
    *,
    source: Model | None = None,
    bounds: tuple[float, float] | None = None,
    preprocessing: dict[str, Any] | None = None,
) -> DeployedModel:
    """Open a deployed classifier from a file of its runtime, whatever made it.

    The layout of images, a fixed batch, quantised input and output, and probabilities in the place of logits are
    recognised; ``info["deployment"]["notes"]`` and the logger ``robustcmp`` say so. Nothing of the file is run but the
    network, in a process of its own first.

    Parameters
    ----------
    path : path
        The file.
    name : str
        Its runtime, such as ``"onnxruntime"`` or ``"litert"``.
    source : Model, optional
        The trained model that it was converted from. In a comparison with it, the file is compared with this source, as
        what `deploy` returns is, and gradient attacks take its gradient; how alike both answer is measured and not
        required.
    bounds : tuple of float, optional
        The smallest and the largest value of a pixel (default: those of `source` if `preprocessing` is left out too,
        else 0 and 1, or 0 and 255 where the file's format of images says so).
    preprocessing : dict, optional
        What is done to images before the network gets them, as in `wrap`, with axes of images (N, H, W, C) (default:
        what `source` does if `bounds` are left out too, else nothing). A file that normalises its images itself, of a
        source that does not, takes ``bounds=(0, 1)``. For a file whose images are bytes, and without a preprocessing of
        its own, images are scaled from their bounds to 0 to 255, and nothing else is done.

    Returns
    -------
    Model
        A `foolbox.models.base.Model` of NumPy arrays, without a gradient of its own.

    Raises
    ------
    UsageError
        The runtime is unknown or not installed, its files have another suffix, or the bounds are none.
    WeightsError
        There is no such file, or it is empty.
    DeploymentError
        The file is broken, its network takes no batch of images, or the levels of its quantised input are those of
        other images than it would get, and neither `bounds` nor a mean or a standard deviation are stated.
    """
    check_runtime(name)
    runtime, _ = split(name)
    main = as_path(path, "path")
    if main.suffix not in runtime.suffixes:
        suffixes = ", ".join(runtime.suffixes) or "no files from elsewhere, which could run code: use torch-program"
        raise UsageError(f"{name} opens {suffixes}, received {path}")
    check_file(main)
    if not (source is None or isinstance(source, Model)):
        raise UsageError(f"expected source from robustcmp.wrap, load_model or fit, received {type(source).__name__}")
    if source is not None and bounds is None and preprocessing is None:
        wrapped = channels_last(source)
    else:
        checked = None if bounds is None else check_wrapping(bounds, "logits")
        wrapped = {"bounds": checked, "preprocessing": check_preprocessing(preprocessing)}
    files = Files.of(main, beside(runtime, main))
    if runtime.can_crash:
        check_answers(main, f"{runtime.name}\n{main}".encode(), try_file, runtime.name)
    with silence():
        session = runtime.load(main)
    is_normalised = not {"mean", "std"}.isdisjoint(wrapped["preprocessing"] or ())
    wrapped["bounds"] = wrapped["bounds"] or (UNIT_BOUNDS if is_normalised else session.bounds)
    scaled = session.holds_bytes and preprocessing is None
    if scaled:
        # What the source subtracts and divides by is of floats, so it is in the file or not at all. In which order
        # channels are stays the source's.
        flipped = [(key, axis) for key, axis in (wrapped["preprocessing"] or {}).items() if key == "flip_axis"]
        wrapped["preprocessing"] = dict(flipped) or None
        if bounds is None and session.bounds == (0, BYTES):
            session.notes.append(f"so images in [0, 1] are given as {BYTES:g} times their values")
    else:
        _check_levels(main, session, np.stack(_preprocess_bounds(**wrapped)), bounds is not None or is_normalised)
    network = DeployedNetwork(RuntimeAdapter(name, runtime), files, session, wrapped["bounds"] if scaled else None)
    for note in network.notes:
        LOG.info("%s: %s", main, note)
    description = _describe(network) | {
        "own_file": True,
        "precision": "as in the file",
        "conversion": "a file from elsewhere",
    }
    if source is not None:
        description["source"] = _describe_source(source)
    info = {"source": main.name, "sha256": files.sha256, "deployment": description}
    return DeployedModel(network, **wrapped, source=source, info=info)


def beside(runtime: Runtime, main: Path) -> list[Path]:
    """Return the files that hold a part of a network of a user's own, or raise `DeploymentError` if one is missing."""
    files = runtime.beside(main)
    for file in files:
        if not file.is_file():
            raise DeploymentError(f"{main} needs {file}, which does not exist: copy it, too")
    return files


def _overlap(first: tuple[float, float], other: tuple[float, float]) -> float:
    """Return how much two ranges share of what they cover together.

    Examples
    --------
    >>> _overlap((0, 1), (-1, 1))
    0.5
    """
    common = min(first[1], other[1]) - max(first[0], other[0])
    return max(0, common) / (max(first[1], other[1]) - min(first[0], other[0]))


def _check_levels(main: Path, session: Session, received: NDArray[np.float32], is_stated: bool) -> None:
    """Raise `DeploymentError` if a quantised input was made for other images than it gets, unless this is stated."""
    lower = float(received.min())
    upper = float(received.max())
    if session.levels is None or _overlap((lower, upper), session.levels) >= ALIKE:
        return
    if is_stated:
        session.notes.append(f"images are given from {lower:.4g} to {upper:.4g}, as stated")
        return
    raise DeploymentError(
        f"{main} is quantised for images from {session.levels[0]:.4g} to {session.levels[1]:.4g}, and would get "
        f"images from {lower:.4g} to {upper:.4g}. State how it normalises images in [0, 1], (images - mean) / std: "
        "FILE,mean=MEAN,std=STD, or in Python preprocessing={'mean': MEAN, 'std': STD}. Mean 0 and std 1 leave them "
        "as they are"
    )


def _describe_source(model: Model) -> dict[str, Any]:
    """Return what tells the trained model from others that a deployed network was converted from."""
    return {"framework": model.framework, "weights": Classifier(model).weights_digest}


def _describe(network: DeployedNetwork) -> dict[str, Any]:
    """Return what is known of a deployed network, as JSON types."""
    how = conversion(network.adapter.name)
    return {
        "runtime": network.adapter.runtime.name,
        "precision": how.precision,
        "conversion": how.description,
        "bytes": network.files.bytes,
        "sha256": network.files.sha256,
        "alone": network.alone,
        "notes": network.notes,
    }


def _prepare_images(name: str, model: Model, calibration: Images | None) -> NDArray[np.float32] | None:
    """Return calibration images as the network itself gets them; None if there are none, and none are needed."""
    if calibration is None and not conversion(name).calibrated:
        return None
    if calibration is None:
        raise UsageError(
            f"{name} chooses the ranges of activations by images: pass some hundred of the training set",
            parameters=["calibration"],
        )
    images = check_unit_images(calibration, "channels_last")
    if not len(images):
        raise UsageError(f"{name} needs at least one calibration image, received none", parameters=["calibration"])
    lower, upper = (np.float32(bound) for bound in model.bounds)
    return shift_and_divide(channels_last(model)["preprocessing"] or {}, lower + (upper - lower) * images)


def _preprocess_bounds(bounds: tuple[float, float], preprocessing: dict[str, Any] | None) -> list[NDArray[np.float32]]:
    """Return what a preprocessing makes of the smallest and the largest pixel, each of shape (1, 1, C)."""
    return [shift_and_divide(preprocessing or {}, np.full((1, 1, 1, 1), bound, np.float32))[0] for bound in bounds]


def _key(model: Model, name: str, runtime: Runtime, images: Images | None) -> str | None:
    """Return what tells a conversion from others; None where the model's weights are not known."""
    weights = Classifier(model).weights_digest
    if weights is None or model.architecture is None:
        return None
    return json_digest(
        {
            "weights": weights,
            "architecture": model.architecture.description,
            "framework": model.framework,
            "name": name,
            "conversion": conversion(name)._asdict(),
            "semantics": SEMANTICS,
            "versions": runtime.versions,
            "calibration": None if images is None else digest({"images": images}),
        }
    )[:32]


def _find_or_write(folder: Path, runtime: Runtime, write: Callable[[Path], None]) -> Path:
    """Return a converted network's main file in a folder of the user cache, written now if need be."""
    name = f"{WRITTEN}{runtime.suffix}"
    if not _is_whole(folder, runtime):
        make_directory(folder.parent)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as temporary:
            made = Path(temporary, "made")
            made.mkdir()
            write(made / name)
            (made / DIGEST).write_text(Files.of(made / name, runtime.beside(made / name)).sha256, encoding="ascii")
            if not _is_whole(folder, runtime):  # else another process was first
                with suppress(FileNotFoundError):
                    folder.rename(Path(temporary, "broken"))
                with suppress(OSError):  # nor now
                    made.rename(folder)
    return folder / name


def _is_whole(folder: Path, runtime: Runtime) -> bool:
    """Say whether a folder has a converted network, just as it was written."""
    main = folder / f"{WRITTEN}{runtime.suffix}"
    try:
        return (folder / DIGEST).read_text(encoding="ascii") == Files.of(main, runtime.beside(main)).sha256
    except (OSError, ValueError, DeploymentError):
        return False
