"""What a placement decided about the pods, kept on the child so that every later rendering repeats it.

Weights, context and the labels of a pool's nodes are computed, and may come out otherwise after nodes
joined or the operator was upgraded. Rendered into the pod template, that would restart a running model for
nothing. So they are computed once a placement and spec, and recorded as an annotation of the Deployment.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from wattkeeper.api import names
from wattkeeper.api.v1alpha1.llmdeployment import LLMDeploymentSpec
from wattkeeper.core.demand import LabelRequirement

ANNOTATION = f"{names.GROUP}/placement"

NodeTerms = tuple[tuple[LabelRequirement, ...], ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """The decided facts that pods are rendered from."""

    pool: str
    gpus_per_replica: int
    node_terms: NodeTerms  # any of them, all requirements of it
    weight_bytes: int  # of the whole model
    max_context_tokens: int | None = None  # longest sequence whose cache fits
    fingerprint: str = ""  # of the spec that they were computed for

    def to_annotation(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_annotation(cls, text: str | None) -> Placed | None:
        """The record, or None when there is none that can be read."""
        try:
            values = json.loads(text or "")
            terms = tuple(
                tuple(LabelRequirement(each["key"], each["operator"], tuple(each["values"])) for each in term)
                for term in values.pop("node_terms")
            )
            record = cls(node_terms=terms, **values)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None  # an annotation is anybody's to write
        return record if record._is_sound() else None

    def _is_sound(self) -> bool:
        """Whether all parts are of their kind, so that a pod can be rendered from them."""
        texts = [self.pool, self.fingerprint]
        texts += [
            part
            for term in self.node_terms
            for each in term
            for part in (each.key, each.operator, *each.values)
        ]
        counts = [self.gpus_per_replica, self.weight_bytes]
        counts += [] if self.max_context_tokens is None else [self.max_context_tokens]
        return all(isinstance(each, str) for each in texts) and all(
            type(each) is int and each >= 0 for each in counts
        )

    def holds_for(self, pool: str, gpus_per_replica: int, fingerprint: str) -> bool:
        """Whether it is the record of this placement and spec."""
        return (self.pool, self.gpus_per_replica, self.fingerprint) == (pool, gpus_per_replica, fingerprint)


def fingerprint(spec: LLMDeploymentSpec, config_text: str | None) -> str:
    """A hash of what the pod template is made of; replicas, SLA and workload aren't among it.

    Defaults are left out, so that a field that a later version adds changes nothing.
    """
    parts = {
        "model": spec.model.model_dump(mode="json", exclude_defaults=True),
        "config": config_text,
        "server": spec.server.model_dump(mode="json", exclude_defaults=True),
        "gpus": spec.placement.tensor_parallel_size,
    }
    return digest(parts)


def digest(value: Any) -> str:
    """A short hash of anything JSON can hold, independent of the order of keys."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
