# The cases of the benchmark in PyTorch. Its argument says which, as JSON. Prints lines "case<TAB>microseconds of each sample", and
# "note<TAB>text".
import json
import sys

asked = json.loads(sys.argv[1])
try:
    import torch
except ImportError as error:
    print(f"note\tPyTorch is not measured: {error}")
    sys.exit(0)
if not torch.cuda.is_available():
    print("note\tPyTorch is not measured: it sees no GPU")
    sys.exit(0)
print(f"note\tPyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuBLAS at full precision; it runs after the others, in a process of its own")
device = torch.device("cuda")
# The same work as Carve's: no TF32, and no parts of 16-bit sums that are rounded to 16 bits.
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def time(case, body, streams=()):
    rounds = asked["rounds"][case]
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    taken = []
    for _ in range(asked["samples"] + 1):
        torch.cuda.synchronize()
        start.record()
        for stream in streams:
            stream.wait_event(start)
        for _ in range(rounds):
            body()
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        end.record()
        end.synchronize()
        taken.append(1e3 * start.elapsed_time(end) / rounds)
    # The first warms up.
    print(case, " ".join(map(str, taken[1:])), sep="\t", flush=True)


def memory(size):
    def body():
        block = torch.empty(size, dtype=torch.uint8, device=device)
        del block

    return body


# A stream as the others have it: not the legacy one, which waits for all.
with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
    for size, name in [(4 << 10, "4 KiB"), (1 << 20, "1 MiB"), (64 << 20, "64 MiB")]:
        time(f"create and drop, {name}", memory(size))

    x, y = (torch.zeros(1024, device=device) for _ in range(2))
    out = torch.empty_like(x)
    time("a launch of three operands", lambda: torch.add(x, y, out=out))

    n = asked["elements"]
    host = torch.zeros(n, dtype=torch.int32).pin_memory()
    target, counted = (torch.zeros(n, dtype=torch.int32, device=device) for _ in range(2))
    copying, computing = torch.cuda.Stream(), torch.cuda.Stream()

    def overlap():
        with torch.cuda.stream(copying):
            target.copy_(host, non_blocking=True)
        with torch.cuda.stream(computing):
            for _ in range(10):
                counted.add_(1)

    time("a copy in beside computing", overlap, (copying, computing))

    kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
    for case in asked["rounds"]:
        if case.startswith("product, "):
            _, name, n = case.split(", ")
            n = int(n)
            a, b = (torch.ones(n, n, dtype=kinds[name], device=device) for _ in range(2))
            c = torch.empty_like(a)
            time(case, lambda: torch.matmul(a, b, out=c))

    widths, batch = [64, 48, 32, 10], 64
    weights = [torch.full((m, n), 0.125, device=device) for m, n in zip(widths, widths[1:])]
    biases = [torch.full((n,), 0.5, device=device) for n in widths[1:]]
    images = torch.full((batch, widths[0]), 0.25, device=device)

    def step():
        value = images
        for i, (w, b) in enumerate(zip(weights, biases)):
            value = torch.addmm(b, value, w)
            if i < 2:
                value = torch.relu(value)
        return value, value.argmax(1)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    time("a replay of the digits step", graph.replay)
