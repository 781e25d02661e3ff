"""Waits until a component answers, and says why when it does not."""

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.cluster import processes
from tests.cluster.errors import StartError
from tests.cluster.processes import Process

READY_SECONDS = 120.0
REQUEST_SECONDS = 5.0
POLL_SECONDS = 0.1

# A check returns None when the component is ready, else what is still missing.
Check = Callable[[], str | None]


def wait(process: Process, log: Path, check: Check, seconds: float = READY_SECONDS) -> None:
    """Returns when ``check`` passes; raises StartError when the process ends first or time runs out."""
    deadline = time.monotonic() + seconds
    while (missing := check()) is not None:
        if not process.alive():
            raise StartError(f"{process.name} ended while starting.\n{last_words(log)}")
        if time.monotonic() > deadline:
            raise StartError(
                f"{process.name} is not ready after {seconds:.0f} s: {missing}\n{last_words(log)}"
            )
        time.sleep(POLL_SECONDS)


def last_words(log: Path) -> str:
    """The end of a component's log with where to find the rest."""
    return f"  The end of {log}:\n{processes.tail(log) or '    (nothing was written)'}"


def http_ok(url: str, context: ssl.SSLContext | None = None) -> Check:
    """A check that ``url`` answers 200."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]  # never through a proxy
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)

    def check() -> str | None:
        try:
            with opener.open(url, timeout=REQUEST_SECONDS):
                return None
        except urllib.error.HTTPError as error:
            return f"{url} answers {error.code}: {error.read(500).decode(errors='replace').strip()}"
        except OSError as error:
            return f"{url}: {error}"

    return check


def client_context(authority: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS with a client certificate, trusting one authority only."""
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(certificate, key)
    return context


def unverified_context() -> ssl.SSLContext:
    """TLS without verification, for the health page of a component on loopback that signs for itself."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
