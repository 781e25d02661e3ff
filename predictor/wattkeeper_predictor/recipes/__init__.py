"""Recipes: each predicts from the same inputs, in its own way, from its own artifacts."""
