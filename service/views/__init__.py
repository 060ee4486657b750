"""What routes draw by matplotlib, from what the networks say; nothing of HTTP."""
