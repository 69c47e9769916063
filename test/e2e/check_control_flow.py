#!/usr/bin/env python3
"""Compiles models with If, Loop, Scan and sequences, and compares each run with ONNX Runtime.

    check_control_flow.py [--tools=build/bin] [NAME...]

Each model is compiled at -O3 and -O0 and run on every one of its cases with one library.
"""
import argparse
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnx.parser

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def f32(*shape):
    return np.random.default_rng(sum(shape) + 7).standard_normal(shape).astype(np.float32)


def i64(*values, shape=None):
    return np.array(values, np.int64).reshape(shape if shape is not None else (len(values),))


def scalar(value, dtype=np.int64):
    return np.array(value, dtype)


MODELS = {
    # If: branches of other sizes, captures, a constant condition, nested.
    "if_shapes": ("""
agraph (bool c, float[n,4] x) => (float[m,4] y, int64[2] s)
{
  y, s = If (c) <
    then_branch = g1 () => (float[a,4] t, int64[2] ts) { t = Concat<axis=0>(x, x) ts = Shape(t) },
    else_branch = g2 () => (float[b,4] e, int64[2] es) { e = Neg(x) es = Shape(e) }>
}""", [dict(c=scalar(v, bool), x=f32(n, 4)) for v in (True, False) for n in (1, 3)]),
    "if_nested": ("""
agraph (bool c, bool d, float[n] x) => (float[n] y)
{
  two = Constant<value = float {2.0}>()
  z = Mul(x, two)
  y = If (c) <
    then_branch = g1 () => (float[n] t) {
      t = If (d) <then_branch = g3 () => (float[n] t3) { t3 = Add(z, x) },
                  else_branch = g4 () => (float[n] t4) { t4 = Sub(z, two) }> },
    else_branch = g2 () => (float[n] e) { e = Identity(z) }>
}""", [dict(c=scalar(c, bool), d=scalar(d, bool), x=f32(5)) for c in (True, False) for d in (True, False)]),
    # Loop: count, condition, both, neither iteration; a state of one shape.
    "loop_count": ("""
agraph (int64 m, float[n] x) => (float[n] y, float[k,n] all)
{
  t = Constant<value = bool {1}>()
  y, all = Loop (m, t, x) <body = b (int64 i, bool c, float[n] v) => (bool co, float[n] w, float[n] out) {
    fi = Cast<to=1>(i) w0 = Add(v, fi) w = Tanh(w0) out = Identity(v) co = Identity(c) }>
}""", [dict(m=scalar(m), x=f32(3)) for m in (0, 1, 5, -2)]),
    "loop_condition": ("""
agraph (int64 m, bool go, float[n] x, float limit) => (float[n] y, float[k] sums, int64 count)
{
  zero = Constant<value = int64 {0}>()
  one = Constant<value = int64 {1}>()
  y, count, sums = Loop (m, go, x, zero) <body = b (int64 i, bool c, float[n] v, int64 k) =>
    (bool co, float[n] w, int64 k2, float out) {
    w = Add(v, v) out = ReduceSum<keepdims=0>(w) co = Less(out, limit) k2 = Add(k, one) }>
}""", [dict(m=scalar(m), go=scalar(g, bool), x=np.abs(f32(3)), limit=scalar(l, np.float32))
       for m, g, l in ((100, True, 50), (3, True, 1e9), (100, False, 9), (100, True, -1), (0, True, 5), (70, True, 1e30))]),
    "while": ("""
agraph (float[n] x, float limit) => (float[n] y, float[k,n] all)
{
  y, all = Loop ("", "", x) <body = b (int64 i, bool c, float[n] v) => (bool co, float[n] w, float[n] o) {
    w = Add(v, v) s = ReduceSum<keepdims=0>(w) co = Less(s, limit) o = Identity(w) }>
}""", [dict(x=np.abs(f32(3)), limit=scalar(v, np.float32)) for v in (40, 1e12)]),
    # What is carried grows: at the front dimension, at an inner one, used while it grows, in any way.
    "grow_rows": ("""
agraph (int64 m, float[n,2] x) => (float[k,2] y, float s)
{
  t = Constant<value = bool {1}>()
  zero = Constant<value = float {0.0}>()
  y, s = Loop (m, t, x, zero) <body = b (int64 i, bool c, float[r,2] v, float a) => (bool co, float[q,2] w, float a2) {
    w = Concat<axis=0>(v, x) p = ReduceSum<keepdims=0>(w) a2 = Add(a, p) co = Identity(c) }>
}""", [dict(m=scalar(m), x=f32(n, 2)) for m in (0, 1, 6, 40) for n in (0, 1, 3)]),
    "grow_columns": ("""
agraph (int64 m, float[n,1] x) => (float[n,k] y, float[n] s)
{
  t = Constant<value = bool {1}>()
  ax = Constant<value = int64[1] {1}>()
  y = Loop (m, t, x) <body = b (int64 i, bool c, float[n,r] v) => (bool co, float[n,q] w) {
    last = ReduceMax<axes=[1]>(v) w = Concat<axis=1>(v, last, x) co = Identity(c) }>
  s = ReduceSum<keepdims=0>(y, ax)
}""", [dict(m=scalar(m), x=f32(n, 1)) for m in (0, 1, 30) for n in (1, 4)]),
    "grow_front": ("""
agraph (int64 m, float[n,2] x) => (float[k,2] y)
{
  t = Constant<value = bool {1}>()
  y = Loop (m, t, x) <body = b (int64 i, bool c, float[r,2] v) => (bool co, float[q,2] w) {
    w = Concat<axis=0>(x, v) co = Identity(c) }>
}""", [dict(m=scalar(m), x=f32(n, 2)) for m in (0, 1, 20) for n in (1, 3)]),
    "grow_both": ("""
agraph (int64 m, float[n,k] x) => (float[a,b] y)
{
  t = Constant<value = bool {1}>()
  y = Loop (m, t, x) <body = b (int64 i, bool c, float[p,q] v) => (bool co, float[r,s] w) {
    u = Concat<axis=0>(v, v) w0 = Transpose<perm=[1,0]>(u) w = Tanh(w0) co = Identity(c) }>
}""", [dict(m=scalar(m), x=f32(2, 3)) for m in (0, 1, 2, 7)]),
    "shrink": ("""
agraph (int64 m, float[n,2] x) => (float[k,2] y)
{
  t = Constant<value = bool {1}>()
  one = Constant<value = int64[1] {1}>()
  big = Constant<value = int64[1] {1000}>()
  zero = Constant<value = int64[1] {0}>()
  y = Loop (m, t, x) <body = b (int64 i, bool c, float[r,2] v) => (bool co, float[q,2] w) {
    w = Slice(v, one, big, zero) co = Identity(c) }>
}""", [dict(m=scalar(m), x=f32(5, 2)) for m in (0, 1, 4, 5, 9)]),
    "swap": ("""
agraph (int64 m, float[n] x, float[n] z) => (float[n] y, float[n] w)
{
  t = Constant<value = bool {1}>()
  y, w = Loop (m, t, x, z) <body = b (int64 i, bool c, float[n] p, float[n] q) => (bool co, float[n] r, float[n] s) {
    r = Identity(q) s = Add(p, q) co = Identity(c) }>
}""", [dict(m=scalar(m), x=f32(4), z=f32(4) + 1) for m in (0, 1, 2, 7)]),
    "nested": ("""
agraph (int64 m, int64 k, float[n,3] x) => (float[n,3] y, float[a,b,n,3] all)
{
  t = Constant<value = bool {1}>()
  y, all = Loop (m, t, x) <body = b (int64 i, bool c, float[n,3] v) => (bool co, float[n,3] w, float[b,n,3] o) {
    fi = Cast<to=1>(i)
    w, o = Loop (k, c, v) <body = d (int64 j, bool e, float[n,3] p) => (bool eo, float[n,3] q, float[n,3] r) {
      fj = Cast<to=1>(j) f = Sub(fi, fj) q0 = Add(p, f) q1 = Add(q0, x) q = Sigmoid(q1) r = Identity(q)
      eo = Identity(e) }>
    co = Identity(c) }>
}""", [dict(m=scalar(m), k=scalar(k), x=f32(n, 3)) for m, k, n in ((0, 3, 2), (3, 0, 2), (2, 4, 1), (3, 3, 5))]),
    "loop_if": ("""
agraph (int64 m, float[n] x) => (float[n] y)
{
  t = Constant<value = bool {1}>()
  two = Constant<value = int64 {2}>()
  zero = Constant<value = int64 {0}>()
  y = Loop (m, t, x) <body = b (int64 i, bool c, float[n] v) => (bool co, float[n] w) {
    r = Mod(i, two) even = Equal(r, zero)
    w = If (even) <then_branch = g1 () => (float[n] a) { a = Add(v, x) },
                   else_branch = g2 () => (float[n] e) { e = Sin(v) }>
    co = Identity(c) }>
}""", [dict(m=scalar(m), x=f32(6)) for m in (0, 1, 2, 5)]),
    # A cache that is read by what the body computes from it.
    "cache": ("""
agraph (int64 m, float[n,1,4] x) => (float[n,k,4] cache, float[a,n,1,4] all)
{
  t = Constant<value = bool {1}>()
  cache, last, all = Loop (m, t, x, x) <body = b (int64 i, bool c, float[n,r,4] kv, float[n,1,4] q) =>
    (bool co, float[n,s,4] kv2, float[n,1,4] q2, float[n,1,4] o) {
    kv2 = Concat<axis=1>(kv, q) kt = Transpose<perm=[0,2,1]>(kv2) s0 = MatMul(q, kt) p = Softmax<axis=-1>(s0)
    q2 = MatMul(p, kv2) o = Identity(q2) co = Identity(c) }>
}""", [dict(m=scalar(m), x=f32(n, 1, 4)) for m, n in ((0, 2), (1, 1), (21, 2))]),
    # Gathered values whose size only the body knows, in front and behind, in as many iterations as there are or fewer.
    "loop_gather_chosen": ("""
agraph (int64 m, float limit, bool[n] keep, float[n,3] x) => (float[n,3] y, float[k,r,3] all)
{
  t = Constant<value = bool {1}>()
  y, all = Loop (m, t, x) <body = b (int64 i, bool c, float[n,3] v) => (bool co, float[n,3] w, float[r,3] out) {
    w = Sin(v) out = Compress<axis=0>(w, keep) s = ReduceMax<keepdims=0>(w) co = Less(s, limit) }>
}""", [dict(m=scalar(m), limit=scalar(limit, np.float32), keep=np.array(keep, bool), x=f32(len(keep), 3))
       for m in (1, 7, 40) for limit in (2, 0.3) for keep in ([1, 0, 1, 1], [0, 0, 1], [0])]),
    "scan_gather_chosen": ("""
agraph (bool[n] keep, float[k,n] x) => (float y, float[r,k] all)
{
  z = Constant<value = float {0.0}>()
  y, all = Scan (z, x) <num_scan_inputs = 1, scan_output_axes = [1], body = b (float s, float[n] v) => (float w, float[r] out) {
    m = ReduceSum<keepdims=0>(v) w = Add(s, m) out = Compress<axis=0>(v, keep) }>
}""", [dict(keep=np.array(keep, bool), x=f32(k, len(keep))) for k in (1, 5) for keep in ([1, 0, 1, 1], [0, 1])]),
    # Sequences that loops gather, and lists.
    "sequence_loop": ("""
agraph (int64 m, float[n,2] x) => (float[n,k,2] y, float[r,2] z, int64 count)
{
  t = Constant<value = bool {1}>()
  empty = SequenceEmpty<dtype=1>()
  v, s = Loop (m, t, x, empty) <body = b (int64 i, bool c, float[n,2] p, seq(float[n,2]) q) =>
    (bool co, float[n,2] p2, seq(float[n,2]) q2) {
    p2 = Tanh(p) q2 = SequenceInsert(q, p2) co = Identity(c) }>
  s1 = SequenceInsert(s, x)
  y = ConcatFromSequence<axis=1, new_axis=1>(s1)
  z = ConcatFromSequence<axis=0>(s1)
  count = SequenceLength(s1)
}""", [dict(m=scalar(m), x=f32(n, 2)) for m, n in ((0, 2), (1, 1), (25, 3))]),
    "sequence_lists": ("""
agraph (float[6,n] x, float[2,n] z) => (float[2,n] a, float[10,n] b, float[2,2,n] c)
{
  two = Constant<value = int64 {2}>()
  one = Constant<value = int64 {1}>()
  minus = Constant<value = int64 {-1}>()
  s = SplitToSequence<axis=0>(x, two)
  s1 = SequenceInsert(s, z, one)
  a = SequenceAt(s1, minus)
  s2 = SequenceInsert(s1, a)
  b = ConcatFromSequence<axis=0>(s2)
  s3 = SequenceConstruct(a, z)
  c = ConcatFromSequence<axis=0, new_axis=1>(s3)
}""", [dict(x=f32(6, n), z=f32(2, n)) for n in (1, 3)]),
    "sequence_split": ("""
agraph (float[n,k] x, int64 at) => (float[n] y, float[k] z, int64 count)
{
  s = SplitToSequence<axis=1, keepdims=0>(x)
  y = SequenceAt(s, at)
  r = SplitToSequence<axis=0, keepdims=0>(x)
  z = SequenceAt(r, at)
  count = SequenceLength(s)
}""", [dict(x=f32(4, 3), at=scalar(v)) for v in (0, 2, -1)]),
    # Scan: axes, directions, several inputs.
    "scan": ("""
agraph (float[n] h0, float[n,t] x, float[t,n,2] z) => (float[n] h, float[n,t] a, float[t,n,2] b)
{
  h, a, b = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
    scan_output_axes = [1, 0], scan_output_directions = [0, 1],
    body = s (float[n] h1, float[n] xs, float[n,2] zs) => (float[n] h2, float[n] o1, float[n,2] o2) {
      h3 = Add(h1, xs) h2 = Tanh(h3) o1 = Mul(h2, xs)
      ax = Constant<value = int64[1] {1}>() u = Unsqueeze(h2, ax) o2 = Add(zs, u) }> (h0, x, z)
}""", [dict(h0=f32(n), x=f32(n, t), z=f32(t, n, 2)) for n, t in ((1, 1), (3, 5), (2, 9))]),
    "scan_step": ("""
agraph (float[n,8] h0, float[n,t,8] x, float[8,8] w, float[n,s,8] memory) => (float[n,8] h, float[t,n,8] out)
{
  h, out = Scan <num_scan_inputs = 1, scan_input_axes = [1],
    body = b (float[n,8] h1, float[n,8] xs) => (float[n,8] h2, float[n,8] o) {
      ax = Constant<value = int64[1] {1}>()
      q = MatMul(h1, w) q3 = Unsqueeze(q, ax) mt = Transpose<perm=[0,2,1]>(memory)
      s0 = MatMul(q3, mt) p = Softmax<axis=-1>(s0) c3 = MatMul(p, memory) c = Squeeze(c3, ax)
      h3 = Add(c, xs) h2 = Tanh(h3) o = Identity(h2) }> (h0, x)
}""", [dict(h0=f32(n, 8), x=f32(n, t, 8), w=f32(8, 8), memory=f32(n, s, 8)) for n, t, s in ((1, 1, 1), (3, 6, 5))]),
    # States that a body swaps, yields twice or as views of each other, and reads after it has written them.
    "states_swap": ("""
agraph (int64 m, float[n,4] x, float[n,4] x2) => (float[n,4] y, float[n,4] z)
{
  y, z = Loop (m, "", x, x2) <body = b (int64 i, bool c, float[n,4] a, float[n,4] b1) => (bool co, float[n,4] b1, float[n,4] a) { co = Identity(c) }>
}""", [dict(m=scalar(m), x=f32(3, 4), x2=f32(3, 4) + 1) for m in (0, 1, 2, 5)]),
    "states_identity": ("""
agraph (int64 m, float[n,4] x, float[n,4] x2) => (float[n,4] y, float[n,4] z)
{
  y, z = Loop (m, "", x, x2) <body = b (int64 i, bool c, float[n,4] a, float[n,4] b1) => (bool co, float[n,4] p, float[n,4] q) {
    co = Identity(c) p = Identity(b1) q = Identity(a) }>
}""", [dict(m=scalar(m), x=f32(3, 4), x2=f32(3, 4) + 1) for m in (0, 1, 2, 5)]),
    "states_shared": ("""
agraph (int64 m, float[n,4] x, float[n,4] x2) => (float[n,4] y, float[n,4] z)
{
  y, z = Loop (m, "", x, x2) <body = b (int64 i, bool c, float[n,4] a, float[n,4] b1) => (bool co, float[n,4] s, float[n,4] s) { co = Identity(c) s = Add(a, b1) }>
}""", [dict(m=scalar(m), x=f32(3, 4), x2=f32(3, 4) + 1) for m in (0, 1, 2, 5)]),
    "states_reshaped": ("""
agraph (int64 m, float[n,4] x, float[n,4] x2) => (float[n,4] y, float[n,4] z)
{
  y, z = Loop (m, "", x, x2) <body = b (int64 i, bool c, float[n,4] a, float[n,4] b1) => (bool co, float[n,4] p, float[n,4] q) {
    co = Identity(c) m1 = Constant<value_ints=[-1]>() flat = Reshape(a, m1) sh = Shape(b1) q0 = Reshape(flat, sh)
    p = Add(b1, q0) q = Identity(q0) }>
}""", [dict(m=scalar(m), x=f32(3, 4), x2=f32(3, 4) + 1) for m in (0, 1, 2, 5)]),
    "states_crossed_if": ("""
agraph (int64 m, float[n,4] x, float[n,4] x2) => (float[n,4] y, float[n,4] z)
{
  y, z = Loop (m, "", x, x2) <body = b (int64 i, bool c, float[n,4] a, float[n,4] b1) => (bool co, float[n,4] p, float[n,4] q) {
    co = Identity(c) one = Constant<value_int=1>() e = Equal(i, one)
    p, q = If (e) <then_branch = g1 () => (float[n,4] t1, float[n,4] t2) { t1 = Identity(b1) t2 = Identity(a) },
                   else_branch = g2 () => (float[n,4] e1, float[n,4] e2) { e1 = Identity(a) e2 = Tanh(b1) }> }>
}""", [dict(m=scalar(m), x=f32(3, 4), x2=f32(3, 4) + 1) for m in (0, 1, 2, 5)]),
    "states_first_or_second": ("""
agraph (int64 m, float[n,4] x, float[n,4] x2) => (float[n,4] y, float[n,4] z, float[k,n,4] u1, float[k,n,4] u2)
{
  y, z, u1, u2 = Loop (m, "", x, x2) <body = b (int64 i, bool c, float[n,4] a, float[n,4] b1) => (bool co, float[n,4] a, float[n,4] a, float[n,4] p, float[n,4] q) {
    co = Identity(c) one = Constant<value_int=1>() e = Equal(i, one)
    p, q = If (e) <then_branch = g1 () => (float[n,4] t1, float[n,4] t2) { t1 = Identity(b1) t2 = Identity(b1) },
                   else_branch = g2 () => (float[n,4] e1, float[n,4] e2) { e1 = Tanh(b1) e2 = Identity(a) }> }>
}""", [dict(m=scalar(m), x=f32(3, 4), x2=f32(3, 4) + 1) for m in (0, 1, 2, 5)]),
    "states_written_row": ("""
agraph (int64 m, float[n,4] x, float[n,4] x2) => (float[n,4] y, float[n,4] z)
{
  y, z = Loop (m, "", x, x2) <body = b (int64 i, bool c, float[n,4] a, float[n,4] b1) => (bool co, float[n,4] v, float[n,4] w) {
    co = Identity(c) at = Constant<value = int64[1,1] {0}>() row = Constant<value = int64[1] {0}>() u = Gather(b1, row)
    v = ScatterND(a, at, u) w = Sub(a, b1) }>
}""", [dict(m=scalar(m), x=f32(3, 4), x2=f32(3, 4) + 1) for m in (0, 1, 2, 5)]),
    "states_scan_out": ("""
agraph (int64 m, float[n,4] x, float[n,4] x2) => (float[n,4] y, float[n,4] z, float[k,n,4] all)
{
  y, z, all = Loop (m, "", x, x2) <body = b (int64 i, bool c, float[n,4] a, float[n,4] b1) =>
    (bool co, float[n,4] b1, float[n,4] a, float[n,4] s) { co = Identity(c) s = Sub(a, b1) }>
}""", [dict(m=scalar(m), x=f32(3, 4), x2=f32(3, 4) + 1) for m in (0, 1, 2, 5)]),
    "states_scan": ("""
agraph (float[n] h0, float[n] h1, float[t,n] x) => (float[n] y, float[n] z, float[t,n] all)
{
  y, z, all = Scan <num_scan_inputs = 1, body = b (float[n] a, float[n] b1, float[n] xi) =>
    (float[n] p, float[n] q, float[n] o) { p = Identity(b1) q = Identity(a) o = Add(a, xi) }> (h0, h1, x)
}""", [dict(h0=f32(4), h1=f32(4) + 1, x=f32(t, 4)) for t in (1, 2, 5)]),
    "if_chosen": ("""
agraph (bool c, float[n] x) => (float[n] y, float[n] w)
{
  p = Softmax(x) q0 = Tanh(p) q = Softmax(q0)
  r = If (c) <then_branch = g1 () => (float[n] t) { t = Identity(p) }, else_branch = g2 () => (float[n] e) { e = Identity(q) }>
  s0 = Neg(x) s = Softmax(s0) w0 = Softmax(s) w = Softmax(w0) y = Add(r, w0)
}""", [dict(c=scalar(c, bool), x=f32(9)) for c in (True, False)]),
}


# Runs that must end with a message: compile options, inputs, part of the message.
REFUSED = {
    "ragged": ("""
agraph (int64 m, float[n] x) => (float[n] y, float[k,r] all)
{
  t = Constant<value = bool {1}>()
  y, all = Loop (m, t, x) <body = b (int64 i, bool c, float[n] v) => (bool co, float[n] w, float[r] out) {
    one = Constant<value = int64[1] {1}>() zero = Constant<value = int64[1] {0}>()
    end = Add(i, one) out = Slice(v, zero, end) w = Tanh(v) co = Identity(c) }>
}""", [], dict(m=scalar(3), x=f32(5)), "gathers a value of another shape than in the iteration before"),
    "many": ("""
agraph (int64 m, float[n] x) => (float[n] y, float[m,n] all)
{
  t = Constant<value = bool {1}>()
  y, all = Loop (m, t, x) <body = b (int64 i, bool c, float[n] v) => (bool co, float[n] w, float[n] o) {
    w = Tanh(v) o = Identity(w) co = Identity(c) }>
}""", [], dict(m=scalar(2**60), x=f32(3)), "asks for 1152921504606846976 iterations, the limit is 16777216"),
    "endless": ("""
agraph (float[n] x) => (float[n] y)
{
  y = Loop ("", "", x) <body = b (int64 i, bool c, float[n] v) => (bool co, float[n] w) {
    w = Tanh(v) z = Sub(v, v) s = ReduceSum<keepdims=0>(z) one = Constant<value = float {1.0}>() co = Less(s, one) }>
}""", ["--max-loop-iterations=1000"], dict(x=f32(3)), "runs 1001 iterations, the limit is 1000"),
    "doubling": ("""
agraph (int64 m, float[n] x) => (float[k] y)
{
  t = Constant<value = bool {1}>()
  y = Loop (m, t, x) <body = b (int64 i, bool c, float[r] v) => (bool co, float[s] w) {
    u = Concat<axis=0>(v, v) w = Neg(u) co = Identity(c) }>
}""", [], dict(m=scalar(100), x=f32(3)), "cannot allocate"),
    "gigabytes": ("""
agraph (int64 m, int64[1] size, float[n] x) => (float[k] y)
{
  t = Constant<value = bool {1}>()
  y = Loop (m, t, x) <body = b (int64 i, bool c, float[r] v) => (bool co, float[s] w) {
    more = ConstantOfShape(size) w = Concat<axis=0>(v, more) co = Identity(c) }>
}""", [], dict(m=scalar(2**20), size=np.array([2**28]), x=f32(3)), "cannot allocate"),
    "huge_rows": ("""
agraph (int64 m, float[n] x) => (float[n] y, float[m,n] all)
{
  t = Constant<value = bool {1}>()
  y, all = Loop (m, t, x) <body = b (int64 i, bool c, float[n] v) => (bool co, float[n] w, float[n] o) {
    w = Tanh(v) o = Identity(w) co = Identity(c) }>
}""", ["--max-loop-iterations=4611686018427387904"], dict(m=scalar(2**40), x=f32(64)), "is larger than the limit of"),
    "position": ("""
agraph (int64 at, float[n,3] x) => (float[n] y)
{
  s = SplitToSequence<axis=1, keepdims=0>(x)
  t = Constant<value = bool {1}>()
  m = Constant<value = int64 {2}>()
  z = Loop (m, t, s) <body = b (int64 i, bool c, seq(float[n]) v) => (bool co, seq(float[n]) w) {
    zero = Constant<value = int64 {0}>()
    e = SequenceAt(v, zero) w = SequenceInsert(v, e) co = Identity(c) }>
  y = SequenceAt(z, at)
}""", [], dict(at=scalar(5), x=f32(2, 3)), "takes item 6 (from 1) of a sequence of 5"),
}


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))


def check_refused(tools, temporary, names):
    problems = []
    for name, (text, options, feeds, expected) in REFUSED.items():
        if names and name not in names:
            continue
        path, library = temporary / f"{name}.onnx", temporary / "model.so"
        onnx.save(onnx.parser.parse_model(HEADER + text.lstrip()), path)
        done = subprocess.run([tools / "attnc", path, "-o", library, *options], capture_output=True, text=True)
        if done.returncode:
            problems.append(f"{name}: {done.stderr.strip()[:600]}")
            continue
        command = [tools / "attn-run", library]
        for key, value in feeds.items():
            np.save(temporary / f"{key}.npy", value)
            command.append(f"--input={key}=@{temporary / key}.npy")
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit_memory, timeout=300)
        if done.returncode <= 0 or expected not in done.stderr:
            problems.append(f"{name}: exit status {done.returncode}, expected '{expected}': {done.stderr.strip()[:300]}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    args = parser.parse_args()
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    problems, count = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        problems += check_refused(args.tools, temporary, args.names)
        for name, (text, cases) in MODELS.items():
            if args.names and name not in args.names:
                continue
            path = temporary / f"{name}.onnx"
            onnx.save(onnx.parser.parse_model(HEADER + text.lstrip()), path)
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            outputs = [o.name for o in session.get_outputs()]
            for level in ("-O3", "-O0"):
                library = temporary / "model.so"
                done = subprocess.run([args.tools / "attnc", path, "-o", library, level], capture_output=True, text=True)
                if done.returncode:
                    problems.append(f"{name} {level}: {done.stderr.strip()[:600]}")
                    continue
                for number, feeds in enumerate(cases):
                    count += 1
                    command = [args.tools / "attn-run", library]
                    for key, value in feeds.items():
                        np.save(temporary / f"{key}.npy", value)
                        command.append(f"--input={key}=@{temporary / key}.npy")
                    command += [f"--output={key}=@{temporary / key}.out.npy" for key in outputs]
                    done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode:
                        problems.append(f"{name} {level} case {number}: {done.stderr.strip()[:300]}")
                        continue
                    for key, want in zip(outputs, session.run(outputs, feeds)):
                        got = np.load(temporary / f"{key}.out.npy")
                        if got.size == want.size == 0 and got.ndim == want.ndim:
                            continue  # ONNX Runtime knows no sizes of what never ran
                        if got.shape != want.shape or not np.allclose(got, want, rtol=1e-4, atol=1e-5, equal_nan=True):
                            problems.append(f"{name} {level} case {number}, output {key}: {got.shape} {want.shape}\n"
                                            f"{got.ravel()[:8]}\n{want.ravel()[:8]}")
    print("\n".join(problems))
    print(f"{count} runs, {len(problems)} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
