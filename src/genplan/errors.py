"""Errors that a user can fix. The command line prints them as one message, never as a traceback."""


class UserError(Exception):
    """Says what was found, what was expected, and what to do."""


class DataError(UserError):
    """A dataset that cannot be used."""


class LayoutError(UserError):
    """A map that cannot be built, or cannot be solved."""


class ExpertFailure(UserError):  # noqa: N818 (an outcome, not a defect)
    """An expert cannot continue; a demonstration that ends so is left out."""


class CheckpointError(UserError):
    """A run folder or a file in it that cannot be read, or does not belong to what it is loaded into."""


class ChangedFileWarning(UserWarning):
    """A file of one's own is not the one that a run was trained with."""
