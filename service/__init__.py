"""The HTTP service: HTTP -> tensor -> batch -> bundle -> answer. Never imports torch."""
