from __future__ import annotations

import pytest

from model.runtime import DeviceError
from model.runtime.cuda import CudaDevice, CudaOptions
from service.settings import Settings
from tests.serving import serve


@pytest.mark.cuda
def test_readiness_names_cuda(settings: Settings, digits: list[bytes]) -> None:
    """The probe says what is in use, and the first request is answered by it."""
    try:
        CudaDevice(CudaOptions())
    except DeviceError as error:
        pytest.skip(f"no CUDA here: {error}")
    with serve(settings, device="cuda") as client:
        assert "CUDAExecutionProvider" == client.get("/readyz").json()["provider"]
        assert 200 == client.post("/classify", files={"file": digits[3]}).status_code
