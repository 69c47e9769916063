"""What a card refuses, the stand-in for libcuda refuses, too: check_limits.py, with build/test/gpu/lib on LD_LIBRARY_PATH."""
import ctypes

INVALID_VALUE, INVALID_PTX, OUT_OF_RESOURCES, TOO_LARGE = 1, 218, 701, 720
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)


def module(body="", directives="", parameters="", version="8.0", outside=""):
    """Its handle, or the code of an error."""
    text = f".version {version}\n.target sm_80\n.address_size 64\n{outside}\n.visible .entry k({parameters})\n{directives}\n{{\n{body}\nret;\n}}\n"
    handle = ctypes.c_void_p()
    code = cuda.cuModuleLoadDataEx(ctypes.byref(handle), text.encode(), 0, None, None)
    return code or handle


def launch(loaded, grid=(1, 1, 1), block=(1, 1, 1), shared=0, allowed=0):
    function = ctypes.c_void_p()
    cuda.cuModuleGetFunction(ctypes.byref(function), loaded, b"k")
    if allowed and (code := cuda.cuFuncSetAttribute(function, 8, allowed)):
        return code
    return cuda.cuLaunchKernel(function, *grid, *block, shared, None, None, None) or cuda.cuCtxSynchronize()


def main():
    plain, bounded = module(), module(directives=".maxntid 1024, 1, 1")
    array = module(body="st.shared.b32 [s], 1;", outside=".shared .align 16 .b8 s[1024];\n.extern .shared .align 16 .b8 d[];")
    cases = [
        ("a block of 1024 threads with a bound", launch(bounded, block=(1024, 1, 1)), 0),
        ("a block of 257 threads without one", launch(plain, block=(257, 1, 1)), OUT_OF_RESOURCES),
        ("a block of 256", launch(plain, block=(256, 1, 1)), 0),
        ("1025 threads", launch(bounded, block=(1025, 1, 1)), INVALID_VALUE),
        ("65 threads along z", launch(plain, block=(1, 1, 65)), INVALID_VALUE),
        ("65536 blocks along y", launch(plain, grid=(1, 65536, 1)), INVALID_VALUE),
        ("65536 blocks along z", launch(plain, grid=(1, 1, 65536)), INVALID_VALUE),
        ("2^31 blocks along x", launch(plain, grid=(1 << 31, 1, 1)), INVALID_VALUE),
        ("no blocks", launch(plain, grid=(0, 1, 1)), INVALID_VALUE),
        ("48 KiB of shared memory", launch(plain, shared=48 << 10), 0),
        ("48 KiB beside an array", launch(array, shared=48 << 10), INVALID_VALUE),
        ("47 KiB beside an array", launch(array, shared=47 << 10), 0),
        ("64 KiB without asking", launch(plain, shared=64 << 10), INVALID_VALUE),
        ("163 KiB", launch(plain, shared=163 << 10, allowed=163 << 10), 0),
        ("more than there is", launch(plain, shared=1, allowed=164 << 10), INVALID_VALUE),
        ("the same with an array", launch(array, shared=1, allowed=163 << 10), INVALID_VALUE),
        ("4353 bytes of parameters", module(parameters=".param .align 1 .b8 a[4353]"), INVALID_PTX),
        ("49 KiB of arrays", module(outside=".shared .align 16 .b8 s[50176];"), INVALID_PTX),
    ]
    problems = [f"{name}: {code}, expected {want}" for name, code, want in cases if code != want]
    print("\n".join([*problems, f"{len(cases)} cases, {len(problems)} problems"]))


main()
