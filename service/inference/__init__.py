"""Jobs, batches and the bundles that compute them; knows nothing of HTTP."""
