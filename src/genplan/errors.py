"""Errors that a user can fix. The command line prints them as one message, never as a traceback."""

import sys
import traceback

USER_MODULE = "genplan_user_"  # how modules are called that are run because the user named their file


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


def error_location(error: Exception) -> str:
    """An error and where it happened: the last line in a file that the user named, if it was there at all."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    own = {module.__file__ for name, module in sys.modules.items() if name.startswith(USER_MODULE)}
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((one for one in reversed(frames) if one.filename in own), frames[-1])
    return f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno}, in {frame.name})"
