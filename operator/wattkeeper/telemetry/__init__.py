"""What is measured in the cluster: GPUs and model servers, through Prometheus or scraped directly.

`exposition` and `prometheus` give series, `attribution` and `engines` make readings of them. Each value
carries when it was measured; what isn't there is unknown, never zero.
"""
