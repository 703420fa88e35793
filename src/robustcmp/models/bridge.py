"""A model of any framework as a `torch.nn.Module`, for attacks that are written for PyTorch."""

from __future__ import annotations

from typing import Any

from .. import frameworks
from .classifier import Classifier


def as_torch_module(classifier: Classifier) -> Any:
    """Return a module of torch tensors that asks a classifier, whatever framework its model is of.

    Parameters
    ----------
    classifier : Classifier
        Of any model.

    Returns
    -------
    torch.nn.Module
        From images (N, C, H, W) within the model's bounds to logits (N, K), float32; the gradient with respect to the
        images is the model's own. It can be differentiated once; a second derivative is an error. It has no weights.

    Raises
    ------
    UsageError
        torch is not installed.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from robustcmp.models.functions import wrap_functions
    >>> weights = np.ones((4, 3), np.float32)
    >>> model = wrap_functions(
    ...     logits=lambda x: x.reshape(len(x), 4) @ weights, vjp=lambda x, v: (v @ weights.T).reshape(x.shape)
    ... )
    >>> as_torch_module(Classifier(model))(torch.ones(2, 1, 2, 2)).shape
    torch.Size([2, 3])
    """
    return frameworks.get_framework("torch").module_through(classifier.logits, classifier.vjp)
