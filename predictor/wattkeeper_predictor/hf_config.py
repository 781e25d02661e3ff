"""A ``ModelSpec`` from a Hugging Face config.json.

Families spell the same size in different ways (``n_embd``, ``d_model``, ``hidden_size``); this module
reads them all into one set of names, refuses what contradicts itself, and lets ``architectures``
count the parameters. Errors: ``InvalidInput`` with ``model.config.<key>`` as the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .architectures import FAMILIES, Dimensions, Experts, Family, Latent, count_parameters
from .config_reader import Reader, whole
from .errors import InvalidInput, shown
from .specs import ModelSpec

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim")
_INTERMEDIATE = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
_VOCAB = ("vocab_size", "padded_vocab_size")
_CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "seq_length",
    "max_seq_len",
    "n_ctx",
    "max_sequence_length",
)
_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_EXPERTS_ACTIVE = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_k", "moe_topk")
_EXPERT_WIDTH = ("moe_intermediate_size",)
_SHARED_EXPERTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
_EXPERT_STEP = ("decoder_sparse_step", "moe_layer_freq", "moe_layer_interval", "interleave_moe_layer_step")
_DENSE_FIRST = ("first_k_dense_replace", "moe_layer_start_index")

# Layers that keep a state instead of a key-value cache; nothing here can count them.
_FOREIGN_LAYERS = ("linear_attention", "mamba", "conv", "recurrent")


def model_from_config(model_id: str, config: Mapping[str, Any]) -> ModelSpec:
    """Read a config.json (already parsed) into a ``ModelSpec`` with true parameter counts.

    Multimodal configurations are read from their ``text_config``; the encoder's weights are added
    to ``tower_parameters_billion`` where its sizes are given.
    """
    if not isinstance(config, Mapping):
        raise InvalidInput("model.config", f"a JSON object is needed, not {type(config).__name__}")
    text = _text_part(config)
    family_name, family = _family(text)
    reader = Reader(text, family.defaults)
    size = _dimensions(reader, family)
    total, active = count_parameters(family, size)
    sliding_layers, window = _sliding(reader, family, size.layers)
    return ModelSpec(
        id=model_id,
        model_type=family_name,
        parameters_total_billion=total / 1e9,
        parameters_active_billion=active / 1e9,
        layers=size.layers,
        hidden_size=size.hidden,
        attention_heads=size.heads,
        kv_heads=size.kv_heads,
        head_dim=size.head_dim,
        intermediate_size=size.intermediate,
        vocab_size=size.vocab,
        max_context_tokens=_context(reader, family_name),
        tie_word_embeddings=size.tied,
        experts_total=size.experts.total if size.experts else None,
        experts_active=size.experts.active if size.experts else None,
        native_dtype=_dtype(text),
        native_quantization=_quantization(config) or _quantization(text),
        gated_mlp=family.gated,
        sliding_layers=sliding_layers,
        sliding_window=window,
        kv_elements_per_token=size.latent.kv_rank + size.latent.rope_dim if size.latent else None,
        tower_parameters_billion=_tower_parameters(config) / 1e9,
    )


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in ("text_config", "llm_config", "language_config"):
        inner = Reader(config, {}).part(key)
        if inner is not None:
            shared = {k: config[k] for k in ("tie_word_embeddings", "torch_dtype", "dtype") if k in config}
            outer_type = {"model_type": config.get("model_type")}
            return {**outer_type, **shared, **inner}
    return config


def _family(text: Mapping[str, Any]) -> tuple[str, Family]:
    name = text.get("model_type")
    if name is None or name == "":
        raise InvalidInput("model.config.model_type", "missing; add the architecture's name, such as llama")
    if not isinstance(name, str) or name not in FAMILIES:
        raise InvalidInput(
            "model.config.model_type",
            f"{shown(name)} isn't a supported architecture; give the model's sizes inline instead. "
            f"Supported: {', '.join(sorted(FAMILIES))}",
        )
    layer_types = text.get("layer_types") or text.get("layers_block_type") or []
    if not isinstance(layer_types, list):
        raise InvalidInput("model.config.layer_types", f"{shown(layer_types)} isn't a list; mend it")
    foreign = sorted(
        {str(kind) for kind in layer_types if any(word in str(kind) for word in _FOREIGN_LAYERS)}
    )
    if foreign:
        raise InvalidInput(
            "model.config.layer_types",
            f"layers of type {', '.join(foreign)} keep no key-value cache; unsupported",
        )
    return name, FAMILIES[name]


def _dimensions(reader: Reader, family: Family) -> Dimensions:
    layers, hidden, heads = reader.count(*_LAYERS), reader.count(*_HIDDEN), reader.count(*_HEADS)
    latent = _latent(reader)
    head_dim = latent.nope_dim + latent.rope_dim if latent else _head_dim(reader, hidden, heads)
    intermediate = reader.optional(*_INTERMEDIATE) or 4 * hidden
    dense = reader.optional("intermediate_size_mlp") or intermediate
    return Dimensions(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(reader, family, heads),
        head_dim=head_dim,
        intermediate=dense // 2 if family.halve_intermediate else dense,
        vocab=reader.count(*_VOCAB),
        positions=reader.optional(*_CONTEXT),
        tied=reader.flag("tie_word_embeddings", family.tied),
        attention_bias=reader.flag("attention_bias", family.qkv_bias) if family.qkv_bias else None,
        embedding_width=reader.optional("word_embed_proj_dim"),
        latent=latent,
        experts=_experts(reader, family, layers, intermediate),
    )


def _head_dim(reader: Reader, hidden: int, heads: int) -> int:
    given = reader.optional(*_HEAD_DIM)
    if given is not None:
        return given
    if hidden % heads:
        raise InvalidInput(
            "model.config.num_attention_heads",
            f"{heads} heads don't divide the hidden size of {hidden}; correct one of them or give head_dim",
        )
    return hidden // heads


def _kv_heads(reader: Reader, family: Family, heads: int) -> int:
    given = reader.optional(*_KV_HEADS)
    # Falcon's first generation and GPT-BigCode share one KV head, whatever their num_kv_heads says.
    shared = reader.flag("multi_query", family.multi_query and given is None)
    kv_heads = 1 if shared and not reader.flag("new_decoder_architecture", False) else (given or heads)
    if heads % kv_heads:
        raise InvalidInput(
            "model.config.num_key_value_heads",
            f"{kv_heads} KV heads don't divide {heads} attention heads; correct one of the two",
        )
    return kv_heads


def _latent(reader: Reader) -> Latent | None:
    kv_rank = reader.optional("kv_lora_rank")
    if kv_rank is None:
        return None
    return Latent(
        kv_rank=kv_rank,
        query_rank=reader.optional("q_lora_rank"),
        rope_dim=reader.count("qk_rope_head_dim"),
        nope_dim=reader.count("qk_nope_head_dim"),
        value_dim=reader.count("v_head_dim"),
    )


def _experts(reader: Reader, family: Family, layers: int, intermediate: int) -> Experts | None:
    total = reader.optional(*_EXPERTS)
    if total is None or total == 1:
        return None
    active = reader.count(*_EXPERTS_ACTIVE)
    if active > total:
        raise InvalidInput(
            "model.config.num_experts_per_tok", f"{active} exceeds the {total} experts there are; correct one"
        )
    width = reader.optional(*_EXPERT_WIDTH) or intermediate
    shared = _none_or_more(reader, "shared_expert_intermediate_size")
    return Experts(
        total=total,
        active=active,
        width=width,
        shared_width=shared or (_none_or_more(reader, *_SHARED_EXPERTS) or family.shared_experts) * width,
        shared_gate=shared > 0,
        layers=_expert_layers(reader, layers),
    )


def _none_or_more(reader: Reader, *names: str) -> int:
    name, value = reader.raw(*names)
    return 0 if value is None else whole(name, value, least=0)


def _expert_layers(reader: Reader, layers: int) -> int:
    name, value = reader.raw(*_DENSE_FIRST)
    dense_first = 0 if value is None else whole(name, value, least=0)
    if dense_first >= layers:
        raise InvalidInput(
            f"model.config.{name}", f"{dense_first} leaves none of {layers} layers for experts"
        )
    # Every n-th layer holds experts; Qwen counts from one, DeepSeek from zero: equal where n divides.
    name, value = reader.raw(*_EXPERT_STEP)
    step = 1 if value is None or isinstance(value, list) else whole(name, value, least=1)
    listed = reader.raw("mlp_only_layers")[1]
    only_dense = len(listed) if isinstance(listed, list) else 0
    return max(1, (layers - dense_first) // step - only_dense)


def _sliding(reader: Reader, family: Family, layers: int) -> tuple[int, int | None]:
    """How many layers keep a window only, and the window in tokens."""
    window = reader.optional("sliding_window")
    if window is None or not reader.flag("use_sliding_window", family.sliding != "upper"):
        return 0, None
    types = reader.raw("layer_types")[1]
    if isinstance(types, list):
        if len(types) != layers:
            raise InvalidInput(
                "model.config.layer_types", f"{len(types)} entries for {layers} layers; mend one"
            )
        sliding = sum(kind == "sliding_attention" for kind in types)
    elif family.sliding == "pattern":
        period = reader.optional("sliding_window_pattern", "_sliding_window_pattern") or family.sliding_period
        sliding = layers - layers // period
    elif family.sliding == "alternate":
        sliding = -(-layers // 2)
    elif family.sliding == "upper":
        sliding = max(0, layers - (reader.optional("max_window_layers") or 0))
    else:
        sliding = layers if family.sliding == "all" else 0
    return sliding, window if sliding else None


def _context(reader: Reader, family_name: str) -> int | None:
    """Tokens the model takes, as vLLM derives them (stretched by rope scaling, save where built in)."""
    length = reader.optional(*_CONTEXT)
    scaling = reader.part("rope_scaling", "rope_parameters")
    if length is None or scaling is None:
        return length
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind not in ("linear", "dynamic", "yarn") or "gemma3" in family_name:
        return length
    scaled = Reader(scaling, {})
    original = scaled.optional("original_max_position_embeddings") if kind == "yarn" else None
    return int((original or length) * scaled.factor("factor"))


def _dtype(text: Mapping[str, Any]) -> str:
    value = text.get("torch_dtype") or text.get("dtype") or "bfloat16"
    return str(value).removeprefix("torch.")


def _quantization(config: Mapping[str, Any]) -> str | None:
    """The checkpoint's own weight format, under the names of ``quantization.WEIGHT_FORMATS``."""
    given = Reader(config, {}).part("quantization_config")
    if given is None:
        return None
    method = str(given.get("quant_method", "")).lower()
    if method in ("fp8", "awq", "gptq", "mxfp4"):
        return method
    details = f"{given.get('quant_algo', '')} {given.get('format', '')}".lower()
    for word, name in _QUANTIZATION_WORDS.items():
        if word in details:
            return name
    raise InvalidInput(
        "model.config.quantization_config",
        f"weights in {shown(method) if method else 'an unnamed format'} "
        f"({shown(details.strip()) if details.strip() else 'no details'}) aren't supported; "
        "choose a checkpoint in fp8, int8, awq, gptq, mxfp4, nvfp4 or 16 bits",
    )


# Of ModelOpt's quant_algo and compressed-tensors' format; the more specific word comes first.
_QUANTIZATION_WORDS = {
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
    "pack-quantized": "gptq",
    "int-quantized": "int8",
    "float-quantized": "fp8",
    "fp8": "fp8",
}


def _tower_parameters(config: Mapping[str, Any]) -> int:
    """Parameters of a vision transformer beside the text model; 0 where its sizes aren't given."""
    tower = Reader(config, {}).part("vision_config")
    if tower is None:
        return 0
    reader = Reader(tower, {})
    layers = reader.optional("num_hidden_layers", "depth", "num_layers")
    hidden, width = reader.optional("hidden_size", "embed_dim"), reader.optional("intermediate_size")
    if layers is None or hidden is None:
        return 0
    width = width or 4 * hidden
    return layers * (4 * hidden * hidden + 2 * hidden * width)
