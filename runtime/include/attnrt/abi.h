// The contract between a compiled model library and whoever loads it.
//
// Self-contained C11: the compiler includes this file to lay out what it emits,
// the runtime includes it to read what it loads. Neither copies it.
//
// File layout of a model library:
//
//     [ ELF shared object ][ zeros up to a multiple of 4096 ][ weights ][ attnrt_footer ]
//
// `attnrt_footer` is the last footer_size bytes of the file. The digest covers
// every byte before it and the footer's own fields before `digest`. Damage is found; the digest is no signature,
// whoever can write the file can also recompute it.
//
// The ELF object exports one symbol, `attnrt_library_query`, of type
// attnrt_library_query_fn; all else is reached from what it returns.
//
// Growth (docs/compatibility.md). Structures that begin with `struct_size` get
// new fields at their end alone; whoever reads one looks at its size first and
// takes a field that is not there for 0. All others, which lie in arrays or on
// the device, stay as they are: what is new to them gets an array of its own.
#ifndef ATTNRT_ABI_H
#define ATTNRT_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTNRT_ABI_VERSION 10u // that this header describes
#define ATTNRT_ABI_OLDEST 9u   // the oldest whose libraries a runtime of this version runs
#define ATTNRT_ABI_NEEDED 9u   // the oldest whose runtime runs what a compiler of this version emits
#define ATTNRT_ABI_TILES 10u   // the same for code that calls attnrt_device.map_tiles
#define ATTNRT_FOOTER_MAGIC "ATTNLIB\2"
#define ATTNRT_PAGE_SIZE 4096u
#define ATTNRT_DIGEST_LEAF (1u << 20) // bytes

typedef struct attnrt_footer {
  uint32_t abi_version;    // ATTNRT_ABI_VERSION of the compiler
  uint32_t needed_abi;     // the oldest ABI version whose runtime runs the library
  uint32_t flags;          // 0; a runtime refuses those that it does not know
  uint32_t reserved;       // 0
  uint64_t elf_size;       // bytes of the ELF object, from offset 0
  uint64_t weights_offset; // multiple of ATTNRT_PAGE_SIZE
  uint64_t weights_size;   // bytes
  uint64_t file_size;      // bytes of the whole file, footer included
  uint64_t stack_size;     // bytes of the calling thread's stack that the code takes at most; 0: not known
  // New fields come here; what follows stays at the end of the file.

  // BLAKE3 over the concatenated BLAKE3 hashes of consecutive leaves of
  // ATTNRT_DIGEST_LEAF bytes (the last one shorter) of
  // file[0, file_size - footer_size), followed by the footer's bytes before this field.
  uint8_t digest[32];
  uint64_t footer_size; // sizeof(attnrt_footer) of the compiler
  uint8_t magic[8];     // ATTNRT_FOOTER_MAGIC, without the terminating zero
} attnrt_footer;

// Element types, the values of DLPack's (code << 8 | bits).
typedef enum attnrt_dtype {
  ATTNRT_I8 = 0x0008,
  ATTNRT_I16 = 0x0010,
  ATTNRT_I32 = 0x0020,
  ATTNRT_I64 = 0x0040,
  ATTNRT_U8 = 0x0108,
  ATTNRT_U16 = 0x0110,
  ATTNRT_U32 = 0x0120,
  ATTNRT_U64 = 0x0140,
  ATTNRT_F16 = 0x0210,
  ATTNRT_F32 = 0x0220,
  ATTNRT_F64 = 0x0240,
  ATTNRT_BF16 = 0x0410,
  ATTNRT_BOOL = 0x0608, // one byte, 0 or 1
  ATTNRT_F8_E4M3FN = 0x0a08,
  ATTNRT_F8_E4M3FNUZ = 0x0b08,
  ATTNRT_F8_E5M2 = 0x0c08,
  ATTNRT_F8_E5M2FNUZ = 0x0d08,
  ATTNRT_F8_E8M0 = 0x0e08,
  ATTNRT_F4_E2M1 = 0x1104, // this and what follows: a byte each, not packed
  ATTNRT_I4 = 0x0004,
  ATTNRT_U4 = 0x0104,
  ATTNRT_I2 = 0x0002,
  ATTNRT_U2 = 0x0102
} attnrt_dtype;

// One dimension in a tensor's declared shape.
typedef struct attnrt_dim {
  int64_t size;     // elements, or -1: known when the model runs
  const char *name; // the model's name for it ("batch"), or "" ; two dimensions
                    // of one name have one size in a run
} attnrt_dim;

typedef struct attnrt_tensor_info {
  const char *name;
  const char *dtype_name; // as NumPy spells it
  int32_t dtype;          // attnrt_dtype
  int32_t rank;
  const attnrt_dim *dims; // rank of them
} attnrt_tensor_info;

// A dense row-major tensor as generated code sees it.
typedef struct attnrt_buffer {
  void *data;           // aligned to 64 bytes where the runtime owns it, to the element otherwise
  const int64_t *shape; // rank sizes, in elements
} attnrt_buffer;

struct attnrt_run;

// How kernels on a GPU note an index out of range.
typedef struct attnrt_device_error {
  int64_t claims;  // whoever adds 1 to 0 sets the rest
  int64_t message; // these as in attnrt_run
  int64_t index;
  int64_t size;
} attnrt_device_error;

// A product of f32 matrices on the device, `batch` of them one behind the other
// (factors, and then the rest, too, may be in 16 bits):
// result = activation(scale * left . right + bias + addend), all dense row-major.
typedef struct attnrt_product {
  uint32_t struct_size; // bytes that the entry has set
  int32_t flags;        // ATTNRT_PRODUCT_...
  const void *left;     // rows x sums, or sums x rows where left_transposed
  const void *right;    // sums x columns, or columns x sums where right_transposed
  void *result;         // rows x columns
  const void *bias;     // `columns` elements, added to each row; NULL: none
  const void *addend;   // as the result; NULL: none
  int64_t batch, rows, columns, sums;
  float scale;
  int32_t precision;  // what factors may be rounded to: 0 f32, 1 tf32, 2 bf16, 3 f16
  int32_t activation; // ATTNRT_ACTIVATION_...
  int32_t left_transposed, right_transposed;
  int32_t reserved; // 0
} attnrt_product;
#define ATTNRT_PRODUCT_NARROW 1        // left and right are in the bf16 or f16 that `precision` names
#define ATTNRT_PRODUCT_NARROW_RESULT 4 // so are result, bias and addend; only with NARROW
#define ATTNRT_PRODUCT_ASK 2           // only tell whether it would be made; nothing has to be in the buffers yet
#define ATTNRT_ACTIVATION_NONE 0
#define ATTNRT_ACTIVATION_RELU 1
#define ATTNRT_ACTIVATION_GELU 2 // by tanh

// One task of a parallel region: iterations [begin, end).
typedef void (*attnrt_task_fn)(void *arg, int64_t begin, int64_t end);

// What the runtime offers a running entry of a library with GPU code. Every
// function pointer is set.
typedef struct attnrt_device {
  uint32_t struct_size; // bytes that the runtime has set

  // attnrt_gpu_image.arch of the image in use where that is exact, else 0. Some
  // kernels have a body in such an image alone.
  int32_t exact_arch;

  // Multiprocessors of the device, and bytes of shared memory that a block may have.
  int32_t processors, shared_bytes;

  // An attnrt_device_error on the device, 0 at the start of a run.
  void *error;

  // Puts kernel number `kernel` of attnrt_gpu_code on the run's stream, with
  // grid[3] blocks of block[3] threads and `shared` bytes of dynamic shared
  // memory; with ATTNRT_LAUNCH_COOPERATIVE added to these, all blocks run at
  // once. `parameters` are the bytes of its parameters, laid out as PTX does.
  // A grid of no blocks launches nothing. Nonzero: the entry must return
  // ATTNRT_RUN_STOPPED.
  int32_t (*launch)(struct attnrt_run *run, int32_t kernel, const int64_t *grid, const int64_t *block, int64_t shared,
                    const void *parameters, uint64_t size);

  // Waits for what was launched and copies `bytes` from the device. Nonzero as
  // for launch.
  int32_t (*fetch)(struct attnrt_run *run, void *to, const void *from, uint64_t bytes);

  // Copies `bytes` to the device, behind what was launched; `from` may change
  // afterwards. Nonzero as for launch.
  int32_t (*send)(struct attnrt_run *run, void *to, const void *from, uint64_t bytes);

  // As attnrt_run.workspace, but memory of the host, for ops that run there.
  void *(*host_workspace)(struct attnrt_run *run, uint64_t bytes);

  // For kernels that may have equals in cuBLASLt. 1: `product` is made behind what
  // was launched; 0: it is not, and the entry launches its own kernels; negative:
  // the entry must return ATTNRT_RUN_STOPPED.
  int32_t (*product)(struct attnrt_run *run, const attnrt_product *product);

  // What is launched between the two is the body of a loop, which goes on until
  // it has left 0 in the int64_t at `condition` on the device; it runs at least
  // once. In between there is neither fetch nor send nor another loop. Nonzero
  // as for launch.
  int32_t (*begin_loop)(struct attnrt_run *run);
  int32_t (*end_loop)(struct attnrt_run *run, const void *condition);

  // Since ABI version 10. Writes what a kernel needs to copy tiles of a tensor at once: a CUtensorMap, of 128 bytes,
  // which a launch takes among its parameters. The tensor, on the device, has `rank` dimensions, 2 to 5, of elements of
  // 16 bits; `strides` are in elements, the last one 1, all others and its address multiples of 16 bytes. A tile has 1
  // to 256 elements along each dimension, along the last one 64, whose pieces of 16 bytes are exchanged as wgmma wants
  // them (CU_TENSOR_MAP_SWIZZLE_128B); zeros beyond the tensor. Nonzero as for launch.
  int32_t (*map_tiles)(struct attnrt_run *run, void *map, const void *tensor, int32_t rank, const int64_t *sizes,
                       const int64_t *strides, const int64_t *tile);
} attnrt_device;

// What the runtime offers a running entry. Every function pointer is set.
// `run` is passed back as the first argument. All but `parallel_for`'s tasks
// run on the thread that called the entry.
typedef struct attnrt_run {
  uint32_t struct_size;   // bytes that the runtime has set
  int32_t num_threads;    // threads that serve parallel_for, the caller's among them
  const uint8_t *weights; // page-aligned, weights_size bytes

  // Set to nonzero by generated code when an index is out of range:
  // 1 + position in attnrt_entry.messages, in whose text {0} and {1} stand for
  // error_index and error_size. Tasks race for it: whoever swaps it from 0 has
  // the other two. All are read after the entry returns.
  int32_t error_message;

  // Nonzero: the library's optional_cpu_features are there, and the process may
  // use tiles on all its threads. Code that does leaves them released.
  int32_t has_tiles;

  int64_t error_index; // as the model has it: negative ones not yet wrapped
  int64_t error_size;  // of the dimension

  // Scratch of at least `bytes`, aligned to 64, valid until the run ends. Each
  // call of a run gives another piece; code asks once for all that it can size
  // at the start, and again only where the run itself computes a size. NULL:
  // out of memory, and the entry must return ATTNRT_RUN_STOPPED.
  void *(*workspace)(struct attnrt_run *run, uint64_t bytes);

  // The buffer of output number `index`, dense row-major, aligned to 64.
  // Called once an output. NULL: the entry must return ATTNRT_RUN_STOPPED.
  void *(*output)(struct attnrt_run *run, int32_t index, int32_t rank, const int64_t *shape);

  // Runs fn over [0, n) in contiguous pieces, at most num_threads of them at a
  // time: one a thread, or shorter ones when the run can be cancelled or has a
  // deadline. Returns when all are done. Not from within fn.
  // Nonzero: cancelled, past the deadline or error_message set; the entry must
  // return ATTNRT_RUN_STOPPED; some pieces may not have run. With n = 0 it only
  // looks whether the run is to end (`fn` may be NULL): loops call it so.
  int32_t (*parallel_for)(struct attnrt_run *run, attnrt_task_fn fn, void *arg, int64_t n);

  // A requirement of the model does not hold; `message` is a position in
  // attnrt_entry.messages, in whose text {0}, {1}... stand for `values`; with
  // ATTNRT_FAIL_UNSUPPORTED it is the code that falls short, not the caller.
  // The entry must return ATTNRT_RUN_STOPPED after it.
  void (*fail)(struct attnrt_run *run, int32_t message, int32_t num_values, const int64_t *values);

  // Called by entries that were compiled to be profiled, CPU or GPU: region
  // number `region` of the manifest's "regions" is done, which did `flops`
  // floating-point operations and touched at most `bytes` bytes (0: unknown).
  void (*mark)(struct attnrt_run *run, int32_t region, int64_t flops, int64_t bytes);

  // The memory of state number `state` of the entry, whose `dim` is not
  // negative: dense row-major, aligned to 64, of the sizes in `shape`, but for
  // dimension `dim`, which has `*capacity` >= shape[dim]. In front lies the
  // state's input. `shape` is that of the state's output, for which `output` is
  // not called. Called once a state. NULL: the entry must return
  // ATTNRT_RUN_STOPPED.
  void *(*cache)(struct attnrt_run *run, int32_t state, int32_t rank, const int64_t *shape, int64_t *capacity);

  // What entries of a library with GPU code have beside the above; their inputs,
  // outputs, workspace and `weights` are addresses of the device. NULL: the run
  // is on the CPU.
  const attnrt_device *device;

  // Row `row` of a search took `token` in step `step`, counted from 0. Nonzero: the
  // entry must return ATTNRT_RUN_STOPPED. Runtimes that do not know it set no such
  // field (struct_size), and nobody is told.
  int32_t (*token)(struct attnrt_run *run, int64_t row, int64_t step, int64_t token);
} attnrt_run;

#define ATTNRT_FAIL_UNSUPPORTED 0x40000000
#define ATTNRT_LAUNCH_COOPERATIVE 0x40000000

#define ATTNRT_RUN_DONE 0
#define ATTNRT_RUN_STOPPED 1 // the runtime knows why

// Inputs are in the order of attnrt_entry.inputs; the caller has checked rank,
// dtype, static sizes and equal names before.
typedef int32_t (*attnrt_entry_fn)(attnrt_run *run, const attnrt_buffer *inputs);

// An input that is, in the next run, what an output was in this one.
typedef struct attnrt_state_info {
  int32_t input, output; // positions in the entry's lists
  // The dimension in which a run appends to the input's memory; -1: the output
  // has memory of its own; -2: it is the input's memory, of which the run
  // changes a part.
  int32_t dim;
} attnrt_state_info;

typedef struct attnrt_entry {
  uint32_t struct_size; // bytes that the compiler has set
  int32_t num_inputs;
  int32_t num_outputs;
  int32_t num_messages;
  int32_t num_states;
  uint32_t reserved; // 0
  const char *name;
  attnrt_entry_fn fn;
  const attnrt_tensor_info *inputs;
  const attnrt_tensor_info *outputs;
  const char *const *messages;
  const attnrt_state_info *states; // each input and output in one at most
  // For each input 1 where a caller may leave it out, which gives the code a tensor of no elements: all its dimensions
  // are open and without a name. NULL: none may be. A runtime that does not know the field wants such a tensor given.
  const uint8_t *optional_inputs;
} attnrt_entry;

typedef struct attnrt_weight_info {
  const char *name; // the model's name for the tensor
  int32_t dtype;    // attnrt_dtype
  int32_t rank;
  const int64_t *shape;
  uint64_t offset; // bytes from the start of the weights
  uint64_t size;   // bytes
  // How the model's tensor is stored: "plain", "plain-bf16" or "plain-f16" (f32,
  // rounded to the nearest; what is finite stays finite), or "panels:W" / "panels-t:W"
  // (see attn.pack_panels: column panels of width W, of the tensor or of its
  // transpose), or "columns:F:P", "columns-bf16:F:P", "columns-f16:F:P" (beside others, in rows of P elements of
  // which the tensor's begin at F), or "derived" (cannot be replaced alone). "panels-bf16:W",
  // "panels-int8:W" and "scales:W" are panels in fewer bits.
  const char *layout;
} attnrt_weight_info;

// One form of a library's GPU code.
typedef struct attnrt_gpu_image {
  // Text for the driver's compiler (ends with a zero byte), or machine code.
  uint32_t kind;
  uint32_t arch;  // compute capability times ten: 80, 90
  uint32_t exact; // 1: for this compute capability only (sm_90a), 0: and newer ones (machine code: of its generation)
  uint32_t reserved;
  const void *data;
  uint64_t size; // bytes, a terminating zero included
} attnrt_gpu_image;
#define ATTNRT_IMAGE_PTX 0u
#define ATTNRT_IMAGE_CUBIN 1u

// The GPU code of a library, for NVIDIA's driver API.
typedef struct attnrt_gpu_code {
  uint32_t struct_size; // bytes that the compiler has set
  uint32_t num_images;
  uint32_t num_kernels;
  uint32_t reserved;              // 0
  const attnrt_gpu_image *images; // the best one that loads is used; earlier ones are better
  const char *const *kernels;     // names in the images
} attnrt_gpu_code;

typedef struct attnrt_library {
  uint32_t struct_size; // bytes that the compiler has set
  uint32_t abi_version; // as in the footer
  uint32_t num_entries;
  uint32_t num_weights;
  const attnrt_entry *const *entries;
  const attnrt_weight_info *weights;
  // CPU features the code needs, comma-separated, in the spelling of
  // /proc/cpuinfo ("avx2,fma", "avx512f,avx512bw,..."); "" for any.
  const char *required_cpu_features;
  const char *target;           // LLVM triple
  const char *compiler_version; // "attnc 0.1.0 (LLVM 22.1.8)"
  const char *manifest_json;    // all of this and the fusion verdicts, for people and tools
  const attnrt_gpu_code *gpu;   // NULL: the library runs on the CPU
  // CPU features that some of the code uses where all of them are there, spelt
  // as above: "amx_tile,amx_bf16,amx_int8" (see attnrt_run.has_tiles); "": none.
  const char *optional_cpu_features;
} attnrt_library;

// The library as a runtime of `abi_version` may read it; NULL: it needs a newer one.
typedef const attnrt_library *(*attnrt_library_query_fn)(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif // ATTNRT_ABI_H
