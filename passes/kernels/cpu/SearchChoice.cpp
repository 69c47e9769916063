// Which candidates live on: the kernels of greedy and beam search.
#include "passes/kernels/cpu/SearchText.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace attn;

// Items may be chosen from at once: flags are atomic.
static const char kSignature[] = R"mlir(
func.func @{symbol}(%values: memref<?x{C}xf32>, %ids: memref<?x{C}xi64>, %lses: memref<?xf32>,
    %live: memref<?x{K}xf32>, %best: memref<?x{K}xf32>, %info: memref<?x{K}x3xi64>, %open: memref<?xi64>,
    %penalty: f32, %step: i64, %last: i1,{kin}{terms}
    %live2: memref<?x{K}xf32>, %best2: memref<?x{K}xf32>, %info2: memref<?x{K}x3xi64>, %open2: memref<?xi64>,
    %parents: memref<?xi64>, %tokens: memref<?xi64>, %flags: memref<2xi64>{kin2}) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %ninf = arith.constant 0xFF800000 : f32
  %zerof = arith.constant 0.0 : f32
  %i0 = arith.constant 0 : i64
  %i1 = arith.constant 1 : i64
  %minusOne = arith.constant -1 : i64
  %true = arith.constant true
  %false = arith.constant false
  %pad = arith.constant {pad} : i64
  %items = memref.dim %live, %c0 : memref<?x{K}xf32>
  memref.store %i0, %flags[%c0] : memref<2xi64>
  memref.store %i0, %flags[%c1] : memref<2xi64>
)mlir";

static const char kGreedy[] = R"mlir(
  scf.for %r = %c0 to %items step %c1 {
    %was = memref.load %open[%r] : memref<?xi64>
    %isOpen = arith.cmpi ne, %was, %i0 : i64
    %value = memref.load %values[%r, %c0] : memref<?x1xf32>
    %token = memref.load %ids[%r, %c0] : memref<?x1xi64>
    %lse = memref.load %lses[%r] : memref<?xf32>
    %none = arith.subf %lse, %lse : f32
    %isBad = arith.cmpf une, %none, %zerof : f32
    %bad = arith.andi %isBad, %isOpen : i1
    scf.if %bad {
      %at = arith.index_cast %r : index to i64
      %number = arith.subi %minusOne, %at : i64
      %first = memref.atomic_rmw maxu %number, %flags[%c1] : (i64, memref<2xi64>) -> i64
    }
    %old = memref.load %live[%r, %c0] : memref<?x1xf32>
    %logp = arith.subf %value, %lse : f32
    %more = arith.addf %old, %logp : f32
    %score = arith.select %isOpen, %more, %old : f32
    memref.store %score, %live2[%r, %c0] : memref<?x1xf32>
    memref.store %score, %best2[%r, %c0] : memref<?x1xf32>
    %before = memref.load %info[%r, %c0, %c0] : memref<?x1x3xi64>
    %length = arith.select %isOpen, %step, %before : i64
    memref.store %length, %info2[%r, %c0, %c0] : memref<?x1x3xi64>
    %row = arith.index_cast %r : index to i64
    memref.store %row, %info2[%r, %c0, %c1] : memref<?x1x3xi64>
    memref.store %row, %parents[%r] : memref<?xi64>
    %next = arith.select %isOpen, %token, %pad : i64
    memref.store %next, %tokens[%r] : memref<?xi64>
    %end = memref.load %info[%r, %c0, %c2] : memref<?x1x3xi64>
    %final = arith.select %isOpen, %token, %end : i64
    memref.store %final, %info2[%r, %c0, %c2] : memref<?x1x3xi64>
    {ended}
    %over = arith.ori %ended, %last : i1
    %lasts = arith.xori %over, %true : i1
    %goes = arith.andi %lasts, %isOpen : i1
    %now = arith.extui %goes : i1 to i64
    memref.store %now, %open2[%r] : memref<?xi64>
    %any = memref.atomic_rmw ori %now, %flags[%c0] : (i64, memref<2xi64>) -> i64
  }
  return
}
)mlir";

// The candidates of a row are sorted already: a merge of them gives those of an
// item in order. The first one that lives on from a row stays in it, the others
// take rows from which none does, so that states can move in place; the rows'
// order is kept in the table beside what they share.
static const char kBeam[] = R"mlir(
  %width = arith.constant {K} : index
  %width64 = arith.constant {K} : i64
  %count = arith.constant {C} : index
  %final = arith.subi %width, %c1 : index
  %early = arith.constant {early}
  %shrink = arith.constant {shrink}
  %refill = arith.xori %shrink, %true : i1
  %heads = memref.alloca() : memref<{K}xindex>
  %order = memref.alloca() : memref<{K}xindex>
  %held = memref.alloca() : memref<{K}xi1>
  %liveOf = memref.alloca() : memref<{K}xf32>
  %parentOf = memref.alloca() : memref<{K}xindex>
  %tokenOf = memref.alloca() : memref<{K}xi64>
  scf.for %b = %c0 to %items step %c1 {
    %was = memref.load %open[%b] : memref<?xi64>
    %isOpen = arith.cmpi ne, %was, %i0 : i64
    %base = arith.muli %b, %width : index
    %complete = scf.for %k = %c0 to %width step %c1 iter_args(%have = %i0) -> (i64) {
      memref.store %c0, %heads[%k] : memref<{K}xindex>
      %s = memref.load %best[%b, %k] : memref<?x{K}xf32>
      memref.store %s, %best2[%b, %k] : memref<?x{K}xf32>
      scf.for %j = %c0 to %c3 step %c1 {
        %x = memref.load %info[%b, %k, %j] : memref<?x{K}x3xi64>
        memref.store %x, %info2[%b, %k, %j] : memref<?x{K}x3xi64>
      }
      %length = memref.load %info[%b, %k, %c0] : memref<?x{K}x3xi64>
      %isComplete = arith.cmpi ne, %length, %i0 : i64
      %bit = arith.extui %isComplete : i1 to i64
      %sum = arith.addi %have, %bit : i64
      memref.store %ninf, %live2[%b, %k] : memref<?x{K}xf32>
      memref.store %false, %held[%k] : memref<{K}xi1>
      %r = arith.addi %base, %k : index
      %rank = memref.load %kin[%r, %width] : memref<?x{W}xi64>
      %slot = arith.index_cast %rank : i64 to index
      memref.store %slot, %order[%k] : memref<{K}xindex>
      %row = arith.index_cast %r : index to i64
      memref.store %row, %parents[%r] : memref<?xi64>
      memref.store %pad, %tokens[%r] : memref<?xi64>
      %lse = memref.load %lses[%r] : memref<?xf32>
      %none = arith.subf %lse, %lse : f32
      %isBad = arith.cmpf une, %none, %zerof : f32
      %l = memref.load %live[%b, %k] : memref<?x{K}xf32>
      %alive = arith.cmpf une, %l, %ninf : f32
      %counts = arith.andi %alive, %isOpen : i1
      %bad = arith.andi %isBad, %counts : i1
      scf.if %bad {
        %item = arith.index_cast %b : index to i64
        %number = arith.subi %minusOne, %item : i64
        %first = memref.atomic_rmw maxu %number, %flags[%c1] : (i64, memref<2xi64>) -> i64
      }
      scf.yield %sum : i64
    }
    %room = arith.subi %width64, %complete : i64
    %placed, %taken = scf.for %c = %c0 to %count step %c1 iter_args(%at = %c0, %used = %i0) -> (index, i64) {
      %top, %from = scf.for %n = %c0 to %width step %c1 iter_args(%most = %ninf, %which = %width) -> (f32, index) {
        %k = memref.load %order[%n] : memref<{K}xindex>
        %head = memref.load %heads[%k] : memref<{K}xindex>
        %left = arith.cmpi slt, %head, %count : index
        %s = scf.if %left -> (f32) {
          %r = arith.addi %base, %k : index
          %x = memref.load %values[%r, %head] : memref<?x{C}xf32>
          %lse = memref.load %lses[%r] : memref<?xf32>
          %l = memref.load %live[%b, %k] : memref<?x{K}xf32>
          %p = arith.subf %x, %lse : f32
          %q = arith.addf %l, %p : f32
          scf.yield %q : f32
        } else {
          scf.yield %ninf : f32
        }
        %better = arith.cmpf ogt, %s, %most : f32
        %most2 = arith.select %better, %s, %most : f32
        %which2 = arith.select %better, %k, %which : index
        scf.yield %most2, %which2 : f32, index
      }
      %some = arith.cmpi slt, %from, %width : index
      %more = arith.cmpi slt, %used, %room : i64
      %within = arith.ori %refill, %more : i1
      %useful = arith.andi %within, %isOpen : i1
      %go = arith.andi %some, %useful : i1
      %at3, %used3 = scf.if %go -> (index, i64) {
        %head = memref.load %heads[%from] : memref<{K}xindex>
        %next = arith.addi %head, %c1 : index
        memref.store %next, %heads[%from] : memref<{K}xindex>
        %r = arith.addi %base, %from : index
        %row = arith.index_cast %r : index to i64
        %token = memref.load %ids[%r, %head] : memref<?x{C}xi64>
        {ended}
        %over = arith.ori %ended, %last : i1
        %used2 = arith.addi %used, %i1 : i64
        %at2 = scf.if %over -> (index) {
          %front = arith.cmpi slt, %c, %width : index
          %near = arith.ori %shrink, %front : i1
          scf.if %near {
            %plain = arith.divf %top, %penalty : f32
            {score}
            %worst = memref.load %best2[%b, %final] : memref<?x{K}xf32>
            %enters = arith.cmpf ogt, %score, %worst : f32
            scf.if %enters {
              %place = scf.while (%p = %final) : (index) -> index {
                %inner = arith.cmpi sgt, %p, %c0 : index
                %before = arith.subi %p, %c1 : index
                %safe = arith.maxsi %before, %c0 : index
                %other = memref.load %best2[%b, %safe] : memref<?x{K}xf32>
                %less = arith.cmpf olt, %other, %score : f32
                %moves = arith.andi %inner, %less : i1
                scf.condition(%moves) %p : index
              } do {
              ^bb0(%p: index):
                %before = arith.subi %p, %c1 : index
                %s = memref.load %best2[%b, %before] : memref<?x{K}xf32>
                memref.store %s, %best2[%b, %p] : memref<?x{K}xf32>
                scf.for %j = %c0 to %c3 step %c1 {
                  %x = memref.load %info2[%b, %before, %j] : memref<?x{K}x3xi64>
                  memref.store %x, %info2[%b, %p, %j] : memref<?x{K}x3xi64>
                }
                scf.yield %before : index
              }
              memref.store %score, %best2[%b, %place] : memref<?x{K}xf32>
              memref.store %step, %info2[%b, %place, %c0] : memref<?x{K}x3xi64>
              memref.store %row, %info2[%b, %place, %c1] : memref<?x{K}x3xi64>
              memref.store %token, %info2[%b, %place, %c2] : memref<?x{K}x3xi64>
            }
          }
          scf.yield %at : index
        } else {
          %free = arith.cmpi slt, %at, %width : index
          %at4 = scf.if %free -> (index) {
            memref.store %top, %liveOf[%at] : memref<{K}xf32>
            memref.store %from, %parentOf[%at] : memref<{K}xindex>
            memref.store %token, %tokenOf[%at] : memref<{K}xi64>
            %after = arith.addi %at, %c1 : index
            scf.yield %after : index
          } else {
            scf.yield %at : index
          }
          scf.yield %at4 : index
        }
        scf.yield %at2, %used2 : index, i64
      } else {
        scf.yield %at, %used : index, i64
      }
      scf.yield %at3, %used3 : index, i64
    }
    scf.for %n = %c0 to %placed step %c1 {
      %p = memref.load %parentOf[%n] : memref<{K}xindex>
      %has = memref.load %held[%p] : memref<{K}xi1>
      %slot = arith.select %has, %width, %p : index
      memref.store %slot, %order[%n] : memref<{K}xindex>
      memref.store %true, %held[%p] : memref<{K}xi1>
    }
    %end = scf.for %n = %c0 to %width step %c1 iter_args(%free = %c0) -> (index) {
      %isPlaced = arith.cmpi slt, %n, %placed : index
      %stays = scf.if %isPlaced -> (i1) {
        %o = memref.load %order[%n] : memref<{K}xindex>
        %in = arith.cmpi slt, %o, %width : index
        scf.yield %in : i1
      } else {
        scf.yield %false : i1
      }
      %after = scf.if %stays -> (index) {
        scf.yield %free : index
      } else {
        %slot = scf.while (%f = %free) : (index) -> index {
          %has = memref.load %held[%f] : memref<{K}xi1>
          scf.condition(%has) %f : index
        } do {
        ^bb0(%f: index):
          %g = arith.addi %f, %c1 : index
          scf.yield %g : index
        }
        memref.store %slot, %order[%n] : memref<{K}xindex>
        %g = arith.addi %slot, %c1 : index
        scf.yield %g : index
      }
      %slot = memref.load %order[%n] : memref<{K}xindex>
      %number = arith.index_cast %slot : index to i64
      %rank = arith.addi %base, %n : index
      memref.store %number, %kin2[%rank, %width] : memref<?x{W}xi64>
      scf.if %isPlaced {
        %r = arith.addi %base, %slot : index
        %p = memref.load %parentOf[%n] : memref<{K}xindex>
        %from = arith.addi %base, %p : index
        %row = arith.index_cast %from : index to i64
        memref.store %row, %parents[%r] : memref<?xi64>
        %l = memref.load %liveOf[%n] : memref<{K}xf32>
        memref.store %l, %live2[%b, %slot] : memref<?x{K}xf32>
        %t = memref.load %tokenOf[%n] : memref<{K}xi64>
        memref.store %t, %tokens[%r] : memref<?xi64>
      }
      scf.yield %after : index
    }
    // Rows share all until now if their parent is one, otherwise what their parents did.
    scf.for %k = %c0 to %width step %c1 {
      %r = arith.addi %base, %k : index
      %p = memref.load %parents[%r] : memref<?xi64>
      %from = arith.index_cast %p : i64 to index
      scf.for %n = %c0 to %width step %c1 {
        %s = arith.addi %base, %n : index
        %q = memref.load %parents[%s] : memref<?xi64>
        %other = arith.index_cast %q : i64 to index
        %column = arith.subi %other, %base : index
        %before = memref.load %kin[%from, %column] : memref<?x{W}xi64>
        %same = arith.cmpi eq, %p, %q : i64
        %now = arith.select %same, %step, %before : i64
        memref.store %now, %kin2[%r, %n] : memref<?x{W}xi64>
      }
    }
    %leader = memref.load %order[%c0] : memref<{K}xindex>
    %front = memref.load %live2[%b, %leader] : memref<?x{K}xf32>
    %hope = arith.divf %front, %penalty : f32
    %worst = memref.load %best2[%b, %final] : memref<?x{K}xf32>
    %improves = arith.cmpf ogt, %hope, %worst : f32
    %lives = arith.cmpf ogt, %front, %ninf : f32
    %promising = arith.select %shrink, %lives, %improves : i1
    %length = memref.load %info2[%b, %final, %c0] : memref<?x{K}x3xi64>
    %full = arith.cmpi ne, %length, %i0 : i64
    %stops = arith.andi %full, %early : i1
    %continues = arith.xori %stops, %true : i1
    %a1 = arith.andi %promising, %continues : i1
    %a2 = arith.andi %a1, %isOpen : i1
    %notLast = arith.xori %last, %true : i1
    %a3 = arith.andi %a2, %notLast : i1
    %now = arith.extui %a3 : i1 to i64
    memref.store %now, %open2[%b] : memref<?xi64>
    %any = memref.atomic_rmw ori %now, %flags[%c0] : (i64, memref<2xi64>) -> i64
  }
  return
}
)mlir";

static func::FuncOp buildChoice(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec, StringRef body) {
  return parseKernel(b, (kSignature + body).str(),
                     {{"symbol", symbol.str()},
                      {"kin", spec.isBeam ? " %kin: memref<?x{W}xi64>," : ""},
                      {"kin2", spec.isBeam ? ", %kin2: memref<?x{W}xi64>" : ""},
                      {"terms", spec.coverage ? " %terms: memref<?xf32>," : ""},
                      {"score", spec.coverage ? "%term = memref.load %terms[%r] : memref<?xf32>\n"
                                                "%score = arith.addf %plain, %term : f32"
                                              : "%score = arith.addf %plain, %zerof : f32"},
                      {"ended", isEnd(spec.eos, "%token")},
                      {"pad", padOf(spec)},
                      {"early", spec.earlyStop ? "true" : "false"},
                      {"shrink", spec.shrink ? "true" : "false"},
                      {"C", std::to_string(spec.candidates())},
                      {"K", std::to_string(spec.width)},
                      {"W", std::to_string(spec.width + 1)}});
}

func::FuncOp attn::buildSearchGreedy(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) {
  return buildChoice(b, symbol, spec, kGreedy);
}

func::FuncOp attn::buildSearchBeam(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) {
  return buildChoice(b, symbol, spec, kBeam);
}

//===----------------------------------------------------------------------===//
// States of the rows that live on
//===----------------------------------------------------------------------===//

// Rows that are moved from stay where they are, so that all move in any order
// within one buffer. In another buffer everything is written.
static const char kMove[] = R"mlir(
func.func @{symbol}(%parents: memref<?xi64>, %kin: memref<?x{W}xi64>, %first: index, %each: index, %columns: index,
    %in: {type}, %out: {type}) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %width = arith.constant {K} : index
  %rows = memref.dim %parents, %c0 : memref<?xi64>
  {sizes}
  %some = arith.muli %rows, %middle : index
  %all = arith.muli %front, %some : index
  {totals}
  %from = memref.reinterpret_cast %in to offset: [0], sizes: [%size], strides: [1] : {type} to memref<?x{T}>
  %to = memref.reinterpret_cast %out to offset: [0], sizes: [%size], strides: [1] : {type} to memref<?x{T}>
  %source = memref.extract_aligned_pointer_as_index %in : {type} -> index
  %target = memref.extract_aligned_pointer_as_index %out : {type} -> index
  %same = arith.cmpi eq, %source, %target : index
  scf.parallel (%i) = (%c0) to (%all) step (%c1) {
    {place}
    %number = memref.load %parents[%r] : memref<?xi64>
    %p = arith.index_cast %number : i64 to index
    %own = arith.cmpi eq, %p, %r : index
    %shared = scf.if %same -> (index) {
      %item = arith.divui %r, %width : index
      %base = arith.muli %item, %width : index
      %slot = arith.subi %p, %base : index
      %steps = memref.load %kin[%r, %slot] : memref<?x{W}xi64>
      %count = arith.index_cast %steps : i64 to index
      %length = arith.muli %count, %each : index
      %position = arith.addi %first, %length : index
      %differs = arith.select %own, %columns, %position : index
      scf.yield %differs : index
    } else {
      scf.yield %c0 : index
    }
    %rowsOff = arith.subi %p, %r : index
    %off = arith.muli %rowsOff, %pitch : index
    {range}
    {share}
    scf.for %t = %firstStep to %lastStep step %c1 {
      %passed = arith.muli %t, %step : index
      %here = arith.addi %start, %passed : index
      %there = arith.addi %here, %off : index
      {copy}
    }
  }
  return
}
)mlir";

static const char kVectorShare[] = R"mlir(
    %c16 = arith.constant 16 : index
    %left = arith.subi %end, %begin : index
    %rest = arith.remui %left, %c16 : index
    %whole = arith.subi %end, %rest : index
)mlir";
static const char kVectorCopy[] = R"mlir(
      scf.for %c = %begin to %whole step %c16 {
        %a = arith.addi %there, %c : index
        %x = vector.load %from[%a] : memref<?x{T}>, vector<16x{T}>
        %z = arith.addi %here, %c : index
        vector.store %x, %to[%z] : memref<?x{T}>, vector<16x{T}>
      }
      scf.for %c = %whole to %end step %c1 {
        %a = arith.addi %there, %c : index
        %x = memref.load %from[%a] : memref<?x{T}>
        %z = arith.addi %here, %c : index
        memref.store %x, %to[%z] : memref<?x{T}>
      }
)mlir";

/// By a block of a GPU.
static const char kBlockShare[] = R"mlir(
    %threads = arith.constant {threads} : index
    %thread = gpu.thread_id x
    %mine = arith.addi %begin, %thread : index
)mlir";
static const char kBlockCopy[] = R"mlir(
      scf.for %c = %mine to %end step %threads {
        %a = arith.addi %there, %c : index
        %x = memref.load %from[%a] : memref<?x{T}>
        %z = arith.addi %here, %c : index
        memref.store %x, %to[%z] : memref<?x{T}>
      }
)mlir";

// The positions of a row lie side by side: a copy for each dimension between the two.
static const char kRowSizes[] = R"mlir(
  %pitch = arith.muli %middle, %stride : index
  %size = arith.muli %all, %stride : index
  %step = arith.constant 0 : index
)mlir";
static const char kRowPlace[] = R"mlir(
  %line = arith.divui %i, %middle : index
  %r = arith.remui %line, %rows : index
  %start = arith.muli %i, %stride : index
)mlir";
static const char kRowRange[] = R"mlir(
  %firstStep = arith.constant 0 : index
  %lastStep = arith.constant 1 : index
  %begin = arith.addi %shared, %c0 : index
  %end = arith.addi %columns, %c0 : index
)mlir";

// The rows of a position lie side by side: a copy a position.
static const char kStepSizes[] = R"mlir(
  %pitch = arith.addi %stride, %c0 : index
  %step = arith.muli %some, %stride : index
  %blocks = arith.muli %front, %room : index
  %size = arith.muli %blocks, %step : index
)mlir";
static const char kStepPlace[] = R"mlir(
  %f = arith.divui %i, %some : index
  %inside = arith.remui %i, %some : index
  %r = arith.remui %inside, %rows : index
  %before = arith.muli %f, %room : index
  %behind = arith.muli %before, %step : index
  %at = arith.muli %inside, %stride : index
  %start = arith.addi %behind, %at : index
)mlir";
static const char kStepRange[] = R"mlir(
  %firstStep = arith.addi %shared, %c0 : index
  %lastStep = arith.addi %columns, %c0 : index
  %begin = arith.constant 0 : index
  %end = arith.addi %stride, %c0 : index
)mlir";

func::FuncOp attn::buildSearchMove(OpBuilder &b, StringRef symbol, const SearchMoveSpec &spec) {
  std::string type, element, sizes;
  llvm::raw_string_ostream(type) << MemRefType::get(spec.state.getShape(), spec.state.getElementType());
  llvm::raw_string_ostream(element) << spec.state.getElementType();
  llvm::raw_string_ostream text(sizes);
  // The product of the dimensions in [begin, end).
  auto multiply = [&](StringRef name, int64_t begin, int64_t end) {
    std::string last = "%c1";
    for (int64_t n = begin; n < end; ++n) {
      text << "%n" << n << " = arith.constant " << n << " : index\n";
      text << "%d" << n << " = memref.dim %in, %n" << n << " : " << type << "\n";
      text << "%p" << n << " = arith.muli " << last << ", %d" << n << " : index\n";
      last = "%p" + std::to_string(n);
    }
    text << "%" << name << " = arith.muli " << last << ", %c1 : index\n";
  };
  int64_t first = std::min(spec.rowsDim, spec.growDim), second = std::max(spec.rowsDim, spec.growDim);
  bool rowsFirst = first == spec.rowsDim;
  multiply("front", 0, first);
  multiply("middle", first + 1, second);
  multiply("stride", rowsFirst ? second : second + 1, spec.state.getRank());
  if (!rowsFirst)
    multiply("room", first, first + 1);
  return parseKernel(b, kMove,
                     {{"symbol", symbol.str()},
                      {"sizes", sizes},
                      {"totals", rowsFirst ? kRowSizes : kStepSizes},
                      {"place", rowsFirst ? kRowPlace : kStepPlace},
                      {"range", rowsFirst ? kRowRange : kStepRange},
                      {"share", spec.forGpu ? kBlockShare : kVectorShare},
                      {"copy", spec.forGpu ? kBlockCopy : kVectorCopy},
                      {"threads", std::to_string(SearchMoveSpec::kGpuThreads)},
                      {"type", type},
                      {"T", element},
                      {"K", std::to_string(spec.width)},
                      {"W", std::to_string(spec.width + 1)}});
}
