"""Python imports this before the program, in a process whose PYTHONPATH contains this folder."""

import os

from tests.faults.sabotage import install

install(os.environ)
