"""Paths as `pathlib` has them, on this machine and in the other file systems of `reading_disk`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from minibroker.pipeline.directory.reading_disk import DISK, is_remote, normalize_path


@dataclass(frozen=True, slots=True, order=True)
class DiskPath:
    """A file or directory. `text` is a local path, or the form that `normalize_path` gives to a URL."""

    text: str

    @classmethod
    def at(cls, text: str) -> DiskPath:
        """Return the whole path of what a user has named: a path or a URL."""
        path = normalize_path(text)
        return cls(path if is_remote(path) else os.path.abspath(path))

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> DiskPath:
        return DiskPath(f"{self.text}/{name}") if name else self

    @property
    def name(self) -> str:
        """The last part."""
        return self.text.rpartition("/")[2]

    @property
    def parent(self) -> DiskPath:
        """The directory in which it is."""
        return DiskPath(self.text.rpartition("/")[0] or "/")

    def exists(self) -> bool:
        """Return whether there is something."""
        return DISK.exists(self.text)

    def is_dir(self) -> bool:
        """Return whether it is a directory."""
        return DISK.is_directory(self.text)

    def files(self) -> Iterator[DiskPath]:
        """Yield the files in a directory. Raises `OSError`."""
        return (self / name for name, is_directory in DISK.entries(self.text).items() if not is_directory)

    def directories(self) -> Iterator[DiskPath]:
        """Yield the directories in a directory. Raises `OSError`."""
        return (self / name for name, is_directory in DISK.entries(self.text).items() if is_directory)

    def size_bytes(self) -> int:
        """Return the size of a file. Raises `OSError`."""
        return DISK.size_bytes(self.text)

    def read_bytes(self) -> bytes:
        """Return the content of a file. Raises `OSError`."""
        return DISK.read_whole(self.text)
