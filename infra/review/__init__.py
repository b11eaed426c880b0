"""What a preview answers before money is spent: how much, admitted, does it fit, how fast."""
