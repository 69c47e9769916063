func.func @main(%x: tensor<?x3xi8> {attn.name = "x", attn.dims = ["n", ""]}) -> (tensor<?x3xi8>, tensor<4096xi8>)
    attributes {attn.entry} {
  %zero = arith.constant 0 : i8
  %e = tensor.empty() : tensor<4096xi8>
  %f = linalg.fill ins(%zero : i8) outs(%e : tensor<4096xi8>) -> tensor<4096xi8>
  return %x, %f : tensor<?x3xi8>, tensor<4096xi8>
}
