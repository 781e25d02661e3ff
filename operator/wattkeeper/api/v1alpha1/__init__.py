"""wattkeeper.dev/v1alpha1: one served version, grown additively."""

from wattkeeper.api.v1alpha1.gpunodepool import GPUNodePoolResource, GPUNodePoolSpec, GPUNodePoolStatus
from wattkeeper.api.v1alpha1.llmdeployment import LLMDeploymentResource, LLMDeploymentSpec
from wattkeeper.api.v1alpha1.llmdeployment_status import LLMDeploymentStatus

__all__ = [
    "GPUNodePoolResource",
    "GPUNodePoolSpec",
    "GPUNodePoolStatus",
    "LLMDeploymentResource",
    "LLMDeploymentSpec",
    "LLMDeploymentStatus",
]
