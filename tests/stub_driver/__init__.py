"""GPU drivers for machines without a GPU: stubs of libnvidia-ml.so.1 and libcuda.so.1 over a recording.

They are built from the C sources here; the real pynvml and our own ctypes code load them in a process of
its own, by LD_LIBRARY_PATH.
"""
