"""The rules, by what they guard."""
