"""The largest numbers that robustcmp takes, from a file or from a call: a typing error should not cost a night.

Each is far above what an evaluation needs and far below what a machine cannot hold, and each is checked before any work
starts. docs/reliability.md explains them.
"""

from __future__ import annotations

import os

# The bytes of a suite or a recipe.
FILE_BYTES = 2**18
# How deeply the tables and lists of a file may be nested, and the parts of a dotted key.
FILE_LEVELS = 64
# The characters of an attack's name.
NAME_LENGTH = 64

# The images that are attacked.
IMAGES = 10**7
# The repeats of an attack on each training.
REPEATS = 10**4
# The steps of a grid of epsilons, or the values of a list.
EPSILONS = 10**4
# An epsilon or a step size: images are in [0, 1], so only the L0 and L1 distances of a whole image are above 100.
EPSILON = 1e6
# The iterations or steps of an attack.
ITERATIONS = 10**7
# The directions, restarts and other whole numbers of an attack that multiply its iterations or its memory.
DIRECTIONS = 10**4
# The pixels that an attack tries in one image.
PIXELS = 10**7

# The epochs of a training.
EPOCHS = 10**5
# The images of a training step or of a forward pass.
BATCH_SIZE = 10**6
# The weights of a network: 4 GB in float32, and as much again for each of gradient and velocity.
PARAMETERS = 10**9
# The values that a layer returns for one image, and those of the image: 400 MB in float32.
LAYER_VALUES = 10**8
# The bytes of a runtime's file: a protocol buffer has no more, and offsets within a file have 32 bits and a sign.
NETWORK_BYTES = 2**31 - 1
# The bytes that a file of weights may hold, however small it is.
UNPACKED_BYTES = 2**28
# How many times its own size a larger one may hold.
UNPACKED_RATIO = 20


def memory() -> int | None:
    """Return the bytes of this machine's memory, None where the system does not say."""
    if not hasattr(os, "sysconf"):  # Windows
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
