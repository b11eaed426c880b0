"""Read by Python before the program, in a process whose PYTHONPATH names this folder."""

import os

from chaos.sabotage import install

install(os.environ)
