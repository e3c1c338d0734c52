"""What is loaded on first use: names that a package offers, and libraries that others ask for.

So importing a package is light, and a command starts early.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any

KEY = "_fewview_postponing"
# What scikit-learn and scipy import for a few of their functions: a quarter of the start of a
# command.
HARDLY_USED = (
    "scipy.stats", "pandas", "numpy.f2py", "numpy.testing", "numpy.ma", "numpy.polynomial",
)  # fmt: skip


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a package; `homes` is name that it offers -> module that has it."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return load


def postpone(*names: str) -> None:
    """Load modules that libraries import, and hardly ever use, when they are first used.

    For programs alone: in a library it would change what other code in the process gets.
    """
    sys.meta_path.insert(0, _Later({name for name in names if name not in sys.modules}))


class _Later(MetaPathFinder):
    """Finds some modules, each once, and lets them be loaded later."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Where a postponed module is; nothing of all others."""
        if fullname not in self.names:
            return None
        self.names.discard(fullname)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Postponing(spec.loader)
        return spec


class _Postponing(Loader):
    """Stands in for a loader until something of the module is wanted.

    Unlike `importlib.util.LazyLoader`, names that every module has do not count: torch looks at
    the files of all modules that are there.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader, self.lock, self.begun = loader, RLock(), False

    def exec_module(self, module: ModuleType) -> None:
        """Load nothing yet; a part of the module is something of it too, hence no path."""
        module.__class__ = _Postponed
        module.__dict__[KEY] = self
        self.path = module.__dict__.pop("__path__", None)

    def load(self, module: ModuleType) -> None:
        """Load it now, once; who comes meanwhile waits."""
        with self.lock:
            if not self.begun:
                self.begun = True
                if self.path is not None:
                    module.__path__ = self.path
                assert module.__spec__ is not None
                module.__loader__ = module.__spec__.loader = self.loader
                self.loader.exec_module(module)
                module.__class__ = ModuleType
                del module.__dict__[KEY]


class _Postponed(ModuleType):
    """A module whose names are not there yet."""

    def __getattr__(self, name: str) -> Any:
        postponing = self.__dict__.get(KEY)
        if postponing is not None:
            postponing.load(self)
        if name not in self.__dict__ and "__getattr__" in self.__dict__:
            return self.__dict__["__getattr__"](name)
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None
