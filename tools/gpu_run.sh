#!/bin/sh
# Measure a GPU's training speed and train on it the networks that ship, side by side.
# Usage: sh tools/gpu_run.sh PYTHON [PART ...], parts as below; all of them by default.
# MINUTES ends each training; a second run goes on with it. RUNS is where everything is kept.
# OPTIONS are added to every training, for example "--set epochs=40".
# On SIGTERM trainings save, and all ends.
set -u
python=$1
shift
runs=${RUNS:-runs}
minutes=${MINUTES:-25}
export PYTHONUNBUFFERED=1
mkdir -p "$runs"
status=0
pids=
trap 'kill $pids 2>/dev/null; wait; exit 143' TERM INT

train() { # PRESET SEED, in the background
    name=$1-$2
    "$python" -m training train "$1" --seed "$2" --final --resume-or-begin --device cuda \
        --run-dir "$runs/$name" --max-minutes "$minutes" ${OPTIONS:-} >>"$runs/$name.log" 2>&1 &
    pids="$pids $!"
}

run() { # COMMAND, which the trap reaches
    "$@" &
    pids=$!
    wait "$pids" || status=1
}

finish() { # wait for all that was begun, and show how each ended
    for pid in $pids; do wait "$pid" || status=1; done
    tail -n 1 "$runs"/*.log
}

measure() { # PRESET
    run "$python" -m benchmarks.training --device cuda --preset "$1" --steps 100 \
        >>"$runs/speed.log" 2>&1
    tail -n 9 "$runs/speed.log"
}

for part in ${*:-tests speed mnist fashion-mnist multimnist}; do
    pids=
    case $part in
    tests)
        # nothing above the folder is read, so that neither fastapi nor onnxruntime need be there
        run "$python" -m pytest --confcutdir tests/training -m cuda tests/training/test_on_cuda.py \
            >"$runs/tests.log" 2>&1
        tail -n 3 "$runs/tests.log"
        ;;
    speed)
        for preset in mnist multimnist mnist-compact multimnist-compact; do measure $preset; done
        ;;
    mnist)
        for seed in 1 2 3; do train mnist $seed; done
        train mnist-attention 1
        train mnist-baseline 1
        finish
        ;;
    fashion-mnist)
        train fashion-mnist 1
        train fashion-mnist-attention 1
        finish
        ;;
    multimnist)
        train multimnist 1
        train multimnist-attention 1
        finish
        ;;
    *)
        echo "$part is none of tests speed mnist fashion-mnist multimnist" >&2
        exit 2
        ;;
    esac
done
exit $status
