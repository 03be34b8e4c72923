"""Mistakes that a user can mend. The command line prints them as one message, never as a traceback."""


class UserError(Exception):
    """Says what was found, what was expected, and what to do."""


class DataError(UserError):
    """A dataset that cannot be used."""


class LayoutError(UserError):
    """A map that cannot be built, or cannot be solved."""


class LostError(UserError):
    """An expert does not know how to go on; a demonstration that ends so is left out."""
