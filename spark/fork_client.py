"""Stands in for `python` where Spark starts its processes: has fork_server.py fork them.

    fork_client.py SERVER PYTHON ARGUMENTS...

It is run without site-packages, in some 20 ms. Where the server cannot help (it is gone, or no
module is asked for), the real Python takes its place.
"""

import json
import os
import socket
import struct
import sys


def forked(server: str, argv: list[str]) -> int | None:
    """The exit code, or None if it has to be done without."""
    request = {"argv": argv, "environ": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109
    body = json.dumps(request).encode()
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(server)
            socket.send_fds(link, [struct.pack("!I", len(body))], [0, 1, 2])
            link.sendall(body)
            if not link.recv(1):
                return None
            code = link.recv(1)
    except (OSError, UnicodeError):
        return None
    return code[0] if code else 1


def main() -> None:
    server, python, *arguments = sys.argv[1:]
    if arguments[:1] == ["-m"]:
        code = forked(server, arguments[1:])
        if code is not None:
            os._exit(code)
    os.execv(python, [python, *arguments])  # noqa: S606 - what was asked for


if __name__ == "__main__":
    main()
