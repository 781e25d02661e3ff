"""The recipe ``wattkeeper``: a simulator of the engine's step, trees on what it leaves, intervals on both.

Predictions are ``simulated × e^correction``. The correction comes from measured runs of the very pair where
there are any, else from trees that see the model (and, where it was measured, which GPU it is), but no
quantity in which a prediction must be monotone other than the batch, in which they are constrained.
"""
