from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster import processes, state
from tests.cluster.components import Ports
from tests.cluster.control_plane import check
from tests.cluster.errors import ClusterError, StartError
from tests.cluster.processes import Process
from tests.cluster.state import State

GONE = Process("gone", pid=1, started_ticks=1)  # never ours: process 1 started at another time


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def sample(name: str = "dev", *, kept: bool = False, ready: bool = True) -> State:
    directory = state.directory_of(name)
    directory.mkdir(parents=True, exist_ok=True)
    return State(name, directory, ready, kept, Ports(1, 2, 3, 4, 5, 6), (GONE,), ())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kept=st.booleans(),
    ready=st.booleans(),
    owners=st.lists(st.builds(Process, st.text(max_size=5), st.integers(1), st.integers(0)), max_size=3),
)
def test_what_was_saved_is_loaded(kept: bool, ready: bool, owners: list[Process]) -> None:
    known = replace(sample(kept=kept, ready=ready), owners=tuple(owners))
    state.save(known)
    assert state.load("dev") == known
    assert [found.name for found in state.all_states()] == ["dev"]
    state.forget(known)
    assert state.load("dev") is None


def test_wanted_by_its_keeper_or_by_a_living_owner() -> None:
    me = processes.current()
    assert sample(kept=True).wanted()
    assert not sample().wanted()
    assert sample().with_owner(me).wanted()
    assert not sample().with_owner(GONE).wanted()
    assert not sample().with_owner(me).without_owner(me).wanted()


def test_usable_when_started_to_the_end_and_whole() -> None:
    me = processes.current()
    assert replace(sample(), components=(me,)).usable()
    assert not replace(sample(), components=(me, GONE)).usable()
    assert not replace(sample(ready=False), components=(me,)).usable()


@pytest.mark.parametrize("name", ["", "Dev", "-a", "a-", "../up", "a/b", "a" * 43, "a_b", "a\n"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="is no name for a cluster"):
        state.directory_of(name)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"kept": true, "ports": {"api_server": 1}}'])
def test_damaged_file_is_named(text: str) -> None:
    directory = sample().directory
    (directory / state.FILE).write_text(text)
    with pytest.raises(ClusterError, match=r"cluster\.json cannot be read .*delete"):
        state.load("dev")


def test_ended_component_is_reported_with_its_log() -> None:
    known = sample()
    known.layout.logs.mkdir()
    known.layout.log("gone").write_text("panic: out of watts\n")
    with pytest.raises(StartError, match=r"gone of cluster dev has ended(?s:.*)panic: out of watts"):
        check(known)
