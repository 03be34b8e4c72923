"""Plan from demonstrations with discrete flow models."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "load":  # it needs torch and more; importing genplan does not
        from genplan.pilot import load

        return load
    raise AttributeError(f"module 'genplan' has no attribute '{name}'")


class _RegisterWithGymnasium(importlib.abc.MetaPathFinder):
    """Registers our environments the moment gymnasium is imported, and not before.

    Gymnasium has no plugins since 1.0: without this, `import genplan` would either have to import gymnasium, or
    `gymnasium.make("genplan/MazeS4G1-v0")` would work or not by the order of the imports.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                import genplan.tasks  # noqa: F401

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    import genplan.tasks  # noqa: F401
else:
    sys.meta_path.insert(0, _RegisterWithGymnasium())
