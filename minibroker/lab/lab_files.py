"""A file of the lab: a zip archive with the log directory and the frames of a broker, which another lab opens.

    lab.json        how many nodes there were
    frames.flows    requests and answers, as `minibroker proxy --save` writes them
    logs/...        the log directory

A zip archive of any Kafka's log directory is one without the first two. What others made is bounded, and only regular
files below the folder of logs are unpacked, under names that stay inside of it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from minibroker.explorer.saved_frames import MOST_FRAMES, SavedFrames
from minibroker.protocol.legible import make_legible
from minibroker.proxy.flows import FlowError, encode_exchange, encode_file_header, parse_exchanges
from minibroker.storage.inspection.inspected_files import identify_file
from minibroker.testing.seen.exchange import Exchange

ABOUT: Final = "lab.json"
FRAMES: Final = "frames.flows"
LOGS: Final = "logs"
ZIP: Final = b"PK\x03\x04"
MOST_FILES: Final = 5_000
MOST_BYTES: Final = 256 << 20  # unpacked
MOST_NODES: Final = 10
BOUNDED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what zipfile unpacks in pieces of the size that is asked
PIECE_BYTES: Final = 1 << 20
MOST_READ_BYTES: Final = 2 << 20  # at once: more than the names of so many files take
NOT_COPIED: Final = ".lock"


class LabFileError(ValueError):
    """A file that is no lab's, or is too large; the message is one line."""


class OpenedLabFile(NamedTuple):
    """What a file holds: frames, and whether there are logs, which were unpacked."""

    frames: list[Exchange]
    has_logs: bool
    nodes: int | None


def pack_lab_file(directory: Path, frames: Iterable[Exchange], nodes: int, servers: str) -> bytes:
    """Return a file with a log directory and frames. Raises LabFileError if it would be too large to be opened."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        _add_entry(archive, ABOUT, json.dumps({"nodes": nodes}).encode())
        _add_entry(
            archive,
            FRAMES,
            b"".join([encode_file_header(servers), *(encode_exchange(each, servers) for each in frames)]),
        )
        for path in sorted(directory.rglob("*")):
            if path.is_file() and path.name != NOT_COPIED:
                _add_entry(archive, f"{LOGS}/{path.relative_to(directory).as_posix()}", path.read_bytes())
        entries = archive.infolist()
    if len(entries) > MOST_FILES or sum(each.file_size for each in entries) > MOST_BYTES:
        raise LabFileError(f"a lab's file has {MOST_FILES:,} files and {MOST_BYTES >> 20} MiB at most")
    return made.getvalue()


def _add_entry(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    # An entry of this kind has no time of its own, so that the same state makes the same file.
    archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def is_archive(path: Path) -> bool:
    """Return whether a file begins as an archive does. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(len(ZIP)) == ZIP


def unpack_lab_file(path: Path, directory: Path) -> OpenedLabFile:
    """Unpack the logs of an archive into a directory; return its frames. Raises LabFileError, FlowError."""
    name = make_legible(path.name)
    try:
        with _BoundedFile(FileIO(path)) as file, zipfile.ZipFile(file) as archive:
            return _unpack_entries(_ArchiveReader(archive), name, directory)
    except FlowError:
        raise
    except LabFileError as error:
        raise LabFileError(f"{name}: {error}") from None
    except Exception as error:  # the library raises many kinds for bytes that are no archive
        raise LabFileError(f"{name} cannot be unpacked: {make_legible(str(error)) or type(error).__name__}") from None


class _BoundedFile(io.BufferedReader):
    """A file of which not much is read at once: zipfile reads all names in one piece, whatever their number claims."""

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes. Raises LabFileError for too many."""
        wanted = MOST_READ_BYTES if size is None or size < 0 else size
        if wanted > MOST_READ_BYTES:
            most = f"{MOST_READ_BYTES >> 20} are read at most"
            raise LabFileError(f"the names of its files take {wanted / (1 << 20):,.1f} MiB, and {most}")
        return super().read(wanted)


class _ArchiveReader:
    """The entries of an archive, and how many bytes of them may still be read."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._left_bytes = MOST_BYTES
        self.entries = {each.filename: each for each in archive.infolist() if not each.is_dir()}
        if len(self.entries) > MOST_FILES:
            raise LabFileError(f"it has {len(self.entries):,} files, and {MOST_FILES:,} are opened at most")

    def read(self, name: str) -> bytes:
        """Return the content of an entry."""
        return b"".join(self.iterate_entry_pieces(name))

    def iterate_entry_pieces(self, name: str) -> Iterator[bytes]:
        """Yield the content of an entry, whatever size it claims."""
        entry = self.entries[name]
        if entry.compress_type not in BOUNDED:
            raise LabFileError(f"{make_legible(name)} is packed by the method {entry.compress_type}, not by deflate")
        with self._archive.open(entry) as file:
            while piece := file.read(PIECE_BYTES):
                self._left_bytes -= len(piece)
                if self._left_bytes < 0:
                    raise LabFileError(f"it has more than {MOST_BYTES >> 20} MiB")
                yield piece


def _unpack_entries(archive_reader: _ArchiveReader, name: str, directory: Path) -> OpenedLabFile:
    """Write the logs of an archive into the directory; return its frames. Raises LabFileError, FlowError."""
    frames: list[Exchange] = []
    if FRAMES in archive_reader.entries:
        lines = io.BytesIO(archive_reader.read(FRAMES))
        frames = SavedFrames((each for each, _ in parse_exchanges(lines, name)), MOST_FRAMES).exchanges
    root = _find_folder_of_logs(archive_reader.entries)
    if root is not None:
        for each in archive_reader.entries:
            inside = _find_path_in_log_directory(root, each)
            if inside is not None:
                path = directory / inside
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "wb") as file:
                    file.writelines(archive_reader.iterate_entry_pieces(each))
    if root is None and not frames:
        raise LabFileError("it has neither frames nor a log directory")
    return OpenedLabFile(frames, root is not None, _read_number_of_nodes(archive_reader))


def _find_folder_of_logs(names: Iterable[str]) -> PurePosixPath | None:
    """Return the folder of an archive that contains the most folders of logs, None if there are none."""
    logs = (PurePosixPath(name) for name in names if identify_file(name) is not None)
    found = Counter(path.parent.parent for path in logs if path.suffix == ".log" and len(path.parts) > 1)
    return found.most_common(1)[0][0] if found else None


def _find_path_in_log_directory(root: PurePosixPath, name: str) -> PurePosixPath | None:
    """Return the path of an entry inside of a log directory, None for what does not belong there."""
    path = PurePosixPath(name)
    if not path.is_relative_to(root):
        return None
    inside = path.relative_to(root)
    is_plain = not any(part in ("..", NOT_COPIED) or "\\" in part or "\0" in part for part in inside.parts)
    return inside if is_plain and 0 < len(inside.parts) <= 2 else None


def _read_number_of_nodes(archive_reader: _ArchiveReader) -> int | None:
    """Return how many nodes the lab had."""
    if ABOUT not in archive_reader.entries:
        return None
    found: Any = json.loads(archive_reader.read(ABOUT))
    nodes = found.get("nodes") if isinstance(found, dict) else None
    return nodes if isinstance(nodes, int) and 1 <= nodes <= MOST_NODES else None
