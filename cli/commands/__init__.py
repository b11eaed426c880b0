"""Names, options and help texts of the commands, by what they are about."""
