# The service with the bundles that ship. Targets: gpu (the default) and cpu.
ARG BASE=docker.io/library/python:3.13-slim

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build

FROM build AS cpu-packages
COPY docker/requirements-cpu.txt ./
RUN python3 -m pip install --only-binary :all: --require-hashes --target /packages \
        --requirement requirements-cpu.txt

# CUDA's own libraries are in a layer of their own: gigabytes that change less often than the rest.
FROM build AS gpu-packages
COPY docker/requirements-gpu.txt ./
RUN python3 -m pip install --only-binary :all: --require-hashes --target /packages \
        --requirement requirements-gpu.txt \
    && mkdir /cuda && mv /packages/nvidia /cuda/nvidia

FROM build AS source
COPY model/*.py /app/model/
COPY model/bundle /app/model/bundle
COPY model/views /app/model/views
COPY model/runtime /app/model/runtime
COPY model/preprocess /app/model/preprocess
COPY service /app/service
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /app

# The site that the page links to; what builds it stays out of the image.
FROM build AS documentation
COPY docker/requirements-docs.txt ./
RUN python3 -m pip install --only-binary :all: --require-hashes --target /mkdocs \
        --requirement requirements-docs.txt
COPY CHANGELOG.md CITATION.cff CONTRIBUTING.md LICENSE README.md mkdocs.yml ./
COPY benchmarks/README.md ./benchmarks/
COPY examples/look-inside.ipynb examples/tritonclient_grpc.py examples/tritonclient_http.py ./examples/
COPY tools/docs_site.py ./tools/
COPY docs ./docs
COPY client/capsnet ./client/capsnet
COPY model/__init__.py model/loaded.py model/outputs.py ./model/
COPY model/views ./model/views
COPY model/bundles ./model/bundles
RUN NO_MKDOCS_2_WARNING=1 PYTHONPATH=/mkdocs python3 -m mkdocs build --quiet --site-dir /site

FROM ${BASE} AS service
LABEL org.opencontainers.image.title="CapsNet service" \
    org.opencontainers.image.description="Look inside a capsule network over HTTP." \
    org.opencontainers.image.licenses="Apache-2.0"
ENV PYTHONPATH=/app:/packages PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp/matplotlib \
    CAPSNET_HOST=0.0.0.0
WORKDIR /app
EXPOSE 8000
USER 10001:10001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python3", "-m", "service.healthcheck"]
ENTRYPOINT ["python3", "-m", "service"]

FROM service AS cpu
ENV CAPSNET_DEVICE=cpu
COPY --from=cpu-packages /packages /packages
COPY model/bundles /app/model/bundles
COPY --from=documentation /site /app/site
COPY --from=source /app /app

# Starts with a GPU or not at all: no silent fall-back to the CPU.
FROM service AS gpu
ENV CAPSNET_DEVICE=cuda NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=gpu-packages /cuda /packages
COPY --from=gpu-packages /packages /packages
COPY model/bundles /app/model/bundles
COPY --from=documentation /site /app/site
COPY --from=source /app /app
