module {
  %0 = arith.addi %0, %0 : i32
  func.func @f(%a: i32) -> i32 { return %a : i32 }
}
