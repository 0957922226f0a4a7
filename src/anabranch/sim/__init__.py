"""The product in virtual time."""
