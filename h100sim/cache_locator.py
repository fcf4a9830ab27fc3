"""Where Numba keeps what it compiles: imported by Numba, by name."""

from __future__ import annotations

from pathlib import Path

from numba.core import caching


class ContentLocator(caching.UserProvidedCacheLocator):
    """Leaves out where a source file lies: checkouts and environments with the same sources share what is compiled."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        return Path(py_file).parent.name
