"""Commands for users."""
