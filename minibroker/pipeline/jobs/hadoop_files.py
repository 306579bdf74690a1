"""The few operations on files that jobs need, on whatever file system Spark can write to (local, HDFS, object stores).

They run in the driver, through Hadoop's own classes; what the files mean is the jobs' business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StoredFile(NamedTuple):
    """A file below a directory: its path relative to that, with `/`, and its size."""

    path: str
    size_bytes: int


class HadoopFiles:
    """The files below one directory. All paths are relative to it; errors are py4j's, with Hadoop's message."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        path = jvm.org.apache.hadoop.fs.Path(root)
        self._system: Any = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self._root = self._system.makeQualified(path)
        self.root: str = self._root.toString().removeprefix("file:")

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root

    def url(self, path: str) -> str:
        """The path as Spark's readers and writers take it."""
        text: str = self._path(path).toString()
        return text.removeprefix("file:")

    def exists(self, path: str = "") -> bool:
        """Whether there is a file or directory."""
        return bool(self._system.exists(self._path(path)))

    def is_file(self, path: str = "") -> bool:
        """Whether there is something, and it is no directory."""
        return self.exists(path) and not self._system.getFileStatus(self._path(path)).isDirectory()

    def names(self, path: str = "") -> list[str]:
        """Return the names in a directory, sorted; none where there is no directory."""
        if not self.exists(path):
            return []
        return sorted(each.getPath().getName() for each in self._system.listStatus(self._path(path)))

    def files(self, path: str) -> list[StoredFile]:
        """All files below a directory of ours, relative to it, sorted."""
        top = self._path(path).toUri().getPath().rstrip("/") + "/"
        found, listing = [], self._system.listFiles(self._path(path), True)
        while listing.hasNext():
            status = listing.next()
            found.append(StoredFile(status.getPath().toUri().getPath().removeprefix(top), status.getLen()))
        return sorted(found)

    def read(self, path: str) -> str:
        """A small file of UTF-8 text."""
        stream = self._system.open(self._path(path))
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            return text
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a small new file so that it is either there whole or not: under another name first."""
        name = path.rpartition("/")[2]
        unfinished = path.removesuffix(name) + f".{name}.unfinished"
        stream = self._system.create(self._path(unfinished), True)
        stream.write(bytearray(text, "utf-8"))
        stream.close()
        self.move(unfinished, path)

    def move(self, path: str, to: str) -> None:
        """Rename a file, into a directory that is made for it. Raises `OSError` where the file system will not."""
        target = self._path(to)
        self._system.mkdirs(target.getParent())
        if not self._system.rename(self._path(path), target):
            raise OSError(f"{self.url(path)} cannot be renamed to {target.toString()}")

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it; nothing happens where there is none."""
        self._system.delete(self._path(path), True)


class Journal:
    """Numbered small files in a directory, of which the newest counts: a text that is replaced as a whole or not."""

    KEPT: Final = 2
    DIGITS: Final = 12  # so that names sort as numbers do

    def __init__(self, files: HadoopFiles, directory: str) -> None:
        self._files = files
        self._directory = directory

    def newest(self) -> tuple[int, str] | None:
        """Number and text, None if nothing was ever written."""
        names = self._names()
        return (int(names[-1]), self._files.read(f"{self._directory}/{names[-1]}")) if names else None

    def append(self, number: int, text: str) -> None:
        """Write a text with a number above all before it; older ones go."""
        self._files.write(f"{self._directory}/{number:0{self.DIGITS}}", text)
        for name in self._names()[: -self.KEPT]:
            self._files.delete(f"{self._directory}/{name}")

    def _names(self) -> list[str]:
        return [name for name in self._files.names(self._directory) if name.isdecimal()]
