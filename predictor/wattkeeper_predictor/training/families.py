"""Which models are of one family: trained alike, built alike, so that one tells much of another.

A family is a line of models by its maker and major version, with its mixtures apart from its dense members
where both exist (``qwen3`` and ``qwen3_moe``), since they differ in what a step does. ``line_of`` joins them.
"""

from __future__ import annotations

import re

_LINES = (
    ("llama-4", "llama4"), ("llama-3", "llama3"), ("llama-2", "llama2"),
    ("qwen3", "qwen3"), ("qwen2", "qwen2"), ("qwen1.5", "qwen1.5"),
    ("gemma-3", "gemma3"), ("gemma-2", "gemma2"), ("gpt-oss", "gpt-oss"),
    ("nemotron", "nemotron"), ("deepseek", "deepseek"), ("phi-3", "phi3"), ("phi-4", "phi4"), ("phi", "phi"),
    ("mixtral", "mixtral"), ("mistral", "mistral"), ("granite", "granite"), ("olmo", "olmo"),
)  # fmt: skip


def line_of(model_id: str) -> str:
    """The line of models that the id names, or the id's first word."""
    name = model_id.rsplit("/", maxsplit=1)[-1].lower()
    for part, line in _LINES:
        if part in name:
            return line
    words = re.split(r"[-_.]", name)
    return words[0]


def family_of(model_id: str, model_type: str, *, mixture: bool = False) -> str:
    """The line, with mixtures of experts apart."""
    return f"{line_of(model_id)}_moe" if mixture or "moe" in model_type else line_of(model_id)
