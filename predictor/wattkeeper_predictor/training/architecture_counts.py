"""Parameter counts of models that the catalogue lacks, from the columns of WattGPU's table of models.

The advertised sizes there are rounded (a "7B" has 7.6). The table lacks whether embeddings are tied, biases
and norms, so that the count is right within some per cent; where it is off the advertised size by more than
a factor of 1.4 the columns can't be those of the whole model, and the advertised size stays.
"""

from __future__ import annotations

from dataclasses import replace

from wattkeeper_predictor.specs import ModelSpec

UNGATED_TYPES = frozenset(
    {"gpt2", "phi", "phi-msft", "gptj", "gpt_neox", "nemotron", "opt", "bloom", "falcon"}
)
_MOST_OFF = 1.4


def counted(spec: ModelSpec) -> ModelSpec:
    """The same model with a computed count; mixtures keep what is advertised."""
    if spec.is_mixture_of_experts:
        return spec
    gated = spec.model_type not in UNGATED_TYPES
    attention = 2 * spec.hidden_size * spec.head_dim * (spec.attention_heads + spec.kv_heads)
    mlp = (3 if gated else 2) * spec.hidden_size * spec.intermediate_size
    billions = (spec.layers * (attention + mlp) + spec.vocab_size * spec.hidden_size) / 1e9
    advertised = spec.parameters_total_billion
    if not 1 / _MOST_OFF <= billions / advertised <= _MOST_OFF:
        return replace(spec, gated_mlp=gated, tie_word_embeddings=True)
    return replace(
        spec,
        parameters_total_billion=billions,
        parameters_active_billion=billions,
        gated_mlp=gated,
        # The count holds one table: the head, which each step reads.
        tie_word_embeddings=True,
    )
