"""The first process of a container: it makes its namespaces a container's, and becomes the container's command.

It starts below `unshare --mount --uts --ipc --net --pid --fork`, with one JSON object as its argument, and the sockets
of the published ports, which listen outside. A child of it hands their connections to the ports inside.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import socket
import struct
import subprocess
import sys
import threading
from typing import Any

SIOCSIFFLAGS = 0x8914
IFF_UP_RUNNING = 0x41


def main(told: dict[str, Any]) -> None:
    """Become the command that the object tells. Does not return."""
    root = told["root"]
    subprocess.run(["mount", "-t", "proc", "proc", f"{root}/proc"], check=True)
    subprocess.run(["mount", "--rbind", "/dev", f"{root}/dev"], check=True)
    socket.sethostname(told["hostname"])
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP_RUNNING))
    if os.fork() == 0:
        forward({int(port): socket.socket(fileno=fd) for port, fd in told["ports"].items()})
    for fd in told["ports"].values():
        os.set_inheritable(fd, False)
    os.chroot(root)
    os.chdir(told["workdir"])
    user = pwd.getpwnam(told["user"])
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    command = told["command"]
    try:
        os.execvpe(command[0], command, told["environment"])
    except OSError as error:
        sys.exit(f"{command[0]}: {error}")


def forward(published: dict[int, socket.socket]) -> None:
    """Connect whoever connects to a published port with that port in here. Does not return."""
    for port, listening in published.items():
        threading.Thread(target=_accept, args=(listening, port)).start()
    threading.Event().wait()


def _accept(listening: socket.socket, port: int) -> None:
    while True:
        outer, _ = listening.accept()
        try:
            inner = socket.create_connection(("127.0.0.1", port))
        except OSError:
            outer.close()
            continue
        for one, other in ((outer, inner), (inner, outer)):
            threading.Thread(target=_relay, args=(one, other)).start()


def _relay(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
