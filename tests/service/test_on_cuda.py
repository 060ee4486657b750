from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from model.runtime import DeviceError
from model.runtime.cuda import CudaDevice, CudaOptions
from service.app import create_app
from service.inference.bundles import load_runtimes
from service.inference.engine import open_engine
from service.settings import Settings


@pytest.mark.cuda
def test_readiness_names_cuda(settings: Settings, digits: list[bytes]) -> None:
    """The probe says what is in use, and the first request is answered by it."""
    try:
        CudaDevice(CudaOptions())
    except DeviceError as error:
        pytest.skip(f"no CUDA here: {error}")
    on_cuda = settings.model_copy(update={"device": "cuda"})
    with TestClient(create_app(on_cuda, open_engine(load_runtimes(on_cuda)))) as client:
        assert "CUDAExecutionProvider" == client.get("/readyz").json()["provider"]
        assert 200 == client.post("/classify", files={"file": digits[3]}).status_code
