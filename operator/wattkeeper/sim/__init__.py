"""The simulator: the core's parking decisions under a virtual clock, from arrivals to energy.

Nothing here decides: timeouts come from `core`, the same functions that the operator calls. Two engines:
`renewal` for models that have their GPUs to themselves, which handles millions of requests in arrays, and
`events` for models that share GPUs or whose loads take time.
"""
