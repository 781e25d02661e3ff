"""Telling GPUs apart by the names that drivers, clouds and node labels give them.

Whole tokens are compared, never prefixes: L4 is no L40, A10 neither A100 nor A10G. A GPU has *core*
tokens, all of which a name must hold (``h100``), and *detail* tokens, which it may hold (``80gb``,
``hbm3``, ``pcie``); a name with any other token is another GPU. Names of SXM parts often carry no
form factor while those of PCIe and NVL cards always do (NVML: "NVIDIA H200" beside "NVIDIA H200
NVL"), so a name without one means the SXM part where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Makers' and marketing words; they never tell two GPUs apart.
_NOISE = frozenset({"nvidia", "tesla", "geforce", "quadro", "amd", "intel", "instinct", "generation", "gpu"})
_FORM_FACTORS = frozenset({"sxm", "sxm2", "sxm4", "sxm5", "sxm6", "pcie", "nvl", "nvlink", "oam"})
_MEMORY_TOLERANCE = 0.12

# GPU feature discovery appends these (k8s-device-plugin internal/lm/resource.go); its sanitiser turns
# the profile 1g.10gb+me into 1g.10gbme.
_SUFFIX = re.compile(
    r"(?:-MIG-(?P<mig>INVALID|\d+(?:c\.\d+)?g\.\d+gb(?:\+?[a-z.]+)*))?(?P<shared>-SHARED)?$", re.IGNORECASE
)
_MIG_SIZES = re.compile(r"(?P<slices>\d+)g\.(?P<memory>\d+)gb", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A slice of a GPU: compute slices out of seven, and nominal memory."""

    name: str
    compute_slices: int
    memory_gb: int

    @property
    def compute_fraction(self) -> float:
        """The share of the GPU's compute, 0 to 1."""
        return self.compute_slices / 7


@dataclass(frozen=True, slots=True)
class Suffix:
    """What GPU feature discovery said after the product's name."""

    bare_name: str
    mig: MigProfile | None
    mig_invalid: bool
    shared: bool


@dataclass(frozen=True, slots=True)
class LabelMatch:
    """How a name was read.

    ``gpu_name`` is the catalogue's name of the whole GPU, None if unknown or ambiguous;
    ``candidates`` are the names it may stand for when ambiguous. ``incomplete`` says which figures
    are missing for a GPU that is known by name only.
    """

    gpu_name: str | None
    candidates: tuple[str, ...] = ()
    mig: MigProfile | None = None
    mig_invalid: bool = False
    shared: bool = False
    incomplete: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuTokens:
    """The tokens of one catalogued GPU, and what decides between GPUs that share them."""

    name: str
    core: frozenset[str]
    details: frozenset[str]
    is_sxm: bool
    memory_mib: float | None


def split_suffix(label: str) -> Suffix:
    """Take the MIG and sharing suffixes off a product label."""
    found = _SUFFIX.search(label)
    if found is None or not (found["mig"] or found["shared"]):
        return Suffix(label, None, False, False)
    mig_text = found["mig"]
    invalid = mig_text is not None and mig_text.upper() == "INVALID"
    sizes = _MIG_SIZES.search(mig_text) if mig_text and not invalid else None
    profile = MigProfile(mig_text, int(sizes["slices"]), int(sizes["memory"])) if sizes else None
    return Suffix(label[: found.start()], profile, invalid, found["shared"] is not None)


def tokens(name: str) -> frozenset[str]:
    """Lower-case words of a name, sizes joined to their unit ('80 GB' and '80G' give '80gb')."""
    joined = re.sub(r"(\d+)[\s_-]*gi?b?\b", r"\1gb", name.replace("_", "-").lower())
    return frozenset(re.findall(r"[a-z0-9.]+", joined))


def normalised(name: str) -> str:
    """One spelling for exact look-ups: lower case, every run of other characters one dash."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def select(name: str, known: Iterable[GpuTokens], memory_mib: float | None) -> tuple[str, ...]:
    """Names of the GPUs that ``name`` may stand for, given what the node says about its memory."""
    words = tokens(name) - _NOISE
    fitting = [gpu for gpu in known if gpu.core <= words and words - gpu.core <= gpu.details]
    if not words & _FORM_FACTORS and any(gpu.is_sxm for gpu in fitting):
        fitting = [gpu for gpu in fitting if gpu.is_sxm]
    if memory_mib is not None:
        fitting = [gpu for gpu in fitting if _memory_agrees(gpu.memory_mib, memory_mib)]
    most = max((len(gpu.core) for gpu in fitting), default=0)
    return tuple(sorted(gpu.name for gpu in fitting if len(gpu.core) == most))


def tokens_of(names: Iterable[str], memory_nominal_gb: float | None) -> tuple[frozenset[str], frozenset[str]]:
    """Core and detail tokens of a GPU: the core is what its first name says besides form and memory."""
    all_names = list(names)
    core = frozenset(word for word in tokens(all_names[0]) - _NOISE if not _is_detail(word))
    details = frozenset[str]().union(*(tokens(name) for name in all_names)) - core
    if memory_nominal_gb is not None:
        details |= {f"{memory_nominal_gb:g}gb"}
    if details & {"sxm2", "sxm4", "sxm5", "sxm6", "sxm"}:
        details |= {"sxm", "nvlink"}
    return core, details


def _is_detail(word: str) -> bool:
    return word in _FORM_FACTORS or re.fullmatch(r"\d+gb|hbm\d\w?|gddr\d\w?", word) is not None


def _memory_agrees(known_mib: float | None, said_mib: float) -> bool:
    return known_mib is None or abs(said_mib / known_mib - 1) <= _MEMORY_TOLERANCE
