"""The catalogue of faults, by what they strike."""

from chaos.fault import Fault
from chaos.faults import process

CATALOGUE: tuple[Fault, ...] = (*process.FAULTS,)
