"""What is measured in the cluster: GPUs and model servers, through Prometheus or scraped directly.

    source       what both sources give (TelemetrySource, Telemetry);  errors  why there may be none
    prometheus   a look by a constant number of queries;               promql  one query, bounded
    scrape       a look at the pages themselves;                       exposition  their text format
    attribution  rows of dcgm-exporter → a GpuReading a GPU;           labels, names  in all their variants
    servers      rows of model servers → a ServerReading a server;     engines  each engine's metrics
    cluster      nodes and pods as the cluster knows them;             series  rows, and what was wrong

Each value carries when it was measured; what isn't there is unknown, never zero.
"""
