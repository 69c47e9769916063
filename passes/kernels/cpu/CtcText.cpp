// What scores of frames spell: the kernels of attn.ctc_search. One item is one
// task; all it needs besides is given as scratch.
#include "passes/kernels/cpu/SearchText.h"

using namespace mlir;
using namespace attn;

// {time} and {item} are indices of the scores in the order of their layout.
static const char kStart[] = R"mlir(
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c16 = arith.constant 16 : index
  %i0 = arith.constant 0 : i64
  %i1 = arith.constant 1 : i64
  %none = arith.constant -1 : i64
  %ninf = arith.constant 0xFF800000 : f32
  %ninf64 = arith.constant 0xFFF0000000000000 : f64
  %zerof = arith.constant 0.0 : f32
  %zero64 = arith.constant 0.0 : f64
  %true = arith.constant true
  %wide = arith.constant dense<0xFF800000> : vector<16xf32>
  %zeros = arith.constant dense<0.0> : vector<16xf32>
  %blank = arith.constant {blank} : i64
  %items = memref.dim %frames, %c0 : memref<?xi64>
  %most = memref.dim %scores, {timeDim} : memref<?x?x?xf32>
  %size = memref.dim %scores, %c2 : memref<?x?x?xf32>
  %most64 = arith.index_cast %most : index to i64
  scf.parallel (%b) = (%c0) to (%items) step (%c1) {
    memref.store %i0, %flags[%b, %c0] : memref<?x2xi64>
    %given = memref.load %frames[%b] : memref<?xi64>
    %negative = arith.cmpi slt, %given, %i0 : i64
    %beyond = arith.cmpi sgt, %given, %most64 : i64
    %wrong = arith.ori %negative, %beyond : i1
    %wrong64 = arith.extui %wrong : i1 to i64
    memref.store %wrong64, %flags[%b, %c1] : memref<?x2xi64>
    %safe64 = arith.select %wrong, %i0, %given : i64
    %count = arith.index_cast %safe64 : i64 to index
)mlir";

/// %lse of frame %t, and whether it is a number: %good.
static const char kLogSum[] = R"mlir(
      %mosts = scf.for %l.v = %c0 to %size step %c16 iter_args(%l.m = %wide) -> (vector<16xf32>) {
        %l.x = vector.transfer_read %scores[{time}, {item}, %l.v], %ninf : memref<?x?x?xf32>, vector<16xf32>
        %l.n = arith.maximumf %l.m, %l.x : vector<16xf32>
        scf.yield %l.n : vector<16xf32>
      }
      %max = vector.reduction <maximumf>, %mosts : vector<16xf32> into f32
      %maxes = vector.broadcast %max : f32 to vector<16xf32>
      %sums = scf.for %l.v = %c0 to %size step %c16 iter_args(%l.s = %zeros) -> (vector<16xf32>) {
        %l.x = vector.transfer_read %scores[{time}, {item}, %l.v], %ninf : memref<?x?x?xf32>, vector<16xf32>
        %l.d = arith.subf %l.x, %maxes : vector<16xf32>
        %l.e = math.exp %l.d : vector<16xf32>
        %l.left = arith.subi %size, %l.v : index
        %l.inside = vector.create_mask %l.left : vector<16xi1>
        %l.kept = arith.select %l.inside, %l.e, %zeros : vector<16xi1>, vector<16xf32>
        %l.n = arith.addf %l.s, %l.kept : vector<16xf32>
        scf.yield %l.n : vector<16xf32>
      }
      %sum = vector.reduction <add>, %sums : vector<16xf32> into f32
      %log = math.log %sum : f32
      %lse = arith.addf %max, %log : f32
)mlir";

/// The same in one thread of a GPU.
static const char kScalarLogSum[] = R"mlir(
      %max = scf.for %l.v = %c0 to %size step %c1 iter_args(%l.m = %ninf) -> (f32) {
        %l.x = memref.load %scores[{time}, {item}, %l.v] : memref<?x?x?xf32>
        %l.n = arith.maximumf %l.m, %l.x : f32
        scf.yield %l.n : f32
      }
      %sum = scf.for %l.v = %c0 to %size step %c1 iter_args(%l.s = %zerof) -> (f32) {
        %l.x = memref.load %scores[{time}, {item}, %l.v] : memref<?x?x?xf32>
        %l.d = arith.subf %l.x, %max : f32
        %l.e = math.exp %l.d : f32
        %l.n = arith.addf %l.s, %l.e : f32
        scf.yield %l.n : f32
      }
      %log = math.log %sum : f32
      %lse = arith.addf %max, %log : f32
)mlir";

/// Behind either.
static const char kIsGood[] = R"mlir(
      %same = arith.subf %lse, %lse : f32
      %good = arith.cmpf oeq, %same, %zerof : f32
      %bad = arith.xori %good, %true : i1
      scf.if %bad {
        memref.store %i1, %flags[%b, %c0] : memref<?x2xi64>
      }
)mlir";

static const char kGreedy[] = R"mlir(
func.func @{symbol}(%scores: memref<?x?x?xf32>, %frames: memref<?xi64>, %labels: memref<?x1x?xi64>,
                    %lengths: memref<?x1xi64>, %totals: memref<?x1xf32>, %flags: memref<?x2xi64>)
    attributes {attn.kernel} {
  {start}
    scf.for %i = %c0 to %most step %c1 {
      memref.store %blank, %labels[%b, %c0, %i] : memref<?x1x?xi64>
    }
    %length, %final, %total = scf.for %t = %c0 to %count step %c1
        iter_args(%n = %c0, %before = %blank, %score = %zero64) -> (index, i64, f64) {
      {logsum}
      %first = scf.while (%v = %c0) : (index) -> index {
        %last = arith.subi %size, %c1 : index
        %inner = arith.cmpi slt, %v, %last : index
        %x = memref.load %scores[{time}, {item}, %v] : memref<?x?x?xf32>
        %less = arith.cmpf olt, %x, %max : f32
        %go = arith.andi %inner, %less : i1
        scf.condition(%go) %v : index
      } do {
      ^bb0(%v: index):
        %next = arith.addi %v, %c1 : index
        scf.yield %next : index
      }
      %label = arith.index_cast %first : index to i64
      %isNew = arith.cmpi ne, %label, %before : i64
      %isLabel = arith.cmpi ne, %label, %blank : i64
      %taken = arith.andi %isNew, %isLabel : i1
      %n2 = scf.if %taken -> (index) {
        memref.store %label, %labels[%b, %c0, %n] : memref<?x1x?xi64>
        %more = arith.addi %n, %c1 : index
        scf.yield %more : index
      } else {
        scf.yield %n : index
      }
      %p = arith.subf %max, %lse : f32
      %p64 = arith.extf %p : f32 to f64
      %score2 = arith.addf %score, %p64 : f64
      scf.yield %n2, %label, %score2 : index, i64, f64
    }
    %length64 = arith.index_cast %length : index to i64
    memref.store %length64, %lengths[%b, %c0] : memref<?x1xi64>
    %total32 = arith.truncf %total : f64 to f32
    memref.store %total32, %totals[%b, %c0] : memref<?x1xf32>
  }
  return
}
)mlir";

/// %{name} = log(exp(%{a}) + exp(%{b})); the small part in f32.
static std::string addLogs(const std::string &name, const std::string &a, const std::string &b) {
  std::string text = R"mlir(
        %N.top = arith.maximumf %A, %B : f64
        %N.low = arith.minimumf %A, %B : f64
        %N.diff = arith.subf %N.low, %N.top : f64
        %N.diff32 = arith.truncf %N.diff : f64 to f32
        %N.exp = math.exp %N.diff32 : f32
        %N.part = math.log1p %N.exp : f32
        %N.part64 = arith.extf %N.part : f32 to f64
        %N.sum = arith.addf %N.top, %N.part64 : f64
        %N.some = arith.cmpf ogt, %N.low, %ninf64 : f64
        %N = arith.select %N.some, %N.sum, %N.top : f64
)mlir";
  for (const auto &[key, value] :
       {std::pair<std::string, std::string>{"%N", "%" + name}, {"%A", "%" + a}, {"%B", "%" + b}})
    for (size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += value.size())
      text.replace(at, key.size(), value);
  return text;
}

/// Puts a candidate, from prefix %k with label `label`, behind those that are as good.
static std::string insertCandidate(const std::string &total, const std::string &blank, const std::string &other,
                                   const std::string &label) {
  std::string text = R"mlir(
          %place = scf.while (%i.p = %final) : (index) -> index {
            %inner = arith.cmpi sgt, %i.p, %c0 : index
            %before = arith.subi %i.p, %c1 : index
            %safe = arith.maxsi %before, %c0 : index
            %rival = memref.load %numbers[%b, %c1, %safe, %c0] : memref<?x2x{K}x3xf64>
            %less = arith.cmpf olt, %rival, %T : f64
            %go = arith.andi %inner, %less : i1
            scf.condition(%go) %i.p : index
          } do {
          ^bb0(%i.p: index):
            %before = arith.subi %i.p, %c1 : index
            scf.for %j = %c0 to %c3 step %c1 {
              %x0 = memref.load %numbers[%b, %c1, %before, %j] : memref<?x2x{K}x3xf64>
              memref.store %x0, %numbers[%b, %c1, %i.p, %j] : memref<?x2x{K}x3xf64>
            }
            scf.for %j = %c0 to %c2 step %c1 {
              %x0 = memref.load %places[%b, %c1, %before, %j] : memref<?x2x{K}x2xi64>
              memref.store %x0, %places[%b, %c1, %i.p, %j] : memref<?x2x{K}x2xi64>
            }
            scf.yield %before : index
          }
          memref.store %T, %numbers[%b, %c1, %place, %c0] : memref<?x2x{K}x3xf64>
          memref.store %P, %numbers[%b, %c1, %place, %c1] : memref<?x2x{K}x3xf64>
          memref.store %O, %numbers[%b, %c1, %place, %c2] : memref<?x2x{K}x3xf64>
          %k64 = arith.index_cast %k : index to i64
          memref.store %k64, %places[%b, %c1, %place, %c0] : memref<?x2x{K}x2xi64>
          memref.store %L, %places[%b, %c1, %place, %c1] : memref<?x2x{K}x2xi64>
)mlir";
  for (const auto &[key, value] : {std::pair<std::string, std::string>{"%T", "%" + total},
                                   {"%P", "%" + blank},
                                   {"%O", "%" + other},
                                   {"%L", "%" + label}})
    for (size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += value.size())
      text.replace(at, key.size(), value);
  return text;
}

/// One longer prefix: label %i behind prefix %k.
static const char kExtend[] = R"mlir(
                %xi = memref.load %scores[{time}, {item}, %i] : memref<?x?x?xf32>
                %pi = arith.subf %xi, %lse : f32
                %pi64 = arith.extf %pi : f32 to f64
                %label = arith.index_cast %i : index to i64
                %repeats = arith.cmpi eq, %label, %own : i64
                %base = arith.select %repeats, %inBlank, %sum0 : f64
                %longer = arith.addf %base, %pi64 : f64
                %bar = memref.load %numbers[%b, %c1, %final, %c0] : memref<?x2x{K}x3xf64>
                %better = arith.cmpf ogt, %longer, %bar : f64
                %isLabel = arith.cmpi ne, %label, %blank : i64
                %may = arith.andi %better, %isLabel : i1
                %enters = scf.if %may -> (i1) {
                  // One that lives already got its part above.
                  %free = scf.for %j = %c0 to %width step %c1 iter_args(%so = %true) -> (i1) {
                    %other = memref.load %places[%b, %c0, %j, %c0] : memref<?x2x{K}x2xi64>
                    %sumJ = memref.load %numbers[%b, %c0, %j, %c0] : memref<?x2x{K}x3xf64>
                    %dead = arith.cmpf oeq, %sumJ, %ninf64 : f64
                    %otherAt = arith.index_cast %other : i64 to index
                    %up = memref.load %tree[%b, %otherAt, %c0] : memref<?x?x4xi64>
                    %last = memref.load %tree[%b, %otherAt, %c1] : memref<?x?x4xi64>
                    %differs0 = arith.cmpi ne, %up, %node : i64
                    %differs1 = arith.cmpi ne, %last, %label : i64
                    %differs2 = arith.ori %differs0, %differs1 : i1
                    %differs = arith.ori %differs2, %dead : i1
                    %so2 = arith.andi %so, %differs : i1
                    scf.yield %so2 : i1
                  }
                  scf.yield %free : i1
                } else {
                  scf.yield %may : i1
                }
                scf.if %enters {
                  {insertLonger}
                }
)mlir";

/// All of them; sixteen labels of which none can enter are passed over.
static const char kVectorSweep[] = R"mlir(
          %lses = vector.broadcast %lse : f32 to vector<16xf32>
          scf.for %v = %c0 to %size step %c16 {
            %x = vector.transfer_read %scores[{time}, {item}, %v], %ninf : memref<?x?x?xf32>, vector<16xf32>
            %p = arith.subf %x, %lses : vector<16xf32>
            %p64 = arith.extf %p : vector<16xf32> to vector<16xf64>
            %bases = vector.broadcast %sum0 : f64 to vector<16xf64>
            %s = arith.addf %bases, %p64 : vector<16xf64>
            %least = memref.load %numbers[%b, %c1, %final, %c0] : memref<?x2x{K}x3xf64>
            %leasts = vector.broadcast %least : f64 to vector<16xf64>
            %above = arith.cmpf ogt, %s, %leasts : vector<16xf64>
            %any = vector.reduction <or>, %above : vector<16xi1> into i1
            scf.if %any {
              %next = arith.addi %v, %c16 : index
              %end = arith.minsi %next, %size : index
              scf.for %i = %v to %end step %c1 {
                {extend}
              }
            }
          }
)mlir";
static const char kScalarSweep[] = R"mlir(
          scf.for %i = %c0 to %size step %c1 {
            {extend}
          }
)mlir";

// Prefixes are nodes of a tree [parent, label, first child, next child of the
// parent], node 0 the empty one: two prefixes are equal where their nodes are.
// %places and %numbers have what lives (0) and the candidates (1).
static const char kBeam[] = R"mlir(
func.func @{symbol}(%scores: memref<?x?x?xf32>, %frames: memref<?xi64>, %labels: memref<?x{N}x?xi64>,
                    %lengths: memref<?x{N}xi64>, %totals: memref<?x{N}xf32>, %flags: memref<?x2xi64>,
                    %tree: memref<?x?x4xi64>, %places: memref<?x2x{K}x2xi64>,
                    %numbers: memref<?x2x{K}x3xf64>) attributes {attn.kernel} {
  %width = arith.constant {K} : index
  %best = arith.constant {N} : index
  {start}
    %final = arith.subi %width, %c1 : index
    scf.for %k = %c0 to %width step %c1 {
      memref.store %i0, %places[%b, %c0, %k, %c0] : memref<?x2x{K}x2xi64>
      scf.for %j = %c0 to %c3 step %c1 {
        memref.store %ninf64, %numbers[%b, %c0, %k, %j] : memref<?x2x{K}x3xf64>
      }
    }
    memref.store %zero64, %numbers[%b, %c0, %c0, %c0] : memref<?x2x{K}x3xf64>
    memref.store %zero64, %numbers[%b, %c0, %c0, %c1] : memref<?x2x{K}x3xf64>
    scf.for %j = %c0 to %c3 step %c1 {
      memref.store %none, %tree[%b, %c0, %j] : memref<?x?x4xi64>
    }
    memref.store %none, %tree[%b, %c0, %c3] : memref<?x?x4xi64>
    %nodes = scf.for %t = %c0 to %count step %c1 iter_args(%used = %i1) -> (i64) {
      {logsum}
      scf.for %k = %c0 to %width step %c1 {
        memref.store %ninf64, %numbers[%b, %c1, %k, %c0] : memref<?x2x{K}x3xf64>
        memref.store %none, %places[%b, %c1, %k, %c0] : memref<?x2x{K}x2xi64>
      }
      %blankAt = arith.index_cast %blank : i64 to index
      %blankX = memref.load %scores[{time}, {item}, %blankAt] : memref<?x?x?xf32>
      %blankP = arith.subf %blankX, %lse : f32
      %blankP64 = arith.extf %blankP : f32 to f64
      scf.for %k = %c0 to %width step %c1 {
        %sum0 = memref.load %numbers[%b, %c0, %k, %c0] : memref<?x2x{K}x3xf64>
        %alive0 = arith.cmpf ogt, %sum0, %ninf64 : f64
        %alive = arith.andi %alive0, %good : i1
        scf.if %alive {
          %inBlank = memref.load %numbers[%b, %c0, %k, %c1] : memref<?x2x{K}x3xf64>
          %inLabel = memref.load %numbers[%b, %c0, %k, %c2] : memref<?x2x{K}x3xf64>
          %node = memref.load %places[%b, %c0, %k, %c0] : memref<?x2x{K}x2xi64>
          %nodeAt = arith.index_cast %node : i64 to index
          %parent = memref.load %tree[%b, %nodeAt, %c0] : memref<?x?x4xi64>
          %own = memref.load %tree[%b, %nodeAt, %c1] : memref<?x?x4xi64>
          %stayBlank = arith.addf %sum0, %blankP64 : f64
          %isRoot = arith.cmpi slt, %own, %i0 : i64
          %stayLabel = scf.if %isRoot -> (f64) {
            scf.yield %ninf64 : f64
          } else {
            %ownAt = arith.index_cast %own : i64 to index
            %x = memref.load %scores[{time}, {item}, %ownAt] : memref<?x?x?xf32>
            %p = arith.subf %x, %lse : f32
            %p64 = arith.extf %p : f32 to f64
            %again = arith.addf %inLabel, %p64 : f64
            // The prefix without its last label may live, too.
            %came = scf.for %j = %c0 to %width step %c1 iter_args(%so = %ninf64) -> (f64) {
              %other = memref.load %places[%b, %c0, %j, %c0] : memref<?x2x{K}x2xi64>
              %sumJ = memref.load %numbers[%b, %c0, %j, %c0] : memref<?x2x{K}x3xf64>
              %lives = arith.cmpf ogt, %sumJ, %ninf64 : f64
              %isParent0 = arith.cmpi eq, %other, %parent : i64
              %isParent = arith.andi %isParent0, %lives : i1
              %otherAt = arith.index_cast %other : i64 to index
              %label = memref.load %tree[%b, %otherAt, %c1] : memref<?x?x4xi64>
              %repeats = arith.cmpi eq, %label, %own : i64
              %blankJ = memref.load %numbers[%b, %c0, %j, %c1] : memref<?x2x{K}x3xf64>
              %base = arith.select %repeats, %blankJ, %sumJ : f64
              %longer = arith.addf %base, %p64 : f64
              %so2 = arith.select %isParent, %longer, %so : f64
              scf.yield %so2 : f64
            }
            {again}
            scf.yield %both : f64
          }
          {stay}
          %leastStay = memref.load %numbers[%b, %c1, %final, %c0] : memref<?x2x{K}x3xf64>
          %entersStay = arith.cmpf ogt, %stays, %leastStay : f64
          scf.if %entersStay {
            {insertStay}
          }
          {sweep}
        }
      }
      %used2 = scf.for %k = %c0 to %width step %c1 iter_args(%n = %used) -> (i64) {
        %k64 = memref.load %places[%b, %c1, %k, %c0] : memref<?x2x{K}x2xi64>
        %label = memref.load %places[%b, %c1, %k, %c1] : memref<?x2x{K}x2xi64>
        %isOne = arith.cmpi sge, %k64, %i0 : i64
        %safe64b = arith.maxsi %k64, %i0 : i64
        %origin = arith.index_cast %safe64b : i64 to index
        %node = memref.load %places[%b, %c0, %origin, %c0] : memref<?x2x{K}x2xi64>
        %isLonger0 = arith.cmpi sge, %label, %i0 : i64
        %isLonger = arith.andi %isLonger0, %isOne : i1
        %now, %n2 = scf.if %isLonger -> (i64, i64) {
          %nodeAt = arith.index_cast %node : i64 to index
          %firstChild = memref.load %tree[%b, %nodeAt, %c2] : memref<?x?x4xi64>
          %child = scf.while (%c = %firstChild) : (i64) -> i64 {
            %is = arith.cmpi sge, %c, %i0 : i64
            %cSafe = arith.maxsi %c, %i0 : i64
            %cAt = arith.index_cast %cSafe : i64 to index
            %cLabel = memref.load %tree[%b, %cAt, %c1] : memref<?x?x4xi64>
            %other = arith.cmpi ne, %cLabel, %label : i64
            %go = arith.andi %is, %other : i1
            scf.condition(%go) %c : i64
          } do {
          ^bb0(%c: i64):
            %cAt = arith.index_cast %c : i64 to index
            %next = memref.load %tree[%b, %cAt, %c3] : memref<?x?x4xi64>
            scf.yield %next : i64
          }
          %known = arith.cmpi sge, %child, %i0 : i64
          %is2, %n3 = scf.if %known -> (i64, i64) {
            scf.yield %child, %n : i64, i64
          } else {
            %newAt = arith.index_cast %n : i64 to index
            memref.store %node, %tree[%b, %newAt, %c0] : memref<?x?x4xi64>
            memref.store %label, %tree[%b, %newAt, %c1] : memref<?x?x4xi64>
            memref.store %none, %tree[%b, %newAt, %c2] : memref<?x?x4xi64>
            memref.store %firstChild, %tree[%b, %newAt, %c3] : memref<?x?x4xi64>
            memref.store %n, %tree[%b, %nodeAt, %c2] : memref<?x?x4xi64>
            %more = arith.addi %n, %i1 : i64
            scf.yield %n, %more : i64, i64
          }
          scf.yield %is2, %n3 : i64, i64
        } else {
          scf.yield %node, %n : i64, i64
        }
        memref.store %now, %places[%b, %c0, %k, %c1] : memref<?x2x{K}x2xi64>
        scf.yield %n2 : i64
      }
      scf.for %k = %c0 to %width step %c1 {
        %now = memref.load %places[%b, %c0, %k, %c1] : memref<?x2x{K}x2xi64>
        memref.store %now, %places[%b, %c0, %k, %c0] : memref<?x2x{K}x2xi64>
        scf.for %j = %c0 to %c3 step %c1 {
          %x = memref.load %numbers[%b, %c1, %k, %j] : memref<?x2x{K}x3xf64>
          memref.store %x, %numbers[%b, %c0, %k, %j] : memref<?x2x{K}x3xf64>
        }
      }
      scf.yield %used2 : i64
    }
    scf.for %k = %c0 to %best step %c1 {
      scf.for %i = %c0 to %most step %c1 {
        memref.store %blank, %labels[%b, %k, %i] : memref<?x{N}x?xi64>
      }
      %sum0 = memref.load %numbers[%b, %c0, %k, %c0] : memref<?x2x{K}x3xf64>
      %total = arith.truncf %sum0 : f64 to f32
      memref.store %total, %totals[%b, %k] : memref<?x{N}xf32>
      %alive = arith.cmpf ogt, %sum0, %ninf64 : f64
      %node = memref.load %places[%b, %c0, %k, %c0] : memref<?x2x{K}x2xi64>
      %start = arith.select %alive, %node, %i0 : i64
      %unused, %length = scf.while (%n = %start, %i = %c0) : (i64, index) -> (i64, index) {
        %go = arith.cmpi sgt, %n, %i0 : i64
        scf.condition(%go) %n, %i : i64, index
      } do {
      ^bb0(%n: i64, %i: index):
        %nAt = arith.index_cast %n : i64 to index
        %up = memref.load %tree[%b, %nAt, %c0] : memref<?x?x4xi64>
        %more = arith.addi %i, %c1 : index
        scf.yield %up, %more : i64, index
      }
      %length64 = arith.index_cast %length : index to i64
      memref.store %length64, %lengths[%b, %k] : memref<?x{N}xi64>
      %end = scf.for %i = %c0 to %length step %c1 iter_args(%n = %start) -> (i64) {
        %nAt = arith.index_cast %n : i64 to index
        %label = memref.load %tree[%b, %nAt, %c1] : memref<?x?x4xi64>
        %left = arith.subi %length, %i : index
        %place = arith.subi %left, %c1 : index
        memref.store %label, %labels[%b, %k, %place] : memref<?x{N}x?xi64>
        %up = memref.load %tree[%b, %nAt, %c0] : memref<?x?x4xi64>
        scf.yield %up : i64
      }
    }
  }
  return
}
)mlir";

func::FuncOp attn::buildCtc(OpBuilder &b, StringRef symbol, const CtcKernelSpec &spec) {
  bool isBeam = spec.width > 0;
  // In this order: what is put in holds names that follow.
  return parseKernel(b, isBeam ? kBeam : kGreedy,
                     {{"start", kStart},
                      {"sweep", spec.forGpu ? kScalarSweep : kVectorSweep},
                      {"extend", kExtend},
                      {"logsum", std::string(spec.forGpu ? kScalarLogSum : kLogSum) + kIsGood},
                      {"again", addLogs("both", "again", "came")},
                      {"stay", addLogs("stays", "stayBlank", "stayLabel")},
                      {"insertStay", insertCandidate("stays", "stayBlank", "stayLabel", "none")},
                      {"insertLonger", insertCandidate("longer", "ninf64", "longer", "label")},
                      {"symbol", symbol.str()},
                      {"time", spec.timeMajor ? "%t" : "%b"},
                      {"item", spec.timeMajor ? "%b" : "%t"},
                      {"timeDim", spec.timeMajor ? "%c0" : "%c1"},
                      {"blank", std::to_string(spec.blank)},
                      {"K", std::to_string(spec.width)},
                      {"N", std::to_string(spec.best)}});
}

static const char kLengths[] = R"mlir(
func.func @{symbol}(%lengths: memref<?x{N}xi64>, %flags: memref<?x2xi64>, %result: memref<3xi64>)
    attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %i0 = arith.constant 0 : i64
  %i1 = arith.constant 1 : i64
  %best = arith.constant {N} : index
  %items = memref.dim %lengths, %c0 : memref<?x{N}xi64>
  %longest, %bad, %wrong = scf.for %b = %c0 to %items step %c1
      iter_args(%m = %i0, %x = %i0, %y = %i0) -> (i64, i64, i64) {
    %n = scf.for %k = %c0 to %best step %c1 iter_args(%a = %m) -> (i64) {
      %length = memref.load %lengths[%b, %k] : memref<?x{N}xi64>
      %more = arith.maxsi %a, %length : i64
      scf.yield %more : i64
    }
    %f0 = memref.load %flags[%b, %c0] : memref<?x2xi64>
    %f1 = memref.load %flags[%b, %c1] : memref<?x2xi64>
    %item = arith.index_cast %b : index to i64
    %number = arith.addi %item, %i1 : i64
    %has0 = arith.muli %f0, %number : i64
    %has1 = arith.muli %f1, %number : i64
    %none0 = arith.cmpi eq, %x, %i0 : i64
    %none1 = arith.cmpi eq, %y, %i0 : i64
    %x2 = arith.select %none0, %has0, %x : i64
    %y2 = arith.select %none1, %has1, %y : i64
    scf.yield %n, %x2, %y2 : i64, i64, i64
  }
  memref.store %longest, %result[%c0] : memref<3xi64>
  memref.store %bad, %result[%c1] : memref<3xi64>
  memref.store %wrong, %result[%c2] : memref<3xi64>
  return
}
)mlir";

func::FuncOp attn::buildCtcLength(OpBuilder &b, StringRef symbol, int64_t best) {
  return parseKernel(b, kLengths, {{"symbol", symbol.str()}, {"N", std::to_string(best)}});
}
