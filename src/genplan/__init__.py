"""Plan from demonstrations with discrete flow models."""

from typing import Any

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name == "load":  # it needs torch and more; importing genplan does not
        from genplan.policy import load

        return load
    raise AttributeError(f"module 'genplan' has no attribute '{name}'")
