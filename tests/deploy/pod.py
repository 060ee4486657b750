"""What a pod's manifest says, as numbers and as options of docker or podman."""

from __future__ import annotations

import re
from typing import Any

from service.settings import Settings

MIB = 2**20
_UNITS = {"": 1, "Mi": MIB, "Gi": 2**30}
_SUPERVISOR_S = 10
"""Before the supervisor kills what has not ended."""


def parse_quantity(text: str) -> float:
    """A number of Kubernetes, such as 3Gi."""
    found = re.fullmatch(r"(\d+)(\w*)", text)
    assert found
    return int(found[1]) * _UNITS[found[2]]


def environment(container: dict[str, Any]) -> dict[str, str]:
    """The variables that a container is given."""
    return {one["name"]: one["value"] for one in container["env"]}


def pre_stop(container: dict[str, Any]) -> list[str]:
    """The command before SIGTERM."""
    command: list[str] = container["lifecycle"]["preStop"]["exec"]["command"]
    return command


def shutdown_s(container: dict[str, Any]) -> float:
    """The longest that a container takes to end, from the signal on."""
    program, seconds = pre_stop(container)
    assert "sleep" == program
    settings = Settings()
    return int(seconds) + settings.drain_grace_s + settings.drain_timeout_s + _SUPERVISOR_S


def stop_wait_s(pod: dict[str, Any]) -> int:
    """How long Kubernetes waits before it kills."""
    seconds: int = pod["terminationGracePeriodSeconds"]
    return seconds


def options(pod: dict[str, Any]) -> list[str]:
    """The options of `docker run` or `podman run` for the rights and limits of a pod.

    A key of the pod's security that has no option here fails.
    """
    (container,) = pod["containers"]
    user, limits = pod["securityContext"], container["resources"]["limits"]
    rights = container["securityContext"]
    assert {"runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "seccompProfile"} == user.keys()
    assert {"type": "RuntimeDefault"} == user["seccompProfile"]  # that of the engine
    assert {"readOnlyRootFilesystem", "allowPrivilegeEscalation", "capabilities"} == rights.keys()
    assert rights["readOnlyRootFilesystem"]
    assert not rights["allowPrivilegeEscalation"]
    assert {"cpu", "memory"} == limits.keys()
    memory = f"{parse_quantity(limits['memory']):.0f}"
    return [
        f"--user={user['runAsUser']}:{user['runAsGroup']}",
        f"--group-add={user['fsGroup']}",
        "--read-only",
        "--security-opt=no-new-privileges",
        *(f"--cap-drop={name}" for name in rights["capabilities"]["drop"]),
        f"--cpus={limits['cpu']}",
        f"--memory={memory}",
        f"--memory-swap={memory}",
        *_mounts(pod, container),
    ]


def _mounts(pod: dict[str, Any], container: dict[str, Any]) -> list[str]:
    """Empty folders are in memory, which leaves the container less than on a node's disk."""
    folders = {one["name"]: one["emptyDir"]["sizeLimit"] for one in pod["volumes"]}
    return [
        f"--tmpfs={one['mountPath']}:size={parse_quantity(folders[one['name']]):.0f}"
        for one in container["volumeMounts"]
    ]
