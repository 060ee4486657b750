#!/bin/sh
# Prints which extra to install, `gpu` or `cpu`; says why on standard error.
# onnxruntime-gpu 1.28 and later are built for CUDA 13, which needs driver 580.
needed=580
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
major=${driver%%.*}
case $major in
'' | *[!0-9]*)
    echo "cpu: no NVIDIA driver answers" >&2
    echo cpu
    ;;
*)
    if [ "$major" -ge "$needed" ]; then
        echo "gpu: NVIDIA driver $driver" >&2
        echo gpu
    else
        echo "cpu: NVIDIA driver $driver is older than $needed" >&2
        echo cpu
    fi
    ;;
esac
