// Which candidates live on: the kernels of greedy and beam search.
#include "passes/kernels/cpu/SearchText.h"

using namespace mlir;
using namespace attn;

static const char kSignature[] = R"mlir(
func.func @{symbol}(%values: memref<?x{C}xf32>, %ids: memref<?x{C}xi64>, %lses: memref<?xf32>,
    %live: memref<?x{K}xf32>, %best: memref<?x{K}xf32>, %info: memref<?x{K}x3xi64>, %open: memref<?xi64>,
    %penalty: f32, %step: i64, %last: i1,{terms}
    %live2: memref<?x{K}xf32>, %best2: memref<?x{K}xf32>, %info2: memref<?x{K}x3xi64>, %open2: memref<?xi64>,
    %parents: memref<?xi64>, %tokens: memref<?xi64>, %flags: memref<2xi64>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %ninf = arith.constant 0xFF800000 : f32
  %zerof = arith.constant 0.0 : f32
  %i0 = arith.constant 0 : i64
  %i1 = arith.constant 1 : i64
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
      %n = memref.load %flags[%c1] : memref<2xi64>
      %isFirst = arith.cmpi eq, %n, %i0 : i64
      %at = arith.index_cast %r : index to i64
      %number = arith.addi %at, %i1 : i64
      %m = arith.select %isFirst, %number, %n : i64
      memref.store %m, %flags[%c1] : memref<2xi64>
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
    %any = memref.load %flags[%c0] : memref<2xi64>
    %some = arith.ori %any, %now : i64
    memref.store %some, %flags[%c0] : memref<2xi64>
  }
  return
}
)mlir";

// The rows of an item are sorted already: a merge of them gives the candidates
// in order.
static const char kBeam[] = R"mlir(
  %width = arith.constant {K} : index
  %width64 = arith.constant {K} : i64
  %count = arith.constant {C} : index
  %final = arith.subi %width, %c1 : index
  %early = arith.constant {early}
  %shrink = arith.constant {shrink}
  %refill = arith.xori %shrink, %true : i1
  %heads = memref.alloca() : memref<{K}xindex>
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
      %r = arith.addi %base, %k : index
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
        %n = memref.load %flags[%c1] : memref<2xi64>
        %isFirst = arith.cmpi eq, %n, %i0 : i64
        %item = arith.index_cast %b : index to i64
        %number = arith.addi %item, %i1 : i64
        %m = arith.select %isFirst, %number, %n : i64
        memref.store %m, %flags[%c1] : memref<2xi64>
      }
      scf.yield %sum : i64
    }
    %room = arith.subi %width64, %complete : i64
    %placed, %taken = scf.for %c = %c0 to %count step %c1 iter_args(%at = %c0, %used = %i0) -> (index, i64) {
      %top, %from = scf.for %k = %c0 to %width step %c1 iter_args(%most = %ninf, %which = %width) -> (f32, index) {
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
      %go = arith.andi %some, %within : i1
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
          %joins = arith.andi %near, %isOpen : i1
          scf.if %joins {
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
            memref.store %top, %live2[%b, %at] : memref<?x{K}xf32>
            %slot = arith.addi %base, %at : index
            memref.store %row, %parents[%slot] : memref<?xi64>
            memref.store %token, %tokens[%slot] : memref<?xi64>
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
    %front = memref.load %live2[%b, %c0] : memref<?x{K}xf32>
    %hope = arith.divf %front, %penalty : f32
    %worst = memref.load %best2[%b, %final] : memref<?x{K}xf32>
    %improves = arith.cmpf ogt, %hope, %worst : f32
    %lives = arith.cmpf ogt, %front, %ninf : f32
    %useful = arith.select %shrink, %lives, %improves : i1
    %length = memref.load %info2[%b, %final, %c0] : memref<?x{K}x3xi64>
    %full = arith.cmpi ne, %length, %i0 : i64
    %stops = arith.andi %full, %early : i1
    %continues = arith.xori %stops, %true : i1
    %a1 = arith.andi %useful, %continues : i1
    %a2 = arith.andi %a1, %isOpen : i1
    %notLast = arith.xori %last, %true : i1
    %a3 = arith.andi %a2, %notLast : i1
    %now = arith.extui %a3 : i1 to i64
    memref.store %now, %open2[%b] : memref<?xi64>
    %any = memref.load %flags[%c0] : memref<2xi64>
    %some = arith.ori %any, %now : i64
    memref.store %some, %flags[%c0] : memref<2xi64>
  }
  return
}
)mlir";

static func::FuncOp buildChoice(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec, StringRef body) {
  return parseKernel(b, (kSignature + body).str(),
                     {{"symbol", symbol.str()},
                      {"terms", spec.coverage ? " %terms: memref<?xf32>," : ""},
                      {"score", spec.coverage ? "%term = memref.load %terms[%r] : memref<?xf32>\n"
                                                "%score = arith.addf %plain, %term : f32"
                                              : "%score = arith.addf %plain, %zerof : f32"},
                      {"ended", isEnd(spec.eos, "%token")},
                      {"pad", padOf(spec)},
                      {"early", spec.earlyStop ? "true" : "false"},
                      {"shrink", spec.shrink ? "true" : "false"},
                      {"C", std::to_string(spec.candidates())},
                      {"K", std::to_string(spec.width)}});
}

func::FuncOp attn::buildSearchGreedy(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) {
  return buildChoice(b, symbol, spec, kGreedy);
}

func::FuncOp attn::buildSearchBeam(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) {
  return buildChoice(b, symbol, spec, kBeam);
}
