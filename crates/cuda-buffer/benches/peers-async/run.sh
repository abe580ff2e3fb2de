#!/bin/sh
# Measures `cuda-async`. Its bindings are generated when it is built, by libclang from the headers of CUDA: both are fetched
# into target/ once, which takes python3 with pip and a package index. Building takes a C compiler.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fetched="$here/../../../../target/cuda-headers"
if [ ! -e "$fetched/complete" ]; then
    python3 -m pip install --quiet --no-deps --disable-pip-version-check --retries 1 --timeout 15 --upgrade --target "$fetched" \
        nvidia-cuda-runtime==13.3.29 nvidia-cuda-crt==13.3.33 nvidia-curand==10.4.3.29 libclang==18.1.1
    touch "$fetched/complete"
fi
export CUDA_TOOLKIT_PATH="$fetched/nvidia/cu13" LIBCLANG_PATH="$fetched/clang/native"
export BINDGEN_EXTRA_CLANG_ARGS="-isystem $(cc -print-file-name=include)"
exec cargo run --release --manifest-path "$here/Cargo.toml" -- "$@"
