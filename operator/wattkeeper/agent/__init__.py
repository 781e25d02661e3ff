"""What runs on a GPU node and speaks to its driver: the only room that imports pynvml.

`nvml` reads boards, `cuda_driver` holds a context and memory, `dose_response` measures the parking tax with
both, `recording` is the file that it writes.
"""
