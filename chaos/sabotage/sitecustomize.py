"""Python imports this before the program, in a process whose PYTHONPATH contains this folder."""

import os

from chaos.sabotage import install

install(os.environ)
