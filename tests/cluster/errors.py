"""The errors of the local cluster. Each message says what happened and what to do about it.

ClusterError
├── BuildError     a program could not be built or fetched
└── StartError     a component did not become ready, or ended
"""


class ClusterError(Exception):
    """The local cluster cannot do what was asked."""


class BuildError(ClusterError):
    """A program of the control plane could not be built."""


class StartError(ClusterError):
    """A component of the control plane did not become ready, or ended on its own."""
