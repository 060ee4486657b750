from __future__ import annotations

import pytest
import torch

from training.hardware.device import DeviceError, choose_device


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Numbers of the GPUs that were made current, of which there seem to be some."""
    numbers: list[int | None] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: numbers.append(device.index))
    monkeypatch.setattr(torch, "zeros", lambda *_size, **_options: None)
    for setting in ("benchmark", "allow_tf32"):  # choosing a GPU changes them
        monkeypatch.setattr(torch.backends.cudnn, setting, getattr(torch.backends.cudnn, setting))
    return numbers


@pytest.mark.parametrize("name", ["auto", "cuda"])
@pytest.mark.parametrize(("rank", "expected"), [(None, 0), ("1", 1)])
def test_each_process_takes_a_gpu_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
    current: list[int | None],
    name: str,
    rank: str | None,
    expected: int,
) -> None:
    """A name without a number means the one of the process's rank, the first where it is alone."""
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert torch.device("cuda", expected) == choose_device(name)
    assert [expected] == current


def test_a_gpu_with_a_number_is_taken(current: list[int | None]) -> None:
    """Whatever the process's rank."""
    assert torch.device("cuda", 3) == choose_device("cuda:3")
    assert [3] == current


@pytest.mark.parametrize("name", ["abacus", "cuda:99"])
def test_a_device_that_does_not_work(name: str) -> None:
    """The error names it."""
    with pytest.raises(DeviceError, match=name):
        choose_device(name)
