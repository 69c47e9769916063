func.func @main(%x: tensor<4096xf32>, %n: tensor<1xi64>) -> tensor<1xf32> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %size = arith.constant 4096 : index
  %m = memref.alloca() : memref<4096xf32>
  scf.for %i = %c0 to %size step %c1 {
    %v = tensor.extract %x[%i] : tensor<4096xf32>
    memref.store %v, %m[%i] : memref<4096xf32>
  }
  %a = tensor.extract %n[%c0] : tensor<1xi64>
  %at = arith.index_cast %a : i64 to index
  %y = memref.load %m[%at] : memref<4096xf32>
  %r = tensor.from_elements %y : tensor<1xf32>
  return %r : tensor<1xf32>
}
