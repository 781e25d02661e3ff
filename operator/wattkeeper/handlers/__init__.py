"""The operator at work; the only room that imports kopf.

`watch` turns kopf's events into keys on the `workqueue`. `reconciler` brings about what one LLMDeployment
needs, `allocator` alone decides where they go, one after the other. `pools` keeps the GPUNodePools, `sweep`
compares everything anew once in a while, `app` puts it all together for the leader.
"""
