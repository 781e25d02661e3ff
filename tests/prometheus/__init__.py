"""A real Prometheus on this machine, and samples written to it at any time one likes.

    server        starts, pauses and stops Prometheus on a free loopback port
    remote_write  writes samples at given timestamps, as fast as they come
    fixtures      the same for pytest; import them where they are used

Debian's `prometheus` package is enough. Any other program: ``WATTKEEPER_TEST_PROMETHEUS=PATH``.
"""
