"""The routes that are no views: models, samples, overlays, probes and the `/v2` protocol."""
