"""The one command that stays: a local page until it is stopped."""
