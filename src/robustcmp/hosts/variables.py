"""Which of this process's environment variables a host sees: those that a framework needs, and nothing that is secret.

A host runs packages of another age, and often somebody else's code. Tokens, keys and agents of the caller stay out:
what is not listed here is not passed on. A host of your own that needs a variable reads one that begins with
``ROBUSTCMP_``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NAMES = (
    # Where programs, libraries, headers and files are: Theano compiles its functions.
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TZ",
    "TMPDIR",
    "TEMP",
    "TMP",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "CC",
    "CXX",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    # Frameworks.
    "THEANORC",
    "THEANO_FLAGS",
    "KERAS_BACKEND",
    "KERAS_HOME",
    "DNNL_VERBOSE",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "LANG",
    "LANGUAGE",
)
PREFIXES = (
    "ROBUSTCMP_",
    "LC_",
    "CUDA_",
    "CUDNN_",
    "NVIDIA_",
    "NCCL_",
    "ROCM_",
    "HIP_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "BLIS_",
    "TF_",
    "XLA_",
    "JAX_",
    "TORCH_",
    "PYTORCH_",
    "MXNET_",
    "CHAINER_",
    "CUPY_",
)
_SECRET = re.compile("TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE", re.IGNORECASE)


def select_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a host sees.

    A listed name that says it is a secret is left out as well.

    Examples
    --------
    >>> select_variables({"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "x", "OMP_NUM_THREADS": "2", "TF_API_KEY": "x"})
    {'PATH': '/bin', 'OMP_NUM_THREADS': '2'}
    """
    return {
        name: value
        for name, value in environment.items()
        if (name.upper() in NAMES or name.upper().startswith(PREFIXES)) and not _SECRET.search(name)
    }
