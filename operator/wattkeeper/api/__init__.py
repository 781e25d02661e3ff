"""What users write and read: the v1alpha1 models, their CRDs, and the way to the core's values and back.

`v1alpha1` holds the models, `convert` turns a resource into the core's values (or every error at once),
`status` turns the core's answers into status fields, `generate` writes the CRDs.
"""
