"""Attentions of a package beside PyTorch's on the same card: compared in float64, then timed in turns."""
from on_card_library import Library
from on_card_timing import Side, first_line

DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
ULP = {"f32": 2.0**-23, "bf16": 2.0**-8, "f16": 2.0**-11}  # of weights and of results
ROWS = 64  # of the queries, spread evenly, first and last among them


def tensors(case, torch, device):
    generator = torch.Generator(device).manual_seed(1)
    dtype = getattr(torch, DTYPES[case["dtype"]])
    return {name: torch.randn(shape, generator=generator, device=device).to(dtype) for name, shape in case["shapes"].items()}


def reference(case, torch, given):
    """Of some rows: their numbers, the outputs in float64 and how far a result may be from each.

    |out - ref| <= ulp (S + |ref|) + 2^-21 (4 + max|s|) S, with S the sum of p |v| and s the scores.
    """
    q, k, v = (given[name] for name in "qkv")
    rows = torch.linspace(0, q.shape[2] - 1, min(ROWS, q.shape[2]), device=q.device).long().unique()
    groups = q.shape[1] // k.shape[1]
    wide = lambda t: t.repeat_interleave(groups, 1).double()
    wanted, bounds = [], []
    for batch in range(q.shape[0]):  # one at a time: scores of 16k keys are large in float64
        keys, values = wide(k[batch:batch + 1]), wide(v[batch:batch + 1])
        scores = q[batch:batch + 1, :, rows].double() @ keys.transpose(2, 3) * q.shape[3]**-0.5
        largest = scores.abs().amax(-1, keepdim=True)
        if case["causal"]:
            scores = scores.masked_fill(torch.arange(k.shape[2], device=q.device) > rows[:, None], -torch.inf)
        weights = scores.softmax(-1)
        wanted.append(weights @ values)
        sums = weights @ values.abs()
        bounds.append(ULP[case["dtype"]] * (sums + wanted[-1].abs()) + 2.0**-21 * (4 + largest) * sums)
    return rows, torch.cat(wanted), torch.cat(bounds)


def share_of_bound(torch, checked, output):
    """Largest difference as a share of what is allowed there; more than 1 is wrong, and so is NaN."""
    rows, wanted, bounds = checked
    share = ((output[:, :, rows].double() - wanted).abs() / bounds).nan_to_num(torch.inf)
    return float(share.max())


# -- peers; each maker returns a call, or raises what there is to say of it


def backend(name):
    def make(case, torch, given):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        kind = getattr(SDPBackend, name)

        def call():
            with sdpa_kernel(kind):
                return torch.nn.functional.scaled_dot_product_attention(given["q"], given["k"], given["v"], is_causal=case["causal"])
        return call
    return make


def flash_package(case, torch, given):
    """FlashAttention 3 where its package is there, otherwise 2; heads behind tokens."""
    try:
        from flash_attn_interface import flash_attn_func
    except ImportError:
        try:
            from flash_attn import flash_attn_func
        except ImportError:
            raise RuntimeError("flash-attn is not installed") from None
    q, k, v = (given[name].transpose(1, 2).contiguous() for name in "qkv")

    def call():
        result = flash_attn_func(q, k, v, causal=case["causal"])
        return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)
    return call


def flex(case, torch, given):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    compiled, (q, k, v) = torch.compile(flex_attention, dynamic=False), (given[name] for name in "qkv")
    mask = None
    if case["causal"]:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device=q.device)
    return lambda: compiled(q, k, v, block_mask=mask)


PEERS = {"cuDNN": backend("CUDNN_ATTENTION"), "FlashAttention (PyTorch)": backend("FLASH_ATTENTION"),
         "flash-attn": flash_package, "FlexAttention": flex}


TURNS = (tuple(PEERS),)


def peer_sides(names, case, torch, given, clock, checked, budget):
    """Each with its share of the bound; one that cannot be had keeps why. FlexAttention compiles: only while time is left."""
    for name in names:
        side, share = Side(name, None), None
        try:
            with budget.spending(name):
                side.call = PEERS[name](case, torch, given)
                clock.prepare(side)
                if not side.error:
                    with clock.scope():
                        share = share_of_bound(torch, checked, side.call())
        except Exception as error:  # noqa: BLE001: the others go on
            side.error = first_line(error)
        yield side, share


def variants(case):
    """What is compiled: products in the type of the tensors."""
    return [(case, "model", case["dtype"])]


def run_case(case, torch, clock, compiled, budget, names):
    given = tensors(case, torch, "cuda" if clock.on_card else "cpu")
    checked = reference(case, torch, given)
    if clock.on_card:
        torch.cuda.synchronize()  # the library works on another stream
    library = Library(compiled.library(*variants(case)[0]), given, torch, stream=clock.handle)
    ours = Side("attnc", library.run, blocks=True)
    clock.prepare(ours)
    share = share_of_bound(torch, checked, library.outputs["y"])
    answer = {"case": case["name"], "of_bound": share, "passed": not ours.error and share <= 1, "flops": case["flops"]}
    if case["timed"]:
        sides = list(peer_sides(names, case, torch, given, clock, checked, budget))
        answer["peers_of_bound"] = {side.name: share for side, share in sides if share is not None}
        answer["times"] = clock.measure([ours] + [side for side, _ in sides], "device", budget.end)
    library.close()
    yield answer
