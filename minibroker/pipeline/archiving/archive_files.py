"""The files of an archive in plain Parquet, on this machine or in any file system of pyarrow's."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, SubTreeFileSystem

from minibroker.pipeline.directory.reading_disk import is_remote, locate_path, normalize_path

UNFINISHED: Final = ".unfinished"


class StoredFile(NamedTuple):
    """A file below a directory: its path relative to the archive, with `/`, and its size."""

    path: str
    size_bytes: int


class ArchiveFiles:
    """The files below one directory or URL. Paths are relative to it. Raises `OSError`."""

    def __init__(self, root: str) -> None:
        path = normalize_path(root)
        system, base = locate_path(path) if is_remote(path) else (LocalFileSystem(), os.path.abspath(path))
        self.root = root
        self.is_local = not is_remote(path)
        self.is_file = system.get_file_info(base).type == FileType.File  # which no archive can be
        self.system: FileSystem = SubTreeFileSystem(base, system)

    def exists(self, path: str = "") -> bool:
        """Return whether there is a file or directory."""
        return bool(self.system.get_file_info(path).type != FileType.NotFound)

    def names(self, path: str = "") -> list[str]:
        """Return the names in a directory, sorted; none if it does not exist."""
        return sorted(each.base_name for each in self.system.get_file_info(FileSelector(path, allow_not_found=True)))

    def files(self, path: str) -> list[StoredFile]:
        """Return all files below a directory, sorted; none if it does not exist."""
        below = FileSelector(path, allow_not_found=True, recursive=True)
        found = [each for each in self.system.get_file_info(below) if each.type == FileType.File]
        return sorted(StoredFile(each.path, each.size) for each in found)

    def read(self, path: str) -> str:
        """Return the text of a small UTF-8 file."""
        with self.system.open_input_file(path) as file:
            text: bytes = file.readall()
        return text.decode()

    def write(self, path: str, text: str) -> None:
        """Write a small file so that it exists as a whole or not at all; an object store does so by itself."""
        directory, _, name = path.rpartition("/")
        self.system.create_dir(directory)
        new = f"{directory}/.{name}{UNFINISHED}" if self.is_local else path
        with self.system.open_output_stream(new) as file:
            file.write(text.encode())
        if self.is_local:
            self.system.move(new, path)

    def move(self, path: str, to: str) -> None:
        """Rename a file, and create its new directory."""
        self.system.create_dir(to.rpartition("/")[0])
        self.system.move(path, to)

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with its content, if it exists."""
        kind = self.system.get_file_info(path).type
        if kind == FileType.Directory:
            self.system.delete_dir(path)
        elif kind == FileType.File:
            self.system.delete_file(path)
