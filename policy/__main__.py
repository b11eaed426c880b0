"""The policy pack, as Pulumi starts it.

Pulumi runs this folder as a separate program, so the modules that rules and program share are one folder up.
"""

import sys
from datetime import date
from pathlib import Path

from pulumi_policy import EnforcementLevel, PolicyPack

sys.path.insert(0, str(Path(__file__).parent.parent))

from policy.pack import policies  # noqa: E402
from policy.rules import ALL_RULES  # noqa: E402

PolicyPack("tpu-multislice", policies(ALL_RULES, date.today), EnforcementLevel.MANDATORY)
