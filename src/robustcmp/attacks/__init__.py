"""Running: the attacks, one a file, and the suites that name them. Imports models, records and the ground."""

from ..records.cell import AttackResult
from .base import Attack
from .boundary import Boundary
from .fgsm import FGSM
from .single_pixel import SinglePixel

__all__ = ["FGSM", "Attack", "AttackResult", "Boundary", "SinglePixel"]
