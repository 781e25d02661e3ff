"""The activator: holds requests for a parked model while it wakes, and forwards them.

`app.Activator` is the whole of it. It is told what to do by routing tables (`swap`), and tells the leader of
demand and of how it stands through `ports.Leader`. `pipeline` assembles what a request passes through.
"""
