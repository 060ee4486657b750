"""What a run runs on: a device, its memory and CUDA graphs, and processes side by side."""
