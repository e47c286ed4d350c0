#!/usr/bin/env bash
# Measures wan-tiny on one GPU within SECONDS: protocol 2, the model's page, the paper's ideas, short generations, other
# constants of the general schedule, and five default calibrations. Everything runs at once, because one generation
# leaves most of a GPU idle. A second call continues what the first did not finish.
#
#     bash tests/gpu/measure_wan_tiny.sh SECONDS FOLDER [TRANSFORMER.safetensors]
#
# Needs 16 CPU cores, and no av. TRANSFORMER repeats the published rows with other weights, too.
set -u
cd "$(dirname "$0")/../.."
seconds=$1 out=$2 other=${3:-}
begin=$(date +%s)
mkdir -p "$out/draws" "$out/short" "$out/captions"
export PYTHONPATH=$PWD:${PYTHONPATH:-} OMP_NUM_THREADS=1 NVIDIA_TF32_OVERRIDE=0 PYTHONUNBUFFERED=1 TQDM_MININTERVAL=15
galaxydit="python3 -m galaxydit.cli" page=galaxydit.eval.model_page
# The settings of the first table, which were tuned on a CPU.
tuned=eval/results/protocol-2/first/results.json

# With CUDA's multi-process service the kernels of several processes overlap.
export CUDA_MPS_PIPE_DIRECTORY=/tmp/galaxydit-mps CUDA_MPS_LOG_DIRECTORY=/tmp/galaxydit-mps-log
mkdir -p $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY
service=no
if command -v nvidia-cuda-mps-control > /dev/null && timeout 20 nvidia-cuda-mps-control -d \
    && timeout 40 python3 -c "import torch; torch.ones(3).cuda().sum().item()"; then
    service=yes
else
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
fi
echo "multi-process service: $service"

left() { echo $((begin + seconds - $(date +%s))); }

run() { # NAME COMMAND...: as long as time is left, with a log of its own
    local name=$1
    shift
    [ "$(left)" -gt 5 ] || return
    timeout -s INT -k 15 "$(left)" "$@" > "$out/$name.log" 2>&1
    echo "$name: exit code $?, $(($(date +%s) - begin)) s" | tee -a "$out/ends.log"
}

captions() { # COUNT: the file with the first captions of protocol 2
    head -n "$1" eval/results/protocol/captions-2.txt > "$out/captions/$1.txt"
    echo "$out/captions/$1.txt"
}

compare() { # NAME COUNT OPTIONS...
    local name=$1 count=$2
    shift 2
    run "$name-$count" $galaxydit compare --prompts "$(captions "$count")" --seeds 0 --out "$out/$name" "$@"
    cp "$out/$name/results.json" "$out/$name-$count.json"
}

first_table() {
    for count in 8 16 32 64; do
        compare first "$count" --dtype float32 --speedups 1.25,1.5,2,3 --tune-prompts 4 --settings-of $tuned --processes 8
    done
}

others() {
    for count in 8 16; do
        compare others "$count" --dtype float32 --speedups 1.5,2,3 --tune-prompts 4 --methods all,published --processes 6
    done
}

bfloat16() {
    for count in 8 16; do
        compare bfloat16 "$count" --dtype bfloat16 --speedups 1.5,2,3 --tune-prompts 4 --settings-of $tuned --processes 2
    done
}

model_page() {
    run evaluate python3 -m $page.evaluate --out "$out/evaluate" --processes 3
    run plans python3 -m $page.plans_per_video --figures "$out/evaluate" --profile galaxydit/profiles/wan-tiny.json \
        --out "$out/plans.json" --processes 3
}

draws() {
    local profiles=""
    for draw in 1 2 3 4 5; do
        run "draw-$draw" $galaxydit calibrate --model wan-tiny --seed "${draw}000" --out "$out/draws/draw-$draw.json" \
            --prompts "eval/results/calibration-draws/draw-$draw.txt" &
        profiles="$profiles --profile $out/draws/draw-$draw.json"
    done
    wait
    compare draws 16 --dtype float32 --speedups 1.5,2,3 --tune-prompts 4 --settings-of $tuned --processes 3 $profiles \
        --methods "galaxydit schedule,galaxydit without a profile"
}

run rows python3 -m $page.published_rows --out "$out/rows" --processes 3 &
if [ -n "$other" ]; then
    run rows-other python3 -m $page.published_rows --out "$out/rows-other" --transformer "$other" --processes 3 &
fi
run ideas python3 -m $page.paper_ideas --out "$out/ideas.json" --processes 5 &
run short python3 -m galaxydit.eval.short_generations --out "$out/short" --steps 20 24 25 26 22 30 18 16 &
run grid python3 -m galaxydit.eval.general_schedule_grid --out "$out/grid.json" --processes 2 &
model_page &
draws &
first_table &
others &
bfloat16 &
wait
[ $service = no ] || echo quit | nvidia-cuda-mps-control
