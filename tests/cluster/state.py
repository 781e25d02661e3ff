"""What is remembered of a cluster between processes: one JSON file in the cluster's directory."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.cluster.components import Layout, Ports
from tests.cluster.errors import ClusterError
from tests.cluster.paths import state_directory
from tests.cluster.processes import Process

FILE = "cluster.json"


@dataclass(frozen=True)
class State:
    """A cluster that was started.

    It is ``ready`` once the start is over; one that is not was interrupted, or is being started now.
    A ``kept`` cluster runs until it is taken down; any other until the last of its ``owners`` (test
    processes) has let go of it or has ended.
    """

    name: str
    directory: Path
    ready: bool
    kept: bool
    ports: Ports
    components: tuple[Process, ...]
    owners: tuple[Process, ...]

    @property
    def layout(self) -> Layout:
        return Layout(self.directory)

    def ended(self) -> list[Process]:
        """Components that no longer run."""
        return [component for component in self.components if not component.alive()]

    def usable(self) -> bool:
        """Whether it was started to the end and still runs whole."""
        return self.ready and not self.ended()

    def wanted(self) -> bool:
        """Whether anybody still needs it."""
        return self.kept or any(owner.alive() for owner in self.owners)

    def with_owner(self, owner: Process) -> "State":
        return replace(self, owners=(*self.owners, owner))

    def without_owner(self, owner: Process) -> "State":
        return replace(self, owners=tuple(other for other in self.owners if other != owner))


def directory_of(name: str) -> Path:
    """Raises ClusterError for a name that would not do as a folder and as a kubeconfig context."""
    if re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", name) is None:
        raise ClusterError(
            f"{name!r} is no name for a cluster: use at most 42 lower-case letters, digits and dashes"
        )
    return state_directory() / name


def load(name: str) -> State | None:
    """The state of cluster ``name``; None where none was started."""
    return read(directory_of(name))


def read(directory: Path) -> State | None:
    """The state that is kept in ``directory``; None where there is none."""
    path = directory / FILE
    try:
        document = json.loads(path.read_text())
        return State(
            name=directory.name,
            directory=directory,
            ready=document["ready"],
            kept=document["kept"],
            ports=Ports(**document["ports"]),
            components=tuple(Process(**component) for component in document["components"]),
            owners=tuple(Process(**owner) for owner in document["owners"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ClusterError(
            f"{path} cannot be read ({error}): end the processes it names, then delete {path.parent}"
        ) from error


def save(state: State) -> None:
    """Writes the file in one step, so that a reader never sees half of it."""
    document = {
        "ready": state.ready,
        "kept": state.kept,
        "ports": asdict(state.ports),
        "components": [asdict(component) for component in state.components],
        "owners": [asdict(owner) for owner in state.owners],
    }
    scratch = state.directory / f".{FILE}"
    scratch.write_text(json.dumps(document, indent=2))
    scratch.replace(state.directory / FILE)


def forget(state: State) -> None:
    (state.directory / FILE).unlink(missing_ok=True)


def all_states() -> Iterator[State]:
    """Every cluster that was started and not yet taken down."""
    for path in sorted(state_directory().glob(f"*/{FILE}")):
        state = read(path.parent)
        if state is not None:
            yield state
