"""Plan from demonstrations with discrete flow models."""

__version__ = "0.1.0"
