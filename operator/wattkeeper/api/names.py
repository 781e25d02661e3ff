"""Names that users, the operator and the chart share: group, kinds, labels, annotations."""

from __future__ import annotations

GROUP = "wattkeeper.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

LLM_DEPLOYMENT = "LLMDeployment"
LLM_DEPLOYMENTS = "llmdeployments"
GPU_NODE_POOL = "GPUNodePool"
GPU_NODE_POOLS = "gpunodepools"

FIELD_MANAGER = "wattkeeper-operator"

#: On the pods and the Service's selector, never in the child Deployment's selector: taking it off a pod
#: takes the pod out of service without ending it.
LABEL_SERVING = "wattkeeper.dev/serving"
#: On everything made for an LLMDeployment, with its name.
LABEL_LLM_DEPLOYMENT = "wattkeeper.dev/llmdeployment"
#: On the pods: the GPUNodePool they were placed on.
LABEL_POOL = "wattkeeper.dev/pool"
#: On GPUNodePools that the operator found by node labels; a pool without it was written by a user.
LABEL_DISCOVERED = "wattkeeper.dev/discovered"
