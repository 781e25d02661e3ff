"""The only room that talks to the Kubernetes API.

`manifests` builds objects without a client; `client` sends requests and says in words what went wrong;
`reflector` keeps trimmed copies of what the cluster holds; `snapshot` turns those into the core's Fleet;
`executor` is the only writer; `leadership` decides whether this process may write at all.
"""
