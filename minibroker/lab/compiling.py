"""An archive of modules, with what this Python compiles of those that are loaded.

The entries are not compressed: the archive is as a whole, which makes it smaller, and modules load faster from it.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
import zipfile
from collections.abc import Iterable
from typing import Final

WITHOUT: Final = (  # of Python's library: a tab has one process, and no sockets
    *("multiprocessing/", "wsgiref/", "xmlrpc/", "socketserver.py", "http/server.py"),
    *("ftplib.py", "imaplib.py", "mailbox.py", "poplib.py", "smtplib.py", "webbrowser.py"),
)
UNCHECKED: Final = 1  # a flag of a compiled module: nobody compares it with its source
SOURCE: Final = ".py"


def compile_archive(source: str, target: str, *, keeps_source: bool) -> None:
    """Copy a zip archive, and compile the modules that this process has loaded from it."""
    loaded = {str(getattr(module, "__file__", None)) for module in sys.modules.values()}
    with zipfile.ZipFile(source) as given, zipfile.ZipFile(target, "w") as made:
        for name in sorted(name for name in given.namelist() if not name.startswith(WITHOUT)):
            content = given.read(name)
            path = f"{source}/{name}"
            if path in loaded and name.endswith(SOURCE):
                add_entry(made, f"{name}c", _compile_module(content, path))
                if not keeps_source:
                    continue
            add_entry(made, name, content)


def pack_entries(target: str, entries: Iterable[tuple[str, bytes]]) -> None:
    """Write an archive of these names and contents."""
    with zipfile.ZipFile(target, "w") as made:
        for name, content in entries:
            add_entry(made, name, content)


def add_entry(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add an entry without a time of its own, so that the same content makes the same archive."""
    archive.writestr(zipfile.ZipInfo(name), content)


def _compile_module(source: bytes, path: str) -> bytes:
    """Return the content of a .pyc file."""
    code = marshal.dumps(compile(source, path, "exec", dont_inherit=True))
    flags = UNCHECKED.to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + flags + importlib.util.source_hash(source) + code
