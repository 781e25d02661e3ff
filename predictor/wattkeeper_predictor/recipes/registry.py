"""Which class serves which recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wattkeeper_predictor.artifact import Artifact
from wattkeeper_predictor.errors import ArtifactError
from wattkeeper_predictor.prediction import ServedRecipe

from .wattgpu.serve import WattGpuRecipe
from .wattkeeper.serve import WattkeeperRecipe

SERVED: Mapping[str, Callable[[Artifact], ServedRecipe]] = {
    WattGpuRecipe.name: WattGpuRecipe,
    WattkeeperRecipe.name: WattkeeperRecipe,
}


def serve(artifact: Artifact) -> ServedRecipe:
    """The recipe an artifact was trained for; raises ``ArtifactError`` for one that isn't known."""
    name = artifact.manifest.get("recipe")
    if name not in SERVED:
        raise ArtifactError(f"the artifact is of recipe {name!r}; known are {', '.join(sorted(SERVED))}")
    return SERVED[str(name)](artifact)
