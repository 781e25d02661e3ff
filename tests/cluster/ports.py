"""Free TCP ports that no other program is given between being chosen and being used."""

import socket
from contextlib import ExitStack


def reserve(count: int, host: str = "127.0.0.1") -> list[int]:
    """``count`` different free ports of ``host``.

    Each port is left in TIME_WAIT by a connection of our own. For a minute the kernel gives such a port to
    nobody who asks for any port, while a server that names it and sets SO_REUSEADDR, as Go's do, gets it.
    Closing a plain listener would leave a gap in which a second cluster could be given the same port.
    """
    with ExitStack() as held:
        # All are held until the last is chosen, so that no two are the same.
        return [_reserve_one(host, held) for _ in range(count)]


def _reserve_one(host: str, held: ExitStack) -> int:
    listener = held.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, 0))
    listener.listen(1)
    port: int = listener.getsockname()[1]
    client = held.enter_context(socket.create_connection((host, port)))
    accepted, _ = listener.accept()
    # The side that closes first keeps TIME_WAIT: it must be the one that holds the port.
    accepted.close()
    client.close()
    return port
