"""The objects made for one LLMDeployment, built by pure functions: no client, no clock, no cluster.

`pod` renders the pod template (engine, probes, draining, weights) and merges the user's over it;
`deployment` and `service` wrap it; `record` is what a placement decided and later renderings repeat.
"""
