#include "passes/kernels/cpu/SearchText.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace attn;

static std::string number(double value) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.17e", value);
  return text;
}

//===----------------------------------------------------------------------===//
// A row of scores
//===----------------------------------------------------------------------===//

/// %lse of row %r: the logarithm of the sum of exponentials; %max on the way.
static const char kLogSum[] = R"mlir(
    %wide = arith.constant dense<0xFF800000> : vector<16xf32>
    %most = scf.for %v = %c0 to %size step %c16 iter_args(%m = %wide) -> (vector<16xf32>) {
      %x = vector.transfer_read %logits[%r, %v], %ninf : memref<?x?xf32>, vector<16xf32>
      %n = arith.maximumf %m, %x : vector<16xf32>
      scf.yield %n : vector<16xf32>
    }
    %max = vector.reduction <maximumf>, %most : vector<16xf32> into f32
    %maxes = vector.broadcast %max : f32 to vector<16xf32>
    %none = arith.constant dense<0.0> : vector<16xf32>
    %sums = scf.for %v = %c0 to %size step %c16 iter_args(%s = %none) -> (vector<16xf32>) {
      %x = vector.transfer_read %logits[%r, %v], %ninf : memref<?x?xf32>, vector<16xf32>
      %d = arith.subf %x, %maxes : vector<16xf32>
      %e = math.exp %d : vector<16xf32>
      %left = arith.subi %size, %v : index
      %inside = vector.create_mask %left : vector<16xi1>
      %kept = arith.select %inside, %e, %none : vector<16xi1>, vector<16xf32>
      %n = arith.addf %s, %kept : vector<16xf32>
      scf.yield %n : vector<16xf32>
    }
    %sum = vector.reduction <add>, %sums : vector<16xf32> into f32
    %log = math.log %sum : f32
    %lse = arith.addf %max, %log : f32
    memref.store %lse, %lses[%r] : memref<?xf32>
)mlir";

// The best of a row lie sorted in its candidates; a vector of which no element
// is better than the last one is passed over.
static const char kRows[] = R"mlir(
func.func @{symbol}(%logits: memref<?x?xf32>, %noEnd: i1, %values: memref<?x{C}xf32>, %tokens: memref<?x{C}xi64>,
                    %lses: memref<?xf32>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %count = arith.constant {C} : index
  %final = arith.subi %count, %c1 : index
  %ninf = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0 : i64
  %rows = memref.dim %logits, %c0 : memref<?x?xf32>
  %size = memref.dim %logits, %c1 : memref<?x?xf32>
  scf.parallel (%r) = (%c0) to (%rows) step (%c1) {
    {logsum}
    scf.for %k = %c0 to %count step %c1 {
      memref.store %ninf, %values[%r, %k] : memref<?x{C}xf32>
      memref.store %zero, %tokens[%r, %k] : memref<?x{C}xi64>
    }
    %threshold = scf.for %v = %c0 to %size step %c16 iter_args(%least = %ninf) -> (f32) {
      %x = vector.transfer_read %logits[%r, %v], %ninf : memref<?x?xf32>, vector<16xf32>
      %leasts = vector.broadcast %least : f32 to vector<16xf32>
      %above = arith.cmpf ogt, %x, %leasts : vector<16xf32>
      %any = vector.reduction <or>, %above : vector<16xi1> into i1
      %new = scf.if %any -> (f32) {
        %beyond = arith.addi %v, %c16 : index
        %end = arith.minsi %beyond, %size : index
        %t = scf.for %i = %v to %end step %c1 iter_args(%bar = %least) -> (f32) {
          %xi = memref.load %logits[%r, %i] : memref<?x?xf32>
          %better = arith.cmpf ogt, %xi, %bar : f32
          %token = arith.index_cast %i : index to i64
          {ended}
          %banned = arith.andi %ended, %noEnd : i1
          %true = arith.constant true
          %allowed = arith.xori %banned, %true : i1
          %take = arith.andi %better, %allowed : i1
          %u = scf.if %take -> (f32) {
            %place = scf.while (%p = %final) : (index) -> index {
              %inner = arith.cmpi sgt, %p, %c0 : index
              %before = arith.subi %p, %c1 : index
              %safe = arith.maxsi %before, %c0 : index
              %other = memref.load %values[%r, %safe] : memref<?x{C}xf32>
              %less = arith.cmpf olt, %other, %xi : f32
              %go = arith.andi %inner, %less : i1
              scf.condition(%go) %p : index
            } do {
            ^bb0(%p: index):
              %before = arith.subi %p, %c1 : index
              %value = memref.load %values[%r, %before] : memref<?x{C}xf32>
              %id = memref.load %tokens[%r, %before] : memref<?x{C}xi64>
              memref.store %value, %values[%r, %p] : memref<?x{C}xf32>
              memref.store %id, %tokens[%r, %p] : memref<?x{C}xi64>
              scf.yield %before : index
            }
            memref.store %xi, %values[%r, %place] : memref<?x{C}xf32>
            memref.store %token, %tokens[%r, %place] : memref<?x{C}xi64>
            %worst = memref.load %values[%r, %final] : memref<?x{C}xf32>
            scf.yield %worst : f32
          } else {
            scf.yield %bar : f32
          }
          scf.yield %u : f32
        }
        scf.yield %t : f32
      } else {
        scf.yield %least : f32
      }
      scf.yield %new : f32
    }
  }
  return
}
)mlir";

func::FuncOp attn::buildSearchRows(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) {
  return parseKernel(b, kRows,
                     {{"symbol", symbol.str()},
                      {"logsum", kLogSum},
                      {"ended", isEnd(spec.eos, "%token")},
                      {"C", std::to_string(spec.candidates())}});
}

// Weights are not negative, so their bits are in their order: the least weight
// that stays is found by halving the bits, without sorting.
static const char kSample[] = R"mlir(
func.func @{symbol}(%logits: memref<?x?xf32>, %noEnd: i1, %step: i64, %values: memref<?x1xf32>,
                    %tokens: memref<?x1xi64>, %lses: memref<?xf32>, %weights: memref<?x?xf32>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %ninf = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %zero64 = arith.constant 0.0 : f64
  %temperature = arith.constant {temperature} : f32
  %topP = arith.constant {topP} : f64
  %topK = arith.constant {topK} : i64
  %seed = arith.constant {seed} : i64
  %i0 = arith.constant 0 : i64
  %i1 = arith.constant 1 : i64
  %b0 = arith.constant 0 : i32
  %b1 = arith.constant 1 : i32
  %one = arith.constant 1.0 : f32
  %oneBits = arith.bitcast %one : f32 to i32
  %golden = arith.constant 0x9e3779b97f4a7c15 : i64
  %factor1 = arith.constant 0xbf58476d1ce4e5b9 : i64
  %factor2 = arith.constant 0x94d049bb133111eb : i64
  %s30 = arith.constant 30 : i64
  %s27 = arith.constant 27 : i64
  %s31 = arith.constant 31 : i64
  %s11 = arith.constant 11 : i64
  %scale = arith.constant 1.1102230246251565e-16 : f64
  %rows = memref.dim %logits, %c0 : memref<?x?xf32>
  %size = memref.dim %logits, %c1 : memref<?x?xf32>
  scf.parallel (%r) = (%c0) to (%rows) step (%c1) {
    {logsum}
    scf.for %i = %c0 to %size step %c1 {
      %x = memref.load %logits[%r, %i] : memref<?x?xf32>
      %d = arith.subf %x, %max : f32
      %cool = arith.divf %d, %temperature : f32
      %e = math.exp %cool : f32
      %token = arith.index_cast %i : index to i64
      {ended}
      %banned = arith.andi %ended, %noEnd : i1
      %w = arith.select %banned, %zero, %e : f32
      memref.store %w, %weights[%r, %i] : memref<?x?xf32>
    }
    %open = arith.cmpi sle, %topK, %i0 : i64
    %all = arith.index_cast %size : index to i64
    %limit = arith.minsi %topK, %all : i64
    %topBits = arith.select %open, %b0, %oneBits : i32
    %leastK, %unusedK = scf.while (%lo = %b0, %hi = %topBits) : (i32, i32) -> (i32, i32) {
      %go = arith.cmpi slt, %lo, %hi : i32
      scf.condition(%go) %lo, %hi : i32, i32
    } do {
    ^bb0(%lo: i32, %hi: i32):
      %both = arith.addi %lo, %hi : i32
      %up = arith.addi %both, %b1 : i32
      %mid = arith.shrui %up, %b1 : i32
      %bar = arith.bitcast %mid : i32 to f32
      %n = scf.for %i = %c0 to %size step %c1 iter_args(%a = %i0) -> (i64) {
        %w = memref.load %weights[%r, %i] : memref<?x?xf32>
        %in = arith.cmpf oge, %w, %bar : f32
        %bit = arith.extui %in : i1 to i64
        %sum2 = arith.addi %a, %bit : i64
        scf.yield %sum2 : i64
      }
      %enough = arith.cmpi sge, %n, %limit : i64
      %below = arith.subi %mid, %b1 : i32
      %lo2 = arith.select %enough, %mid, %lo : i32
      %hi2 = arith.select %enough, %hi, %below : i32
      scf.yield %lo2, %hi2 : i32, i32
    }
    %barK = arith.bitcast %leastK : i32 to f32
    %massK = scf.for %i = %c0 to %size step %c1 iter_args(%a = %zero64) -> (f64) {
      %w = memref.load %weights[%r, %i] : memref<?x?xf32>
      %in = arith.cmpf oge, %w, %barK : f32
      %w64 = arith.extf %w : f32 to f64
      %part = arith.select %in, %w64, %zero64 : f64
      %sum2 = arith.addf %a, %part : f64
      scf.yield %sum2 : f64
    }
    %whole = arith.constant 1.0 : f64
    %unlimited = arith.cmpf oge, %topP, %whole : f64
    %wanted = arith.mulf %massK, %topP : f64
    %topBitsP = arith.select %unlimited, %leastK, %oneBits : i32
    %leastP, %unusedP = scf.while (%lo = %leastK, %hi = %topBitsP) : (i32, i32) -> (i32, i32) {
      %go = arith.cmpi slt, %lo, %hi : i32
      scf.condition(%go) %lo, %hi : i32, i32
    } do {
    ^bb0(%lo: i32, %hi: i32):
      %both = arith.addi %lo, %hi : i32
      %up = arith.addi %both, %b1 : i32
      %mid = arith.shrui %up, %b1 : i32
      %bar = arith.bitcast %mid : i32 to f32
      %n = scf.for %i = %c0 to %size step %c1 iter_args(%a = %zero64) -> (f64) {
        %w = memref.load %weights[%r, %i] : memref<?x?xf32>
        %in = arith.cmpf oge, %w, %bar : f32
        %w64 = arith.extf %w : f32 to f64
        %part = arith.select %in, %w64, %zero64 : f64
        %sum2 = arith.addf %a, %part : f64
        scf.yield %sum2 : f64
      }
      %enough = arith.cmpf oge, %n, %wanted : f64
      %below = arith.subi %mid, %b1 : i32
      %lo2 = arith.select %enough, %mid, %lo : i32
      %hi2 = arith.select %enough, %hi, %below : i32
      scf.yield %lo2, %hi2 : i32, i32
    }
    %bar = arith.bitcast %leastP : i32 to f32
    %mass = scf.for %i = %c0 to %size step %c1 iter_args(%a = %zero64) -> (f64) {
      %w = memref.load %weights[%r, %i] : memref<?x?xf32>
      %in = arith.cmpf oge, %w, %bar : f32
      %w64 = arith.extf %w : f32 to f64
      %part = arith.select %in, %w64, %zero64 : f64
      %sum2 = arith.addf %a, %part : f64
      scf.yield %sum2 : f64
    }
    %row = arith.index_cast %r : index to i64
    %c3 = arith.constant 3 : index
    %hash = scf.for %n = %c0 to %c3 step %c1 iter_args(%h = %i0) -> (i64) {
      %isRow = arith.cmpi eq, %n, %c1 : index
      %isSeed = arith.cmpi eq, %n, %c0 : index
      %later = arith.select %isRow, %row, %step : i64
      %term = arith.select %isSeed, %seed, %later : i64
      %z0 = arith.addi %h, %term : i64
      %z1 = arith.addi %z0, %golden : i64
      %x1 = arith.shrui %z1, %s30 : i64
      %y1 = arith.xori %z1, %x1 : i64
      %z2 = arith.muli %y1, %factor1 : i64
      %x2 = arith.shrui %z2, %s27 : i64
      %y2 = arith.xori %z2, %x2 : i64
      %z3 = arith.muli %y2, %factor2 : i64
      %x3 = arith.shrui %z3, %s31 : i64
      %y3 = arith.xori %z3, %x3 : i64
      scf.yield %y3 : i64
    }
    %bits = arith.shrui %hash, %s11 : i64
    %real = arith.uitofp %bits : i64 to f64
    %u = arith.mulf %real, %scale : f64
    %target = arith.mulf %u, %mass : f64
    // The last one that stays, should rounding leave none.
    %cumulated, %found, %pick = scf.for %i = %c0 to %size step %c1
        iter_args(%a = %zero64, %done = %b0, %last = %c0) -> (f64, i32, index) {
      %w = memref.load %weights[%r, %i] : memref<?x?xf32>
      %above = arith.cmpf oge, %w, %bar : f32
      %some = arith.cmpf ogt, %w, %zero : f32
      %in = arith.andi %above, %some : i1
      %w64 = arith.extf %w : f32 to f64
      %part = arith.select %in, %w64, %zero64 : f64
      %sum2 = arith.addf %a, %part : f64
      %searching = arith.cmpi eq, %done, %b0 : i32
      %candidate = arith.andi %in, %searching : i1
      %next = arith.select %candidate, %i, %last : index
      %passed = arith.cmpf ogt, %sum2, %target : f64
      %hit = arith.andi %candidate, %passed : i1
      %hit32 = arith.extui %hit : i1 to i32
      %done2 = arith.ori %done, %hit32 : i32
      scf.yield %sum2, %done2, %next : f64, i32, index
    }
    %value = memref.load %logits[%r, %pick] : memref<?x?xf32>
    %picked = arith.index_cast %pick : index to i64
    memref.store %value, %values[%r, %c0] : memref<?x1xf32>
    memref.store %picked, %tokens[%r, %c0] : memref<?x1xi64>
  }
  return
}
)mlir";

func::FuncOp attn::buildSearchSample(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) {
  return parseKernel(b, kSample,
                     {{"symbol", symbol.str()},
                      {"logsum", kLogSum},
                      {"ended", isEnd(spec.eos, "%token")},
                      {"temperature", number(spec.temperature)},
                      {"topP", number(spec.topP)},
                      {"topK", std::to_string(spec.topK)},
                      {"seed", std::to_string(spec.seed)}});
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

static const char kLength[] = R"mlir(
func.func @{symbol}(%info: memref<?x{K}x3xi64>, %longest: memref<1xi64>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %i0 = arith.constant 0 : i64
  %best = arith.constant {N} : index
  %items = memref.dim %info, %c0 : memref<?x{K}x3xi64>
  %most = scf.for %b = %c0 to %items step %c1 iter_args(%m = %i0) -> (i64) {
    %n = scf.for %k = %c0 to %best step %c1 iter_args(%a = %m) -> (i64) {
      %length = memref.load %info[%b, %k, %c0] : memref<?x{K}x3xi64>
      %more = arith.maxsi %a, %length : i64
      scf.yield %more : i64
    }
    scf.yield %n : i64
  }
  memref.store %most, %longest[%c0] : memref<1xi64>
  return
}
)mlir";

func::FuncOp attn::buildSearchLength(OpBuilder &b, StringRef symbol, int64_t width, int64_t best) {
  return parseKernel(b, kLength, {{"symbol", symbol.str()}, {"K", std::to_string(width)}, {"N", std::to_string(best)}});
}

static const char kTrace[] = R"mlir(
func.func @{symbol}(%history: memref<?x?xi64>, %parents: memref<?x?xi64>, %info: memref<?x{K}x3xi64>,
                    %tokens: memref<?x{N}x?xi64>, %rows: memref<?x{N}x?xi64>, %lengths: memref<?x{N}xi64>)
    attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %none = arith.constant -1 : i64
  %pad = arith.constant {pad} : i64
  %best = arith.constant {N} : index
  %items = memref.dim %info, %c0 : memref<?x{K}x3xi64>
  %size = memref.dim %tokens, %c2 : memref<?x{N}x?xi64>
  scf.for %b = %c0 to %items step %c1 {
    scf.for %k = %c0 to %best step %c1 {
      scf.for %i = %c0 to %size step %c1 {
        memref.store %pad, %tokens[%b, %k, %i] : memref<?x{N}x?xi64>
        memref.store %none, %rows[%b, %k, %i] : memref<?x{N}x?xi64>
      }
      %length = memref.load %info[%b, %k, %c0] : memref<?x{K}x3xi64>
      memref.store %length, %lengths[%b, %k] : memref<?x{N}xi64>
      %row = memref.load %info[%b, %k, %c1] : memref<?x{K}x3xi64>
      %token = memref.load %info[%b, %k, %c2] : memref<?x{K}x3xi64>
      %steps = arith.index_cast %length : i64 to index
      %final = scf.for %n = %c0 to %steps step %c1 iter_args(%r = %row) -> (i64) {
        %m = arith.subi %steps, %n : index
        %i = arith.subi %m, %c1 : index
        memref.store %r, %rows[%b, %k, %i] : memref<?x{N}x?xi64>
        %isEnd = arith.cmpi eq, %n, %c0 : index
        // The row after step i - 1 is the one that step i was taken from.
        scf.if %isEnd {
          memref.store %token, %tokens[%b, %k, %i] : memref<?x{N}x?xi64>
        }
        %next = arith.subi %i, %c1 : index
        %has = arith.cmpi sge, %next, %c0 : index
        %before = scf.if %has -> (i64) {
          %at = arith.index_cast %r : i64 to index
          %t = memref.load %history[%next, %at] : memref<?x?xi64>
          memref.store %t, %tokens[%b, %k, %next] : memref<?x{N}x?xi64>
          %p = memref.load %parents[%next, %at] : memref<?x?xi64>
          scf.yield %p : i64
        } else {
          scf.yield %r : i64
        }
        scf.yield %before : i64
      }
    }
  }
  return
}
)mlir";

func::FuncOp attn::buildSearchTrace(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec, int64_t best) {
  return parseKernel(
      b, kTrace,
      {{"symbol", symbol.str()}, {"pad", padOf(spec)}, {"K", std::to_string(spec.width)}, {"N", std::to_string(best)}});
}
