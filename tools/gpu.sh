#!/bin/sh
# Measures a CUDA device: gpu.sh PYTHON [FOLDER]. Each table or log goes to FOLDER (runs/gpu).
#   tests.txt     what only a CUDA device can show
#   serve.txt     encoded images a second by the runtime's settings
#   step.txt      training steps against a plain PyTorch loop
#   *-*.txt       training by batch size and precision of the votes: images a second, losses
set -eu
python=$1 folder=${2:-runs/gpu}
mkdir -p "$folder"
"$python" -m pytest -m cuda tests/model/runtime tests/training/test_on_cuda.py \
    >"$folder/tests.txt" 2>&1 || echo "tests failed: $folder/tests.txt"
"$python" -m benchmarks.cuda >"$folder/serve.txt"
"$python" -m benchmarks.training --device cuda >"$folder/step.txt"
for preset in mnist-attention multimnist-attention; do
    for batch in 64 128 256; do
        for votes in float32 bfloat16; do
            name=$preset-$batch-$votes
            "$python" -m training train "$preset" --run-dir "$(mktemp -d)" --device cuda \
                --max-minutes 0.5 --set "batch_size=$batch" --set "votes=$votes" \
                >"$folder/$name.txt" || echo "$name failed"
        done
    done
done
grep 'images/s' "$folder"/*.txt
