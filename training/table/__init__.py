"""The paper's table, and what else is compared: rows, their results and docs/results.md."""
