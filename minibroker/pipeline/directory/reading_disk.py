"""The disk of readers: local files, and those of any file system of pyarrow's (S3, GCS, HDFS), by their URLs.

`s3://bucket/logs?region=eu-central-1`, `s3a://bucket/logs`, `gs://bucket/logs`, `hdfs://namenode:8020/logs`. A query
has pyarrow's options for the file system, such as `endpoint_override` and `scheme`. Credentials are those that
pyarrow's file systems find by themselves: in the environment, in AWS's files, from the machine's role.
"""

from __future__ import annotations

import errno
import os
import socket
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from minibroker.storage.files import Disk, File

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

MARK: Final = "://"
SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}  # Hadoop's names, and pyarrow's
LOCAL: Final = "file:"
HDFS: Final = "hdfs"
CONNECT_TIMEOUT_S: Final = 10


def normalize_path(text: str) -> str:
    """Return a path, `file:` URI or URL as a path to which names of files can be appended.

    A local one has no scheme. A remote one has the query of the URL in its scheme, and no slash at its end, as in
    `s3+region=eu-central-1://bucket/logs`.
    """
    if text.startswith(LOCAL):
        return unquote(urlsplit(text).path)
    if MARK not in text:
        return text
    scheme, _, rest = text.partition(MARK)
    place, _, query = rest.partition("?")
    return f"{SCHEMES.get(scheme, scheme)}{'+' if query else ''}{query}{MARK}{place.rstrip('/')}"


def make_url(path: str) -> str:
    """Return the URL of which `normalize_path` made a remote path; a local path stays."""
    scheme, _, place = path.partition(MARK)
    kind, _, query = scheme.partition("+")
    return f"{kind}{MARK}{place}?{query}" if is_remote(path) and query else path


def is_remote(path: str) -> bool:
    """Return whether a path of `normalize_path` is in another file system."""
    return MARK in path


class RemoteFile(File):
    """A file of another file system, open for reading."""

    __slots__ = ("_remote",)

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        system, name = locate_path(path)
        self._remote = system.open_input_file(name)

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes from `position` on, fewer only if the file ends before."""
        length = max(0, min(size, self._remote.size() - position))
        data: bytes = self._remote.read_at(length, position) if length else b""
        return data

    def size_bytes(self) -> int:
        """Return the size of the file."""
        size: int = self._remote.size()
        return size

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        remote = getattr(self, "_remote", None)
        if remote is not None:
            remote.close()


class ReadingDisk(Disk):
    """A disk for readers, which must not and perhaps may not change anything. Raises `OSError`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading. Never create one."""
        return self.open_to_read(path)

    def open_to_read(self, path: str) -> File:
        """Open a file for reading."""
        return RemoteFile(path) if is_remote(path) else super().open_to_read(path)

    def exists(self, path: str) -> bool:
        """Return whether the path exists."""
        return _get_info(path).type.value > 0 if is_remote(path) else super().exists(path)

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        return _is_directory(_get_info(path)) if is_remote(path) else super().is_directory(path)

    def list_names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return list(self.list_names_and_kinds(directory)) if is_remote(directory) else super().list_names(directory)

    def list_names_and_kinds(self, directory: str) -> dict[str, bool]:
        """Return the names in a directory, sorted, each with whether it is a directory.

        An object store answers that in one request.
        """
        if not is_remote(directory):
            return {
                name: super(ReadingDisk, self).is_directory(f"{directory}/{name}")
                for name in self.list_names(directory)
            }
        from pyarrow.fs import FileSelector

        system, name = locate_path(directory)
        found = {info.base_name: _is_directory(info) for info in system.get_file_info(FileSelector(name))}
        return dict(sorted(found.items()))

    def size_bytes(self, path: str) -> int:
        """Return the size of a file."""
        return self.get_size_and_modified_ns(path)[0] if is_remote(path) else super().size_bytes(path)

    def read_whole(self, path: str) -> bytes:
        """Return the content of a file."""
        if not is_remote(path):
            return super().read_whole(path)
        file = RemoteFile(path)
        try:
            return file.read(0, file.size_bytes())
        finally:
            file.close()

    def get_size_and_modified_ns(self, path: str) -> tuple[int, int]:
        """Return the size of a file in bytes, and when it was modified, in ns. They tell whether it has changed."""
        if not is_remote(path):
            status = os.stat(path)
            return status.st_size, status.st_mtime_ns
        info = _get_info(path)
        if info.size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return info.size, info.mtime_ns or 0


DISK: Final = ReadingDisk()


def _is_directory(info: FileInfo) -> bool:
    from pyarrow.fs import FileType

    return bool(info.type == FileType.Directory)


def _get_info(path: str) -> FileInfo:
    system, name = locate_path(path)
    return system.get_file_info(name)


def locate_path(path: str) -> tuple[FileSystem, str]:
    """Return the file system of a remote path, and the path within it."""
    scheme, _, place = path.partition(MARK)
    root = place.partition("/")[0]
    system, base = make_file_system(scheme, root)
    return system, f"{base}{place.removeprefix(root)}"


@lru_cache(maxsize=16)
def make_file_system(scheme: str, root: str) -> tuple[FileSystem, str]:
    """Return pyarrow's file system for a scheme with its query, and the path of `root`, a bucket or host, within it."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    kind, _, query = scheme.partition("+")
    try:
        if kind == HDFS and find_spec("hdfs_native") is not None:
            return _connect_hdfs_natively(root), ""
        system, base = FileSystem.from_uri(f"{kind}{MARK}{root}{'?' if query else ''}{query}")
    except (ValueError, RuntimeError, pa.ArrowException) as error:
        raise OSError(f"{kind}{MARK}{root}: {error}") from None
    return system, base.rstrip("/")


def _connect_hdfs_natively(root: str) -> FileSystem:
    """Return HDFS by a client that needs no Java. Pyarrow's own needs Hadoop's `libhdfs`."""
    host, _, port = root.partition(":")
    if port:  # not of several name nodes with one name; the client would try for minutes
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
    from hdfs_native.fsspec import HdfsFileSystem
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    return PyFileSystem(FSSpecHandler(HdfsFileSystem(host=host, port=int(port) if port else None)))
