"""Running: the attacks, one a file, and suites. Imports models, frameworks, records and the ground."""

from ..records.cell import AttackResult as AttackResult
from .base import Attack as Attack
from .boundary import Boundary as Boundary
from .fgsm import FGSM as FGSM
from .single_pixel import SinglePixel as SinglePixel
