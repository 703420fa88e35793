"""The attacks, as Foolbox attack classes, and the suites that name them."""

from .base import Attack, AttackResult
from .boundary import Boundary
from .fgsm import FGSM
from .single_pixel import SinglePixel

__all__ = ["FGSM", "Attack", "AttackResult", "Boundary", "SinglePixel"]
