"""Review of a plan before money is spent: its price, whether its jobs are admitted and fit, and their speed."""
