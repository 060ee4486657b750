"""From a run to a published bundle: its graphs, its studies, its pictures and its card."""
