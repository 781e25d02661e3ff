"""Types that several objects of the API share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from wattkeeper.api.schema import ApiModel, Rule, Schema, Text, list_map

#: A name of a namespaced object such as a ConfigMap, a Secret or a claim.
ObjectName = Annotated[
    str,
    Text(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "the name of an object: lower-case letters, digits, '-' and '.'",
        253,
    ),
]
#: A key of a ConfigMap or a Secret.
DataKey = Annotated[
    str, Text(r"^[-._a-zA-Z0-9]+$", "a key of letters, digits, '-', '_' and '.', such as config.json", 253)
]
#: As the key of a map only Python checks it: CEL's cost of walking over keys can't be bounded.
LabelKey = Annotated[
    str,
    Text(
        r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        "a label such as topology.kubernetes.io/zone",
        317,
    ),
]
LabelValue = Annotated[
    str,
    Text(
        r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
        "a label's value: letters, digits, '-', '_' and '.'",
        63,
    ),
]

#: The first letters of a name, wherever one is made a Service or a label: RFC 1035.
RFC_1035 = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
RFC_1123 = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class LabelSelectorRequirement(ApiModel):
    """One requirement on a label."""

    rules = (
        Rule(
            "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0"
            " : !has(self.values) || size(self.values) == 0",
            "values must be given with In and NotIn, and left out with Exists and DoesNotExist",
            at=("values",),
            holds=lambda self: bool(self.values) == (self.operator in ("In", "NotIn")),
        ),
    )

    key: LabelKey = Field(description="Label that the requirement is about.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How the label's value relates to `values`."
    )
    values: Annotated[list[LabelValue] | None, Schema({"x-kubernetes-list-type": "atomic"})] = Field(
        default=None,
        max_length=64,
        description="Values for In and NotIn; absent for Exists and DoesNotExist.",
    )


class LabelSelector(ApiModel):
    """Labels to match; all requirements must hold, none at all matches everything."""

    match_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, max_length=64, description="Labels that must have exactly these values."
    )
    match_expressions: Annotated[
        list[LabelSelectorRequirement], Schema({"x-kubernetes-list-type": "atomic"})
    ] = Field(default_factory=list, max_length=64, description="Further requirements on labels.")


class Condition(ApiModel):
    """One aspect of the state, as in metav1.Condition."""

    type: str = Field(
        min_length=1,
        max_length=316,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        description="Which aspect, in CamelCase.",
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(
        min_length=1,
        max_length=1024,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Why, in one CamelCase word, for programs.",
    )
    message: str = Field(max_length=32768, description="Why, for people: the figures, the field, the cure.")
    last_transition_time: Annotated[str, Schema({"type": "string", "format": "date-time"}, replace=True)] = (
        Field(description="When `status` last changed.")
    )
    observed_generation: int | None = Field(
        default=None, ge=0, description="Generation of the spec that this was said of."
    )


Conditions = Annotated[list[Condition], list_map("type")]
