"""A cluster in memory: the few requests that the operator sends, with the API server's own semantics.

Resource versions and generations move as they do there, a stale status is a conflict, /scale has an owner.
What isn't among those requests fails the test.
"""

import copy
from collections.abc import Callable
from itertools import count
from typing import Any

from wattkeeper.kube.client import APPLY, Object, Request
from wattkeeper.kube.errors import ApiError, ConflictError, NotFoundError

_CREATED = "2026-01-01T00:01:00Z"


class MemoryApi:
    """Stands in for `kube.client.Client`. `on_write` is told of every stored object, as a watch would be."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.requests: list[Request] = []
        self.events: list[Object] = []
        self.on_write: Callable[[Object], None] = lambda stored: None
        self.refusals: list[tuple[Callable[[Request], bool], ApiError]] = []
        self._versions = count(1000)

    def version(self) -> str:
        """The next resource version."""
        return str(next(self._versions))

    # ---- for tests -------------------------------------------------------------------------------

    def put(self, path: str, thing: Object) -> Object:
        """Store an object as it is, without telling anybody."""
        self.objects[path] = thing
        return thing

    def refuse(self, matches: Callable[[Request], bool], error: ApiError) -> None:
        """Answer matching requests with an error, until `allow`."""
        self.refusals.append((matches, error))

    def allow(self) -> None:
        self.refusals.clear()

    def writes(self) -> list[Request]:
        """What really changed something, Events left out."""
        return [each for each in self.requests if each.writes and each.kind != "Event"]

    # ---- the client ------------------------------------------------------------------------------

    async def get(self, resource: Any, namespace: str | None, name: str) -> Object:
        return await self.send(Request("GET", resource.path(namespace, name), resource.kind))

    async def pages(self, resource: Any, namespace: str | None = None, label_selector: str = "") -> Any:
        assert not label_selector
        prefix = resource.collection(namespace)
        kind = resource.kind
        items = [
            each
            for path, each in self.objects.items()
            if each["kind"] == kind and path.startswith(prefix[:12])
        ]
        yield [copy.deepcopy(each) for each in items], str(next(self._versions))

    async def send(self, request: Request) -> Object:
        self.requests.append(request)
        for matches, error in self.refusals:
            if matches(request):
                raise error
        answer = self._answer(request)
        return copy.deepcopy(answer)

    def _answer(self, request: Request) -> Object:
        if request.method == "POST" and request.kind in ("Event", "Pod"):
            if request.kind == "Event":
                self.events.append(request.body)
            else:
                assert request.query.get("dryRun") == "All", "a pod was really created"
            return dict(request.body)
        if request.method == "GET":
            return self._found(request.path)
        if request.method == "DELETE":
            return self.objects.pop(request.path)
        assert (request.method, request.content_type) == ("PATCH", APPLY), f"nobody expected {request}"
        assert request.query["fieldManager"] == "wattkeeper-operator"
        path, _, subresource = request.path.rpartition("/")
        if subresource == "status":
            return self._status(path, request.body)
        if subresource == "scale":
            return self._scale(path, request.body["spec"]["replicas"])
        return self._apply(request)

    def _found(self, path: str) -> Object:
        if path not in self.objects:
            raise NotFoundError(path, 404, "NotFound", "not found")
        return self.objects[path]

    def _apply(self, request: Request) -> Object:
        before = self.objects.get(request.path)
        stored = (
            copy.deepcopy(before) if before else {"status": {}, "spec": {}, "metadata": {"generation": 0}}
        )
        body = copy.deepcopy(request.body)
        spec_before = copy.deepcopy(stored["spec"])
        kept = {key: stored["spec"][key] for key in ("replicas",) if key in stored["spec"]}
        stored |= {"apiVersion": body["apiVersion"], "kind": body["kind"]}
        stored["spec"] = ({"replicas": 1} if body["kind"] == "Deployment" else {}) | body["spec"] | kept
        stored["metadata"] |= body["metadata"]
        if before is None:
            stored["metadata"] |= {"uid": f"uid-{next(self._versions)}", "creationTimestamp": _CREATED}
        if stored["spec"] != spec_before:
            stored["metadata"]["generation"] += 1
        if "dryRun" in request.query:
            return stored
        changed = before is None or {**stored, "status": None} != {**before, "status": None}
        return self._store(request.path, stored) if changed else stored

    def _status(self, path: str, body: Object) -> Object:
        stored = self._found(path)
        if body["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]:
            raise ConflictError(path, 409, "Conflict", "the object has been modified")
        stored["status"] = copy.deepcopy(body["status"])
        return self._store(path, stored)

    def _scale(self, path: str, replicas: int) -> Object:
        stored = self._found(path)
        if stored["spec"].get("replicas") != replicas:
            stored["metadata"]["generation"] += 1
        stored["spec"]["replicas"] = replicas
        owner = {"manager": "wattkeeper-operator", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        stored["metadata"]["managedFields"] = [owner]
        return self._store(path, stored)

    def _store(self, path: str, thing: Object) -> Object:
        thing["metadata"]["resourceVersion"] = self.version()
        self.objects[path] = thing
        self.on_write(copy.deepcopy(thing))
        return thing
