"""The attacks, one a file, and suites of them. Imports models, frameworks, records, data and the ground."""

from ..records.attack import AttackResult as AttackResult
from .apgd import APGD as APGD
from .autoattack import AutoAttack as AutoAttack
from .base import Attack as Attack
from .boundary import Boundary as Boundary
from .boundary_within import BoundaryWithin as BoundaryWithin
from .fgsm import FGSM as FGSM
from .function import FunctionAttack as FunctionAttack
from .minimum_norm import MinimumL2 as MinimumL2
from .minimum_norm import MinimumLinf as MinimumLinf
from .single_pixel import SinglePixel as SinglePixel
from .square import Square as Square
from .targeted import APGDTargeted as APGDTargeted
from .targeted import FABTargeted as FABTargeted
