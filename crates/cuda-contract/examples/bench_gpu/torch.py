# The cases of the benchmark in PyTorch. Prints lines "case<TAB>microseconds" and "note<TAB>text". One argument: full or smoke.
import sys

smoke = sys.argv[1] == "smoke"
try:
    import torch
except ImportError as error:
    print(f"note\tPyTorch is not measured: {error}")
    sys.exit(0)
if not torch.cuda.is_available():
    print("note\tPyTorch is not measured: it sees no GPU")
    sys.exit(0)
print(f"note\tPyTorch {torch.__version__}, CUDA {torch.version.cuda}")
device = torch.device("cuda")
samples = 2 if smoke else 11


def time(case, rounds, body, streams=()):
    rounds = min(rounds, 2) if smoke else rounds
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    taken = []
    for _ in range(samples + 1):
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
    taken = sorted(taken[1:])
    print(f"{case}\t{taken[len(taken) // 2]}", flush=True)


def memory(size):
    def body():
        block = torch.empty(size, dtype=torch.uint8, device=device)
        del block

    return body


with torch.no_grad():
    for size, name in [(4 << 10, "4 KiB"), (1 << 20, "1 MiB"), (64 << 20, "64 MiB")]:
        time(f"create and drop, {name}", 1000, memory(size))

    x, y = (torch.zeros(1024, device=device) for _ in range(2))
    out = torch.empty_like(x)
    time("a launch of three operands", 1000, lambda: torch.add(x, y, out=out))

    n = 1 << 10 if smoke else 16 << 20
    host = torch.zeros(n, dtype=torch.int32).pin_memory()
    target, counted = (torch.zeros(n, dtype=torch.int32, device=device) for _ in range(2))
    copying, computing = torch.cuda.Stream(), torch.cuda.Stream()

    def overlap():
        with torch.cuda.stream(copying):
            target.copy_(host, non_blocking=True)
        with torch.cuda.stream(computing):
            for _ in range(10):
                counted.add_(1)

    time("a copy in beside computing", 3, overlap, (copying, computing))

    kinds = [("f16", torch.float16), ("bf16", torch.bfloat16), ("f32", torch.float32)]
    for name, kind in kinds:
        for n in [16] if smoke else [512, 1024, 2048, 4096, 8192]:
            a, b = (torch.ones(n, n, dtype=kind, device=device) for _ in range(2))
            c = torch.empty_like(a)
            time(f"product, {name}, {n}", max(2, min(8, 4096 // n)), lambda: torch.matmul(a, b, out=c))

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
    time("a replay of the digits step", 100, graph.replay)
