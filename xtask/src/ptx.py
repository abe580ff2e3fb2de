import ctypes, sys

library, source, output, architecture = sys.argv[1:5]
nvrtc = ctypes.CDLL(library)
program = ctypes.c_void_p()
text = open(source, "rb").read()
# The name of the source is the same wherever the checkout is.
assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.encode(), 0, None, None) == 0
# Products and sums are rounded one by one, as in the models.
options = [b"--gpu-architecture=" + architecture.encode(), b"--fmad=false", b"--std=c++14"]
options = (ctypes.c_char_p * len(options))(*options)
result = nvrtc.nvrtcCompileProgram(program, len(options), options)


def read(size, get):
    count = ctypes.c_size_t()
    assert size(program, ctypes.byref(count)) == 0
    text = ctypes.create_string_buffer(count.value)
    assert get(program, text) == 0
    return text.value


log = read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode()
if log.strip():
    print(log, file=sys.stderr)
if result != 0:
    sys.exit(1)
with open(output, "wb") as file:
    file.write(read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX))
