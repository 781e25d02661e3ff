"""kopf's settings, its storage, and the handlers that it calls."""

import inspect
import json
from typing import Any, cast

import kopf
import pytest

from tests.unit.kube.objects import llmd, pool
from wattkeeper.handlers import watch
from wattkeeper.handlers.storage import HashDiffBaseStorage
from wattkeeper.handlers.workqueue import WorkQueue
from wattkeeper.kube.client import Connection
from wattkeeper.kube.snapshot import Snapshot
from wattkeeper.kube.trim import Key


def storage() -> HashDiffBaseStorage:
    return HashDiffBaseStorage(prefix="wattkeeper.dev", key="last-handled", v1=False)


def essence(resource: dict[str, Any]) -> dict[str, Any]:
    return cast(dict[str, Any], storage().build(body=kopf.Body(cast(Any, resource))))


def test_a_hash_is_kept_instead_of_the_spec() -> None:
    huge = llmd("llama", server={"template": {"x": "y" * 200_000}})
    assert list(essence(huge)) == ["hash"]
    patch = kopf.Patch()
    body = kopf.Body(cast(Any, huge))
    kept = storage()
    kept.store(body=body, patch=patch, essence=kept.build(body=body))
    annotations = patch["metadata"]["annotations"]
    assert len(json.dumps(annotations)) < 200
    huge["metadata"]["annotations"] = annotations
    assert kept.fetch(body=kopf.Body(cast(Any, huge))) == essence(huge)


def test_the_hash_moves_with_what_users_write_and_with_nothing_else() -> None:
    basis = essence(llmd("llama"))
    assert essence(llmd("llama", {"phase": "Ready"})) == basis
    ours = llmd("llama")
    ours["metadata"] |= {"annotations": {"wattkeeper.dev/kopf-managed": "yes", "wattkeeper.dev/x": "1"}}
    ours["metadata"]["managedFields"] = [{"manager": "m"}]
    assert essence(ours) == basis
    assert essence(llmd("llama", replicas=2)) != basis
    labelled = llmd("llama")
    labelled["metadata"]["labels"] = {"a": "b"}
    assert essence(labelled) != basis


def test_kopf_is_run_as_it_is_best_used() -> None:
    chosen = watch.settings()
    assert isinstance(chosen.persistence.progress_storage, kopf.AnnotationsProgressStorage)
    assert chosen.persistence.progress_storage.prefix == "wattkeeper.dev"
    assert isinstance(chosen.persistence.diffbase_storage, HashDiffBaseStorage)
    assert (chosen.watching.server_timeout, chosen.watching.client_timeout) == (300, 330)
    assert chosen.queueing.worker_limit == 50
    assert chosen.peering.standalone
    assert not chosen.posting.enabled
    assert chosen.scanning.disabled


def registry() -> tuple[kopf.OperatorRegistry, Snapshot, WorkQueue[Key]]:
    snapshot, queue = Snapshot(), WorkQueue[Key]()
    return watch.registry(snapshot, queue), snapshot, queue


def test_nothing_holds_up_a_deletion() -> None:
    """No finalizer is ever needed: neither deletion handlers nor daemons nor timers."""
    handlers, _, _ = registry()
    changing = list(handlers._changing.get_all_handlers())
    assert {handler.reason.value for handler in changing if handler.reason} == {"create", "update"}
    assert not any(handler.requires_finalizer for handler in changing)
    assert not list(handlers._spawning.get_all_handlers())
    assert not list(handlers._indexing.get_all_handlers())  # they hang with worker_limit: nolar/kopf#1243


def test_all_handlers_are_async() -> None:
    handlers, _, _ = registry()
    watch.login(handlers, _connection)
    every = [
        *handlers._changing.get_all_handlers(),
        *handlers._watching.get_all_handlers(),
        *handlers._activities.get_all_handlers(),
    ]
    assert all(inspect.iscoroutinefunction(handler.fn) for handler in every)


def handler_of(handlers: kopf.OperatorRegistry, name: str) -> Any:
    every = [*handlers._changing.get_all_handlers(), *handlers._watching.get_all_handlers()]
    return next(handler.fn for handler in every if handler.fn.__name__ == name)


async def test_a_change_is_remembered_and_put_on_the_queue() -> None:
    handlers, snapshot, queue = registry()
    result = await handler_of(handlers, "llmdeployment")(body=llmd("llama"))
    assert result is None
    assert await queue.get() == Key("team-a", "llama")
    assert len(snapshot.claims) == 1


@pytest.mark.parametrize(
    ("name", "resource"),
    [("llmdeployment_seen", llmd("llama")), ("gpunodepool_seen", pool("mine", {"a": "b"}))],
)
async def test_raw_events_keep_the_copies(name: str, resource: dict[str, Any]) -> None:
    handlers, snapshot, _ = registry()
    seen = handler_of(handlers, name)
    for kind in (None, "ADDED", "MODIFIED"):
        await seen(type=kind, body=resource)
    assert len(snapshot.claims) + len(snapshot.pools) == 1
    await seen(type="DELETED", body=resource)
    assert len(snapshot.claims) + len(snapshot.pools) == 0


async def _connection() -> Connection:
    return Connection("https://api", "/ca", None, False, "Bearer", "abc", None, None, None)


async def test_kopf_logs_in_as_the_operator_does() -> None:
    handlers, _, _ = registry()
    watch.login(handlers, _connection)
    (login,) = handlers._activities.get_all_handlers()
    info = await cast(Any, login.fn)()
    assert (info.server, info.ca_path, info.scheme, info.token) == ("https://api", "/ca", "Bearer", "abc")
