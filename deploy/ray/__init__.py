"""Ray Serve runs replicas of the service; Ray Data scores many pictures."""

from __future__ import annotations

import os

# Ray reports to its maker unless this is set before it starts.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Lines of the log that look alike are no repetitions.
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
