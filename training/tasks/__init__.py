"""What networks are trained to do: name digits or pairs of them, and draw what they named."""
