"""What this process knows of the resources that kopf watches: the newest version of each.

Three tell of the same object: kopf's events, the answers to our own writes, and the sweep's lists. The newest
resource version wins (they are ordered within one resource since Kubernetes 1.35, and were in practice
before), so that a late event never hides what was just written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Versioned(Protocol):
    """A value of an object's version."""

    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> str: ...


V = TypeVar("V", bound=Versioned)

#: Deleted objects that are remembered, lest a late event brings them back.
_REMEMBERED = 4096


@dataclass(slots=True)
class NewestCache(Generic[V]):
    """The newest value of each object by uid. `changed` is told (before, after) of every change."""

    changed: Callable[[V | None, V | None], None]
    _values: dict[str, V] = field(default_factory=dict)
    _gone: dict[str, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[V]:
        return iter(list(self._values.values()))

    def get(self, uid: str) -> V | None:
        return self._values.get(uid)

    def observe(self, value: V) -> None:
        """An object was seen at this version; older news are ignored."""
        before = self._values.get(value.uid)
        if value.uid in self._gone or (before is not None and _older(value.version, before.version)):
            return
        self._values[value.uid] = value
        if before != value:
            self.changed(before, value)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._gone[uid] = None
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        before = self._values.pop(uid, None)
        if before is not None:
            self.changed(before, None)

    def reconcile(self, listed: list[V], list_version: str) -> None:
        """A complete list: what isn't in it and isn't newer than it is gone."""
        for value in listed:
            self.observe(value)
        present = {value.uid for value in listed}
        for uid, value in list(self._values.items()):
            if uid not in present and not _older(list_version, value.version):
                self.forget(uid)


def _older(one: str, other: str) -> bool:
    """Whether version `one` is from before `other`; versions that are no numbers can't be compared."""
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)
