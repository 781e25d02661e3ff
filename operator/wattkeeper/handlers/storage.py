"""What kopf keeps on an LLMDeployment: a hash of what was handled last, instead of a copy of it.

kopf's own storage copies the whole spec into an annotation; a server template and an inline architecture
would soon fill the 256 KiB that all annotations have together. What changed is nobody's business here, as
everything is compared as a whole; that something changed is told by the hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, cast

import kopf


class HashDiffBaseStorage(kopf.AnnotationsDiffBaseStorage):
    """`{"hash": …}` of spec, labels and annotations, as kopf would have stored them."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        essence = super().build(body=body, extra_fields=extra_fields)
        text = json.dumps(essence, sort_keys=True, separators=(",", ":"), default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        return cast(kopf.BodyEssence, {"hash": digest})
