import errno
import socket

from tests.cluster.ports import reserve


def test_ports_differ_and_a_server_can_have_them() -> None:
    ports = reserve(8)
    assert len(set(ports)) == 8
    for port in ports:
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen()


def test_port_is_held_against_those_that_do_not_name_it() -> None:
    """What TIME_WAIT does: without SO_REUSEADDR even naming the port fails."""
    (port,) = reserve(1)
    with socket.socket() as stranger:
        assert stranger.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
    with socket.socket() as stranger:
        try:
            stranger.bind(("127.0.0.1", port))
        except OSError as error:
            assert error.errno == errno.EADDRINUSE
        else:
            raise AssertionError(f"port {port} was not held")
