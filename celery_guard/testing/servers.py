"""Servers of a test's own, on free ports: to be stopped, killed and started again while jobs flow.

A server keeps its port and its folder from one start to the next; what it had kept in memory only is gone. Programs are looked for
on PATH and where Debian puts them. A test whose program is not installed is skipped, and fails where ``CI`` is ``true``.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

import pytest

__all__ = [
    "PrivateServer",
    "private_mariadb",
    "private_pgbouncer",
    "private_postgresql",
    "private_rabbitmq",
    "private_redis",
    "private_sentinel",
]

#: How long a server may take to answer, in seconds. Only reached by one that will never.
_PATIENCE = 180.0

#: Where Debian puts what it does not put on PATH.
_POSTGRESQL = "usr/lib/postgresql/*/bin"
_RABBITMQ = "usr/lib/rabbitmq/bin"


class PrivateServer:
    """One server process and its children.

    Args:
        url: where clients find it.
        command: what starts it, in the foreground.
        folder: all it keeps; the folder is its own.
        answers: whether the server at the other end of a socket does its work.
        environment: what its environment has besides this process's own.
        user: whose it is; None: this process's user's.
    """

    def __init__(
        self,
        url: str,
        port: int,
        command: Sequence[str],
        folder: Path,
        answers: Callable[[socket.socket], bool],
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self.url = url
        self.port = port
        self._command = list(command)
        self._folder = folder
        self._answers = answers
        self._environment = {**os.environ, **(environment or {})}
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> PrivateServer:
        """Start it, and return once it answers."""
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self._command, env=self._environment, cwd=self._folder, stdout=output, stderr=output,
                start_new_session=True, user=self._user,
            )  # fmt: skip
        until = time.monotonic() + _PATIENCE
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(
                    f"{self._command[0]} does not answer:\n{(self._folder / 'output').read_text()[-4000:]}"
                )
            time.sleep(0.05)
        return self

    def kill(self) -> None:
        """SIGKILL for it and its children: nothing is flushed, and no client is told."""
        if self._process is None:
            return
        family = _family(self._process.pid)
        # Parents first: one that survives its child would start another.
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        while any(map(_is_alive, family)):
            time.sleep(0.005)

    def _is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as client:
                client.settimeout(5)
                return self._answers(client)
        except OSError:
            return False

    def __enter__(self) -> PrivateServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


@contextmanager
def private_redis(*options: str, tls: bool = False) -> Iterator[PrivateServer]:
    """A Redis that keeps everything in memory only, not yet started. ``options`` are those of its command line.

    ``tls``: it speaks nothing else, with the certificate that the options name.
    """
    program = _program("redis-server")
    with _folder() as folder:
        port = _free_port()
        ports = ("--port", "0", "--tls-port", str(port)) if tls else ("--port", str(port))
        command = (program, *ports, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", *options)
        scheme, answers = ("rediss", _pongs_by_tls) if tls else ("redis", _pongs)
        yield from _stopping(PrivateServer(f"{scheme}://127.0.0.1:{port}/0", port, command, folder, answers))


def _pongs(client: socket.socket) -> bool:
    client.sendall(b"PING\r\n")
    return client.recv(7) == b"+PONG\r\n"


def _pongs_by_tls(client: socket.socket) -> bool:
    """Whoever it is: that is for a test to look at."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(client) as wrapped:
        return _pongs(wrapped)


@contextmanager
def private_sentinel(primary: PrivateServer, service: str) -> Iterator[PrivateServer]:
    """A sentinel that watches ``primary`` and its replicas, not yet started; it fails over by itself after a second."""
    program = _program("redis-server")
    with _folder() as folder:
        port = _free_port()
        lines = (
            f"port {port}", "bind 127.0.0.1", f"sentinel monitor {service} 127.0.0.1 {primary.port} 1",
            f"sentinel down-after-milliseconds {service} 1000", f"sentinel failover-timeout {service} 3000",
        )  # fmt: skip
        (folder / "sentinel.conf").write_text("\n".join(lines))
        command = (program, str(folder / "sentinel.conf"), "--sentinel")
        url = f"redis+sentinel://127.0.0.1:{port}/0?service={service}"
        yield from _stopping(PrivateServer(url, port, command, folder, _pongs))


@contextmanager
def private_postgresql() -> Iterator[PrivateServer]:
    """A PostgreSQL with its tables on disk, not yet started; one that was killed recovers what was committed."""
    programs = _program("initdb", _POSTGRESQL), _program("postgres", _POSTGRESQL)
    # It refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    with _folder(user) as folder:
        port = _free_port()
        data = str(folder / "data")
        init = (programs[0], "-D", data, "-A", "trust", "-U", "root", "--no-sync", "-E", "UTF8", "--locale=C")
        subprocess.run(init, check=True, capture_output=True, cwd=folder, user=user)
        command = (
            programs[1], "-D", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1",
            "-c", "unix_socket_directories=", "-c", "shared_buffers=16MB", "-c", "fsync=off",
        )  # fmt: skip

        def answers(client: socket.socket) -> bool:
            # A startup message: a server that is still recovering says so with an error.
            message = b"\x00\x03\x00\x00user\x00root\x00database\x00postgres\x00\x00"
            client.sendall((len(message) + 4).to_bytes(4, "big") + message)
            return client.recv(1) == b"R"

        url = f"postgresql+psycopg://root@127.0.0.1:{port}/postgres"
        yield from _stopping(PrivateServer(url, port, command, folder, answers, user=user))


@contextmanager
def private_mariadb() -> Iterator[PrivateServer]:
    """A MariaDB with its tables on disk and an empty database ``guard``, not yet started; one that was killed recovers what was committed."""
    install, program = _program("mariadb-install-db"), _program("mariadbd", "usr/sbin")
    user = "mysql" if os.geteuid() == 0 else None
    with _folder(user) as folder:
        port, data = _free_port(), folder / "data"
        # its user may not write where ours writes
        aside = f"--tmpdir={folder}"
        init = (install, "--no-defaults", f"--datadir={data}", aside, "--skip-test-db", "--skip-name-resolve")
        subprocess.run(init, check=True, capture_output=True, cwd=folder, user=user)
        # a folder is a database
        (data / "guard").mkdir()
        if user is not None:
            shutil.chown(data / "guard", user)
        command = (
            program, "--no-defaults", f"--datadir={data}", aside, f"--socket={folder / 'socket'}", f"--port={port}",
            "--bind-address=127.0.0.1", "--skip-grant-tables", "--skip-networking=0", "--skip-name-resolve",
            "--innodb-buffer-pool-size=16M", f"--pid-file={folder / 'pid'}",
        )  # fmt: skip

        def answers(client: socket.socket) -> bool:
            # the server greets first: its fifth byte is the version of the protocol
            return client.recv(5)[4:] == b"\x0a"

        yield from _stopping(
            PrivateServer(f"mysql+pymysql://root@127.0.0.1:{port}/guard", port, command, folder, answers, user=user)
        )


@contextmanager
def private_pgbouncer(database: str, size: int = 2) -> Iterator[PrivateServer]:
    """A PgBouncer before the PostgreSQL database at a URL, not yet started; its URL is that of the database through it.

    It pools transactions: a client has one of ``size`` sessions of the server's for as long as a transaction, or a statement, and the
    next time perhaps another.
    """
    program = _program("pgbouncer", "usr/sbin")
    # It refuses to run as root.
    user = "nobody" if os.geteuid() == 0 else None
    with _folder(user) as folder:
        port, target = _free_port(), urlsplit(database)
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={target.hostname} port={target.port or 5432} user={target.username}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = {size}\nmax_client_conn = 200\n"
        )

        def answers(client: socket.socket) -> bool:
            client.sendall(b"\x00\x00\x00\x08\x04\xd2\x16\x2f")  # may we speak TLS?
            return client.recv(1) == b"N"

        url = urlunsplit(target._replace(netloc=f"{target.username}@127.0.0.1:{port}"))
        command = (program, str(folder / "pgbouncer.ini"))
        yield from _stopping(PrivateServer(url, port, command, folder, answers, user=user))


@contextmanager
def private_rabbitmq() -> Iterator[PrivateServer]:
    """A RabbitMQ with durable queues on disk, not yet started."""
    program = _program("rabbitmq-server", _RABBITMQ)
    with _folder() as folder:
        port, distribution = _free_port(), _free_port()
        (folder / "plugins").write_text("[].")
        environment = {
            "HOME": str(folder),
            "RABBITMQ_NODENAME": f"guard{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(folder / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }

        def answers(client: socket.socket) -> bool:
            client.sendall(b"AMQP\x00\x00\x09\x01")
            return client.recv(1) == b"\x01"

        url = f"amqp://guest:guest@127.0.0.1:{port}//"
        yield from _stopping(PrivateServer(url, port, (program,), folder, answers, environment))


def _stopping(server: PrivateServer) -> Iterator[PrivateServer]:
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def _folder(owner: str | None = None) -> Iterator[Path]:
    """A folder that the server may enter: a test's own belongs to nobody but the test."""
    folder = Path(tempfile.mkdtemp(prefix="guard-server-"))
    try:
        if owner is not None:
            entry = pwd.getpwnam(owner)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _family(pid: int) -> list[int]:
    """A process, and all that descend from it and still know it."""
    try:
        told = [line.read_text() for line in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has just ended
        told = []
    return [pid, *(each for line in told for child in line.split() for each in _family(int(child)))]


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _program(name: str, *places: str) -> str:
    """Where a program is: in one of the places, or on PATH."""
    folders = [str(folder) for place in places for folder in sorted(Path("/").glob(place), reverse=True)]
    found = shutil.which(name, path=os.pathsep.join(folders)) or shutil.which(name)
    if found is not None:
        return found
    missing = f"needs the program {name}, which is not installed"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
        return port
