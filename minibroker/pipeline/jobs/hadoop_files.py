"""File operations for jobs, on all file systems that Spark can write to (local, HDFS, object stores).

They run in the driver, by Hadoop's own classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minibroker.pipeline.log_source import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StoredFile(NamedTuple):
    """A file below a directory: its path relative to that, with `/`, and its size."""

    path: str
    size_bytes: int


class HadoopFiles:
    """The files below one directory. Paths are relative to it. Errors are py4j's, with Hadoop's message."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Find the file system. Raises `PipelineError` over Spark Connect."""
        if not hasattr(spark, "_jvm"):
            raise PipelineError(
                f"{root}: files are moved by the JVM of Spark's driver, and over Spark Connect none is here: "
                "give the cluster's own master, such as spark://HOST:PORT"
            )
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        path = jvm.org.apache.hadoop.fs.Path(root)
        self._system: Any = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self._root = self._system.makeQualified(path)
        self.root: str = self._root.toString().removeprefix("file:")

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root

    def url(self, path: str) -> str:
        """Return the path in the form for Spark's readers and writers."""
        text: str = self._path(path).toString()
        return text.removeprefix("file:")

    def exists(self, path: str = "") -> bool:
        """Return whether there is a file or directory."""
        return bool(self._system.exists(self._path(path)))

    def is_file(self, path: str = "") -> bool:
        """Return whether there is a file."""
        return self.exists(path) and not self._system.getFileStatus(self._path(path)).isDirectory()

    def names(self, path: str = "") -> list[str]:
        """Return the names in a directory, sorted; none if it does not exist."""
        if not self.exists(path):
            return []
        return sorted(each.getPath().getName() for each in self._system.listStatus(self._path(path)))

    def files(self, path: str) -> list[StoredFile]:
        """Return all files below a directory, with paths relative to it, sorted."""
        top = self._path(path).toUri().getPath().rstrip("/") + "/"
        found, listing = [], self._system.listFiles(self._path(path), True)
        while listing.hasNext():
            status = listing.next()
            found.append(StoredFile(status.getPath().toUri().getPath().removeprefix(top), status.getLen()))
        return sorted(found)

    def read(self, path: str) -> str:
        """Return the text of a small UTF-8 file."""
        stream = self._system.open(self._path(path))
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            return text
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a small new file so that it exists as a whole or not at all, under another name first."""
        name = path.rpartition("/")[2]
        unfinished = path.removesuffix(name) + f".{name}.unfinished"
        stream = self._system.create(self._path(unfinished), True)
        stream.write(bytearray(text, "utf-8"))
        stream.close()
        self.move(unfinished, path)

    def move(self, path: str, to: str) -> None:
        """Rename a file, and create its new directory. Raises `OSError` if the file system refuses."""
        target = self._path(to)
        self._system.mkdirs(target.getParent())
        if not self._system.rename(self._path(path), target):
            raise OSError(f"{self.url(path)} cannot be renamed to {target.toString()}")

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with its content, if it exists."""
        self._system.delete(self._path(path), True)


class Journal:
    """Numbered small files in a directory. The newest one counts, so a text is replaced as a whole or not at all."""

    KEPT: Final = 2
    DIGITS: Final = 12  # so that names sort like numbers

    def __init__(self, files: HadoopFiles, directory: str) -> None:
        self._files = files
        self._directory = directory

    def newest(self) -> tuple[int, str] | None:
        """Return number and text, or None if nothing was ever written."""
        names = self._names()
        return (int(names[-1]), self._files.read(f"{self._directory}/{names[-1]}")) if names else None

    def append(self, number: int, text: str) -> None:
        """Write a text with a number above all earlier ones, and delete those."""
        self._files.write(f"{self._directory}/{number:0{self.DIGITS}}", text)
        for name in self._names()[: -self.KEPT]:
            self._files.delete(f"{self._directory}/{name}")

    def replace(self, text: str) -> None:
        """Write a text with the next number, unless it is the newest one."""
        number, known = self.newest() or (-1, None)
        if text != known:
            self.append(number + 1, text)

    def _names(self) -> list[str]:
        return [name for name in self._files.names(self._directory) if name.isdecimal()]
