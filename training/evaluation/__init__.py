"""How often a network is wrong, and how: answers, scores and pictures of what went wrong."""
