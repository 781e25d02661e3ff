"""An LLM's architecture, written inline in place of a Hugging Face config.json."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattkeeper.api.schema import ApiModel, Rule, Text


def _heads_divide(self: Architecture) -> bool:
    return self.num_key_value_heads is None or self.num_attention_heads % self.num_key_value_heads == 0


def _hidden_divides(self: Architecture) -> bool:
    return self.head_dim is not None or self.hidden_size % self.num_attention_heads == 0


def _experts_chosen(self: Architecture) -> bool:
    chosen, experts = self.num_experts_per_tok, self.num_local_experts
    return (chosen is None) == (experts is None) and (chosen is None or experts is None or chosen <= experts)


class Architecture(ApiModel):
    """What the predictor needs to know of an LLM that its catalogue lacks.

    The fields mean what the same names in snake_case mean in a Hugging Face config.json.
    """

    rules = (
        Rule(
            "!has(self.numKeyValueHeads) || self.numAttentionHeads % self.numKeyValueHeads == 0",
            "numKeyValueHeads must divide numAttentionHeads",
            at=("numKeyValueHeads",),
            holds=_heads_divide,
        ),
        Rule(
            "has(self.headDim) || self.hiddenSize % self.numAttentionHeads == 0",
            "numAttentionHeads must divide hiddenSize where headDim is left out",
            at=("numAttentionHeads",),
            holds=_hidden_divides,
        ),
        Rule(
            "has(self.numExpertsPerTok) == has(self.numLocalExperts)"
            " && (!has(self.numLocalExperts) || self.numExpertsPerTok <= self.numLocalExperts)",
            "numExpertsPerTok and numLocalExperts must come together, "
            "numExpertsPerTok being at most numLocalExperts",
            at=("numExpertsPerTok",),
            holds=_experts_chosen,
        ),
    )

    model_type: Annotated[
        str, Text(r"^[a-z0-9][a-z0-9_.-]*$", "a Hugging Face model_type such as llama or qwen2", 64)
    ] = Field(description="Family of the model, such as llama, qwen2 or gpt_neox.")
    hidden_size: int = Field(ge=16, le=262_144, description="Width of the hidden states (elements).")
    num_hidden_layers: int = Field(ge=1, le=1024, description="Number of transformer layers.")
    num_attention_heads: int = Field(ge=1, le=1024, description="Query heads of one layer.")
    num_key_value_heads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Key and value heads of one layer; default: numAttentionHeads.",
    )
    head_dim: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Width of one head (elements); default: hiddenSize ÷ numAttentionHeads.",
    )
    intermediate_size: int = Field(
        ge=16, le=1_048_576, description="Width of the feed-forward layers (elements)."
    )
    vocab_size: int = Field(ge=2, le=16_777_216, description="Number of tokens in the vocabulary.")
    max_position_embeddings: int | None = Field(
        default=None, ge=1, le=67_108_864, description="Longest sequence (tokens); default: not limited."
    )
    tie_word_embeddings: bool = Field(
        default=False, description="Whether the output layer shares the input embedding's weights."
    )
    sliding_window: int | None = Field(
        default=None,
        ge=1,
        le=67_108_864,
        description="Attention window (tokens); default: the whole sequence.",
    )
    num_local_experts: int | None = Field(
        default=None, ge=1, le=4096, description="Routed experts of one layer, for mixture-of-experts models."
    )
    num_experts_per_tok: int | None = Field(
        default=None, ge=1, le=4096, description="Experts that each token is routed to."
    )
    moe_intermediate_size: int | None = Field(
        default=None,
        ge=1,
        le=1_048_576,
        description="Width of one expert's feed-forward layers (elements); default: intermediateSize.",
    )
    n_shared_experts: int | None = Field(
        default=None, ge=0, le=1024, description="Experts that every token passes, beside the routed ones."
    )
