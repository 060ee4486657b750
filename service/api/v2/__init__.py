"""The Open Inference Protocol V2, as Triton's clients and KServe speak it."""
