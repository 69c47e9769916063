// Every option of attnc, attn-run, attn-bench and attn-reduce. One table, so that a flag
// means the same everywhere; an option's visibility says which tools have it.
// Each value option can be written --flag=VALUE or --flag VALUE.
include "llvm/Option/OptParser.td"

def AttncVis : OptionVisibility;
def RunVis : OptionVisibility;
def BenchVis : OptionVisibility;
def ReduceVis : OptionVisibility;

defvar everyTool = [AttncVis, RunVis, BenchVis];
defvar runners = [RunVis, BenchVis];
defvar all = [AttncVis, RunVis, BenchVis, ReduceVis];

// The groups, in the order --help prints them (Help.cpp).
def g_run : OptionGroup<"Running">;
def g_bench : OptionGroup<"Measuring">;
def g_reduce : OptionGroup<"Reducing">;
def g_output : OptionGroup<"Output">;
def g_compile : OptionGroup<"Compiling">;
def g_search : OptionGroup<"Generating">;
def g_limits : OptionGroup<"Limits of a compile">;
def g_inside : OptionGroup<"Looking inside a compile">;
def g_general : OptionGroup<"General">;

// May be given again; --help says so. Others take one value, and CommandLine refuses a second that differs.
def Repeatable : OptionFlag;

multiclass Eq<string name, string metavar, string help, OptionGroup group, list<OptionVisibility> vis,
              list<OptionFlag> flags = []> {
  def NAME : Joined<["--"], name # "=">, HelpText<help>, MetaVarName<metavar>, Group<group>, Visibility<vis>, Flags<flags>;
  def NAME # _separate : Separate<["--"], name>, Alias<!cast<Option>(NAME)>, Group<group>, Visibility<vis>;
}
class SimpleFlag<string name, string help, OptionGroup group, list<OptionVisibility> vis>
    : Flag<["--"], name>, HelpText<help>, Group<group>, Visibility<vis>;

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

defm input : Eq<"input", "NAME=VALUE",
    "an input: @FILE.npy, or a shape and values: 2x3xf32=1,2,3,4,5,6 (a single value fills the tensor: 2x3xf32=0; where a "
    "size is 0 nothing follows: 0x4xi64=), or values from a seed: 2x3xf32=seed:7; inputs not given are made from --seed", g_run, runners, [Repeatable]>;
defm output : Eq<"output", "NAME=@FILE", "write an output to FILE.npy; NAME=- prints all of it", g_run, runners, [Repeatable]>;
defm expected_output : Eq<"expected-output", "NAME=@FILE",
    "compare an output with FILE.npy; exit 5 if they differ", g_run, [RunVis], [Repeatable]>;
defm rtol : Eq<"rtol", "X", "relative tolerance of --expected-output (default 1e-3)", g_run, [RunVis]>;
defm atol : Eq<"atol", "X", "absolute tolerance of --expected-output (default 1e-4)", g_run, [RunVis]>;
defm seed : Eq<"seed", "N",
    "seed of the inputs not given (default 0): floats uniform in [-1, 1), integers and booleans 0 or 1; "
    "a dimension the model leaves open is 8, or what --dim says", g_run, runners>;
defm entry : Eq<"entry", "NAME", "the entry to run (default: the first)", g_run, runners>;
defm threads : Eq<"threads", "N", "threads to run with (default: all processors)", g_run, runners>;
defm device : Eq<"device", "N",
    "for --target=cuda: the GPU to run on, by the number the CUDA driver gives it (default 0)", g_run, runners>;
def own_products : SimpleFlag<"own-products",
    "for --target=cuda: products are made by the library's own kernels, also where this machine has cuBLASLt", g_run, runners>;
defm compare : Eq<"compare", "f32",
    "compile the model a second time with weights in f32, and print how far each output is from its", g_run, [RunVis]>;
defm attention_maps : Eq<"attention-maps", "DIR",
    "write the attention weights that the library exposes into DIR, as .npy files and as attention.html, a page that "
    "draws them; a model is compiled with --expose-attention for it", g_run, [RunVis]>;
defm attention_labels : Eq<"attention-labels", "FILE",
    "what --attention-maps calls queries and keys: a label on each line, for each axis that has as many; one file for "
    "queries, one for keys", g_run, [RunVis], [Repeatable]>;
defm attention_image : Eq<"attention-image", "FILE",
    "the PNG or JPEG picture whose parts the keys are: the page of --attention-maps shows what each head looks at", g_run, [RunVis]>;
def stream : SimpleFlag<"stream",
    "print each token of a search as soon as it is chosen, as 'row step token' (no beams)", g_run, [RunVis]>;
def info : SimpleFlag<"info", "print what the library holds instead of running it", g_run, [RunVis]>;

//===----------------------------------------------------------------------===//
// Measuring
//===----------------------------------------------------------------------===//

defm runs : Eq<"runs", "N", "time N runs; with --min-time, more until that has passed", g_bench, [BenchVis]>;
defm min_time : Eq<"min-time", "SECONDS",
    "time runs until SECONDS have passed, at least 3 (default 1)", g_bench, [BenchVis]>;

def breakdown : SimpleFlag<"breakdown",
    "print the time of each fused region with its nodes, and its share of the peak that a loop of this machine reaches; "
    "a library needs --mark-regions for it (a model is compiled so)",
    g_bench, [BenchVis]>;
def profile : Joined<["--"], "profile=">, MetaVarName<"FILE">, Group<g_bench>, Visibility<[AttncVis, BenchVis]>,
    HelpText<"write a timeline of the compile, its stages and passes, for Perfetto or Chrome">,
    HelpTextForVariants<[BenchVis], "write a timeline of the first runs and the fastest for Perfetto or Chrome: a row for "
                                    "each thread (a library as for --breakdown) or, for a GPU, for its stream">;
def profile_separate : Separate<["--"], "profile">, Alias<profile>, Group<g_bench>, Visibility<[AttncVis, BenchVis]>;
defm roofline : Eq<"roofline", "FILE",
    "write a page with the regions of the fastest run below the peak and the bandwidth of this machine, and what to do "
    "next; a library as for --breakdown", g_bench, [BenchVis]>;
def machine : SimpleFlag<"machine",
    "print the peak and the bandwidth that --roofline would draw, and no more: without a model", g_bench, [BenchVis]>;
defm rotate : Eq<"rotate", "N",
    "hold N copies of the inputs, which runs take in turn: a run then finds none of them in a cache (default 1)",
    g_bench, [BenchVis]>;

//===----------------------------------------------------------------------===//
// Reducing
//===----------------------------------------------------------------------===//

defm test : Eq<"test", "PROGRAM",
    "what says whether a candidate still fails: called with its path, PROGRAM exits with 0 if it does", g_reduce, [ReduceVis]>;
defm test_arg : Eq<"test-arg", "ARG", "an argument of PROGRAM, before the path", g_reduce, [ReduceVis], [Repeatable]>;
defm test_timeout : Eq<"test-timeout", "SECONDS",
    "a candidate for which PROGRAM has not ended by then does not count as failing (default 300)", g_reduce, [ReduceVis]>;

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

// Not joined: -output=... would be -o with a strange name.
def o : Separate<["-"], "o">, MetaVarName<"FILE">, Group<g_output>, Visibility<all>,
    HelpText<"write to FILE (- : standard output, for text; default: the model's name with the suffix of what is written; IR goes to standard output)">,
    HelpTextForVariants<[RunVis, BenchVis], "keep the library compiled from an ONNX model in FILE">;
defm emit : Eq<"emit", "KIND",
    "attn (IR as imported), linalg (after graph passes), llvm (LLVM IR), ptx (with --target=cuda: PTX of the newest "
    "architecture), obj (object file), lib (model library, default); IR text names large weights and does not hold them: "
    "attnc takes attn as MODEL.mlir where there are none",
    g_output, [AttncVis]>;
defm emit_header : Eq<"emit-header", "FILE",
    "write a C header with one typed function an entry and the model's names for sizes; its names begin as the library's "
    "(-o) does", g_output, [AttncVis]>;
defm fusion_report : Eq<"fusion-report", "FILE",
    "write a verdict for each softmax, fused or not, and why: JSON, a page (FILE.html), or a table to standard output (-); docs/reports.md explains them", g_output, everyTool, [Repeatable]>;
defm annotate : Eq<"annotate", "FILE",
    "write the ONNX model once more, each node with what became of it: FILE.onnx for Netron, FILE.json for Model Explorer",
    g_output, [AttncVis]>;
defm require_fused : Eq<"require-fused", "N",
    "fail unless at least N attentions were fused (exit 2; no library is written, reports are)", g_output, everyTool>;

def verify_fusion : SimpleFlag<"verify-fusion",
    "compile the unfused form too, run both on adversarial inputs, and print where they differ and the pass that "
    "made it so (exit 5, nothing is written)", g_output, [AttncVis]>;

defm calibrate : Eq<"calibrate", "FILE.npz",
    "compile the model a second time in f32, run both on the inputs in FILE.npz (numpy.savez, arrays by the names of inputs), "
    "and print what --weights and --precision cost each output", g_output, [AttncVis]>;

//===----------------------------------------------------------------------===//
// Compiling
//===----------------------------------------------------------------------===//

def O : Joined<["-"], "O">, MetaVarName<"LEVEL">, Group<g_compile>, Visibility<everyTool>,
    HelpText<"optimise: -O0 (no graph optimisation) to -O3 (default)">;
defm mcpu : Eq<"mcpu", "CPU",
    "the processor to compile for: native (default; its features, not its name), x86-64-v3, x86-64-v4, or any LLVM name",
    g_compile, everyTool>;
defm weights : Eq<"weights", "TYPE",
    "store the constant operands of matrix products as f32 (default), bf16, int8 (a scale per column), int8:N "
    "(a scale per column and N rows), int4:N (codes of 4 bits, a scale per column and N rows, N 16, 32, 64, 128 or 256), or "
    "for --target=cuda fp8 (float8e4m3fn, a scale per column); activations and sums stay f32", g_compile, everyTool>;
defm precision : Eq<"precision", "TYPE",
    "f32 (default), or bf16: GEMMs with constant operands and attention make products of bf16 values where the processor "
    "has such (avx512_bf16); where it has none the constant operands alone are rounded; sums, scores and norms stay "
    "f32; or int8: where the processor multiplies bytes (AVX2 or later; any GPU does) the rows of products by weights are rounded to "
    "8 bits, each with its scale, and so are the weights, with a scale per column; those in blocks of 2, 4 or 8 bits (the file's, or by "
    "--weights=int4:32) stay so; for --target=cuda tf32, bf16 or f16: all GEMMs and attention, by matrix units", g_compile, everyTool>;
defm fp32_math : Eq<"fp32-math", "HOW",
    "how products of f32 are made, where an operand is constant: f32 (default), or by the bf16 products of AMX or "
    "avx512_bf16: bf16x3 (of three, relative error 2^-16 of each product) or bf16x6 (of six, about as exact as f32)",
    g_compile, everyTool>;
defm target : Eq<"target", "TARGET", "what to compile for: cpu (default) or cuda (docs/gpu.md)", g_compile, everyTool>;
defm gpu_arch : Eq<"gpu-arch", "LIST",
    "architectures of --target=cuda: sm_80 (default), sm_86, sm_87, sm_89, sm_90, sm_90a, separated by commas", g_compile, everyTool>;
def allow_host_ops : SimpleFlag<"allow-host-ops",
    "with --target=cuda: what has no code for a GPU runs on the CPU, its operands copied there and back; each such node is named",
    g_compile, everyTool>;
defm dim : Eq<"dim", "NAME:N",
    "fix the dimension that the model calls NAME, or bound it as NAME:1..512; a run checks the bounds", g_compile, everyTool, [Repeatable]>;
defm masks : Eq<"masks", "KIND",
    "exact: masks by finite constants (-1e4, the least float) stay arithmetic; proved (default): keys that they hide "
    "are skipped, which assumes that no score comes near the constant", g_compile, everyTool>;
def expose_attention : Joined<["--"], "expose-attention=">, MetaVarName<"NODE|all">, Group<g_compile>, Visibility<everyTool>,
    HelpText<"give the attention weights of a node as one more output, or of each fused attention (all, or no value); "
             "other outputs keep their bits">, Flags<[Repeatable]>;
def expose_attention_of_all : Flag<["--"], "expose-attention">, Alias<expose_attention>, AliasArgs<["all"]>,
    Group<g_compile>, Visibility<everyTool>;
defm expose_attention_as : Eq<"expose-attention-as", "WHAT,...",
    "what --expose-attention gives: weights (default; [batch, head, query, key]), head-mean, argmax (the key of the "
    "largest weight), entropy (-sum w log w of a row), top-k:K (the K largest and their keys)", g_compile, everyTool>;
defm max_loop_iterations : Eq<"max-loop-iterations", "N",
    "a loop of the model that runs more often ends the run with an error (default 16777216)", g_compile, everyTool>;
def own_state : SimpleFlag<"own-state",
    "the library can keep what runs hand on (an attnrt_state): inputs that are outputs of the run before, by their "
    "names or --state; caches are then appended to in place. Run with such a state, filled with the inputs given",
    g_compile, everyTool>;
defm cache : Eq<"cache", "TYPE",
    "how caches of keys and values are stored that --own-state or --generate keeps: model (default, as the model computes "
    "them), or int8: each row of a head in bytes, with a scale; with --target=cuda, where --generate alone keeps caches, also "
    "fp8: in e4m3. Attentions read the bytes; with --own-state, --calibrate and attn-run --compare=f32 print what it costs", g_compile, everyTool>;
defm state : Eq<"state", "IN:OUT,...",
    "all inputs of the step, or of an entry with --own-state, that are outputs of the one before: these pairs and no "
    "others (default: those that names tell, past_x and present_x, x and x_out, ...)", g_compile, everyTool, [Repeatable]>;
defm generate : Eq<"generate", "HOW",
    "add an entry 'generate' that searches around a decoder step: greedy, beam:WIDTH or sample; or that decodes "
    "scores of frames: ctc-greedy or ctc-beam:WIDTH", g_search, [AttncVis]>;
defm step : Eq<"step", "ENTRY", "the entry that is one step (default: step, or the only one)", g_search, [AttncVis]>;
defm init : Eq<"init", "ENTRY,...",
    "entries that run before: their outputs are the states and constants of the step of the same names, and the first "
    "scores if they return them; of several, each takes what those before it return", g_search, [AttncVis]>;
defm map : Eq<"map", "ENTRY.OUTPUT:ENTRY.INPUT",
    "an output of an entry of --init that is an input of a later one, or of the step, under another name", g_search,
    [AttncVis], [Repeatable]>;
defm bos : Eq<"bos", "ID", "the first token, or 'input': one a row, an input of 'generate'", g_search, [AttncVis]>;
defm eos : Eq<"eos", "ID,...", "tokens that end a hypothesis", g_search, [AttncVis]>;
defm max_length : Eq<"max-length", "N",
    "the most tokens of a result: a number, dim:NAME, dim:NAME+N, or 'input'", g_search, [AttncVis]>;
defm min_length : Eq<"min-length", "N", "no result ends before it has N tokens (default 0)", g_search, [AttncVis]>;
defm length_penalty : Eq<"length-penalty", "[gnmt:]A",
    "divide scores of complete hypotheses of n tokens by n^A, or by ((5+n)/6)^A (default 0)", g_search, [AttncVis]>;
defm n_best : Eq<"n-best", "N", "return the best N hypotheses of a beam (default 1)", g_search, [AttncVis]>;
defm ended : Eq<"ended", "RULE",
    "refill: a beam stays as wide as it is when hypotheses end (default); shrink: they leave it", g_search, [AttncVis]>;
def early_stop : SimpleFlag<"early-stop", "a beam is done as soon as it has as many complete hypotheses as it is wide",
    g_search, [AttncVis]>;
defm temperature : Eq<"temperature", "T", "of sample, or 'input' (default 1)", g_search, [AttncVis]>;
defm top_k : Eq<"top-k", "K", "sample from the K most probable tokens, or 'input' (default 0: all)", g_search, [AttncVis]>;
defm top_p : Eq<"top-p", "P",
    "sample from the tokens that together have probability P, or 'input' (default 1)", g_search, [AttncVis]>;
defm sample_seed : Eq<"sample-seed", "N", "seed of sample, or 'input' (default 0)", g_search, [AttncVis]>;
defm tokens : Eq<"tokens", "INPUT", "the input of the step that takes the last token", g_search, [AttncVis]>;
defm logits : Eq<"logits", "OUTPUT", "the output of the step that holds scores of the next one", g_search, [AttncVis]>;
defm coverage_penalty : Eq<"coverage-penalty", "B",
    "add B times the sum of log(min(c, 1)) over the positions of the source to scores of complete hypotheses, c the "
    "position's sum of --alignment", g_search, [AttncVis]>;
defm alignment : Eq<"alignment", "OUTPUT", "return this output of the step for each token", g_search, [AttncVis]>;
def alignment_argmax : SimpleFlag<"alignment-argmax",
    "return the position of the greatest weight of --alignment for each token", g_search, [AttncVis]>;
defm blank : Eq<"blank", "LABEL", "the blank of ctc-... (default: pad_token_id of a folder, or 0)", g_search, [AttncVis]>;
defm frames : Eq<"frames", "NAME",
    "an output or input of the entry that says how many frames of each item count (ctc-...; default: all)", g_search,
    [AttncVis]>;
def time_major : SimpleFlag<"time-major",
    "scores are [time, batch, labels] (ctc-...; default: [batch, time, labels])", g_search, [AttncVis]>;
defm shape : Eq<"shape", "INPUT:2x128", "fix the shape of an input; ? leaves a dimension open, and so does *, which also takes its name away, for a model that "
    "calls different sizes the same", g_compile, everyTool,
    [Repeatable]>;

defm absent : Eq<"absent", "INPUT", "an optional input that has no value and is not asked for",
    g_compile, everyTool, [Repeatable]>;
defm keep_output : Eq<"keep-output", "OUTPUT",
    "an output of the model to keep: others, and nodes that only they need, are left out (with --own-state, name those "
    "of its states, too)", g_compile,
    everyTool, [Repeatable]>;
defm cache_dir : Eq<"cache-dir", "DIR",
    "keep compiled code and libraries (up to 10 GiB) in DIR, and take from there what an earlier compile made of the "
    "same; several compiles may share it (as trusted as the compiler itself)", g_compile, everyTool>;

//===----------------------------------------------------------------------===//
// Limits of a compile
//===----------------------------------------------------------------------===//

defm max_memory : Eq<"max-memory", "SIZE",
    "address space of the worker process that compiles, as 512M or 4G (default: the machine's memory; 0: no limit)",
    g_limits, everyTool>;
defm timeout : Eq<"timeout", "SECONDS", "give up after this time (default: never)", g_limits, everyTool>;

//===----------------------------------------------------------------------===//
// Looking inside a compile
//===----------------------------------------------------------------------===//

def mlir_print_ir_after_all : SimpleFlag<"mlir-print-ir-after-all",
    "print the IR to standard error after each pass", g_inside, everyTool>;
defm dump_ir : Eq<"dump-ir", "DIR", "write the IR after each pass into a file in DIR", g_inside, everyTool>;
defm disable_pass : Eq<"disable-pass", "NAME",
    "leave out a pass of the graph and kernel stages, as attn-fold-layout", g_inside, [AttncVis],
    [Repeatable]>;
def mark_regions : SimpleFlag<"mark-regions",
    "make a library that attn-bench --breakdown and --profile can look into (a call more for each fused region)",
    g_inside, [AttncVis]>;
def mlir_timing : SimpleFlag<"mlir-timing", "print the time of each pass to standard error", g_inside, everyTool>;
defm reproducer : Eq<"reproducer", "FILE",
    "where to write the IR and passes of a compile that dies, for attn-opt --run-reproducer "
    "(default: the output's name and .reproducer.mlir)", g_inside, everyTool>;

//===----------------------------------------------------------------------===//
// General
//===----------------------------------------------------------------------===//

def json : SimpleFlag<"json", "print the result, or the error, as one JSON object (docs/reports.md)", g_general, all>;
def progress : SimpleFlag<"progress",
    "write each stage of the compile to standard error as it begins, as a line 'progress: STAGE'", g_general, [AttncVis]>;
// For attn-run and attn-bench, which start attnc and have the result: no help.
def json_errors : Flag<["--"], "json-errors">, Group<g_general>, Visibility<[AttncVis]>;
def started_by : Joined<["--"], "started-by=">, Group<g_general>, Visibility<[AttncVis]>;
def help : SimpleFlag<"help", "print this text", g_general, all>;
def h : Flag<["-"], "h">, Alias<help>, Group<g_general>, Visibility<all>;
def version : SimpleFlag<"version", "print the version", g_general, all>;
