"""Short spellings of the MLIR that cases.py is made of."""
import itertools


def tensor(shape, dtype="f32"):
    return "tensor<" + "".join(f"{'?' if isinstance(d, str) else d}x" for d in shape) + dtype + ">"


NUMPY = {"f32": "float32", "f64": "float64", "f16": "float16", "i64": "int64", "i32": "int32", "i8": "int8"}


class Module:
    """One entry. Dimensions are ints, or names of dynamic sizes found in the inputs."""

    def __init__(self, inputs, bools=()):
        self.inputs, self.lines, self.types, self.count, self.sizes = inputs, [], {}, itertools.count(), {}
        self.bools = bools
        for name, (shape, dtype) in inputs.items():
            self.types["%" + name] = (shape, dtype)
            for i, d in enumerate(shape):
                if isinstance(d, str) and d not in self.sizes:
                    at = self.value(f"arith.constant {i} : index")
                    self.sizes[d] = self.value(f"tensor.dim %{name}, {at} : {tensor(shape, dtype)}")

    def value(self, op, type=None):
        name = f"%v{next(self.count)}"
        self.lines.append(f"  {name} = {op}")
        if type:
            self.types[name] = type
        return name

    def empty(self, shape, dtype="f32"):
        sizes = ", ".join(self.sizes[d] for d in shape if isinstance(d, str))
        return self.value(f"tensor.empty({sizes}) : {tensor(shape, dtype)}", (shape, dtype))

    def fill(self, shape, value, dtype="f32"):
        scalar = self.value(f"arith.constant {value} : {dtype}")
        init = self.empty(shape, dtype)
        t = tensor(shape, dtype)
        return self.value(f"linalg.fill ins({scalar} : {dtype}) outs({init} : {t}) -> {t}", (shape, dtype))

    def generic(self, loops, ins, out, iterators, body):
        """ins: [(value, map)], out: (value, map) or a list; maps are texts over `loops`. The body's
        arguments are %a0, %a1, ... and %o0, ...; its last line is the yielded value names."""
        outs = out if isinstance(out, list) else [out]
        operands = ins + outs
        maps = ", ".join(f"affine_map<({loops}) -> ({m})>" for _, m in operands)
        kinds = ", ".join(f'"{ {"p": "parallel", "r": "reduction"}[i] }"' for i in iterators)
        args = [f"%a{i}: {self.types[v][1]}" for i, (v, _) in enumerate(ins)]
        args += [f"%o{i}: {self.types[v][1]}" for i, (v, _) in enumerate(outs)]
        types = lambda values: ", ".join(tensor(*self.types[v]) for v, _ in values)
        *ops, result = [line.strip() for line in body.strip().splitlines()]
        text = f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
        if ins:
            text += f" ins({', '.join(v for v, _ in ins)} : {types(ins)})"
        text += f" outs({', '.join(v for v, _ in outs)} : {types(outs)}) {{\n  ^bb0({', '.join(args)}):\n"
        text += "".join(f"    {op}\n" for op in ops)
        text += f"    linalg.yield {result} : {', '.join(self.types[v][1] for v, _ in outs)}\n  }} -> "
        if len(outs) == 1:
            return self.value(text + types(outs), self.types[outs[0][0]])
        name = self.value(text + f"({types(outs)})").lstrip("%")
        self.lines[-1] = self.lines[-1].replace(f"%{name} =", f"%{name}:{len(outs)} =", 1)
        results = [f"%{name}#{i}" for i in range(len(outs))]
        for r, (v, _) in zip(results, outs):
            self.types[r] = self.types[v]
        return results

    def text(self, results):
        def attrs(name, shape, dtype):
            kind = "bool" if name in self.bools else NUMPY[dtype]
            dims = ", ".join(f'"{d if isinstance(d, str) else ""}"' for d in shape)
            return f'{{attn.name = "{name}", attn.dtype = "{kind}", attn.dims = [{dims}]}}'
        args = ", ".join(f"%{n}: {tensor(*t)} {attrs(n, *t)}" for n, t in self.inputs.items())
        types = [tensor(*self.types[r]) for r in results]
        outs = ", ".join(f"{t} {attrs(f'out{i}', *self.types[r])}" for i, (r, t) in enumerate(zip(results, types)))
        body = "\n".join(self.lines)
        return (f"func.func @main({args}) -> ({outs}) attributes {{attn.entry}} {{\n{body}\n"
                f"  return {', '.join(results)} : {', '.join(types)}\n}}\n")
