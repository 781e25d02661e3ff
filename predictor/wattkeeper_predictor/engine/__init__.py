"""The physics of one engine step, in numpy: how long it takes, how many sequences share it, what it draws."""
