# Training, export and evaluation. PyPI's torch brings CUDA 13 (driver 580 or later) and runs on a
# CPU as well; the onnxruntime that checks an export is the CPU's.
ARG BASE=docker.io/library/python:3.13-slim

FROM ${BASE} AS packages
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY docker/requirements-training.txt ./
RUN python3 -m pip install --only-binary :all: --require-hashes --target /packages \
    --requirement requirements-training.txt

FROM ${BASE} AS training
LABEL org.opencontainers.image.title="CapsNet training" \
    org.opencontainers.image.description="Train, export and evaluate capsule networks." \
    org.opencontainers.image.licenses="Apache-2.0"
ENV PYTHONPATH=/app:/packages PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    CAPSNET_DATA_DIR=/capsnet/data \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=packages /packages /packages
COPY model/*.py /app/model/
COPY model/bundle /app/model/bundle
COPY model/capsnet /app/model/capsnet
COPY model/views /app/model/views
COPY model/preprocess /app/model/preprocess
COPY model/runtime /app/model/runtime
COPY training /app/training
RUN mkdir -p /capsnet/data /capsnet/runs /capsnet/model/bundles && chown -R 10001:10001 /capsnet
WORKDIR /capsnet
USER 10001:10001
VOLUME ["/capsnet/data", "/capsnet/runs", "/capsnet/model/bundles"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["python3", "-m", "training"]
CMD ["--help"]
