"""Whole models of a package beside the same computation in PyTorch, on the same weights.

The forms mirror test/bench/models.py: weights are taken in the order in which it draws them, so projections of queries,
keys and values are three products, as exporters and Hugging Face have them.
"""
EPSILON = 1e-12
# By the mode of torch.compile.
PEERS = {"PyTorch eager": None, "torch.compile reduce-overhead": "reduce-overhead",
         "torch.compile max-autotune": "max-autotune"}


def norm(x, w):
    import torch.nn.functional as F
    return F.layer_norm(x, x.shape[-1:], next(w), next(w), EPSILON)


def linear(x, w):
    return x @ next(w) + next(w)


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def attend(q, k, v, mask=None):
    import torch.nn.functional as F
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


def encoder_block(x, w, heads, mask=None, pre=False):
    import torch.nn.functional as F
    y = norm(x, w) if pre else x
    q, k, v = [heads_of(linear(y, w), heads) for _ in range(3)]
    x = x + linear(attend(q, k, v, mask), w)
    x = y = x if pre else norm(x, w)
    y = norm(x, w) if pre else x
    x = x + linear(F.gelu(linear(y, w)), w)
    return x if pre else norm(x, w)


def bert(w, case, ids, shown):
    import torch.nn.functional as F
    x = F.embedding(ids, next(w)) + next(w)
    x = norm(x, w)
    mask = ((1.0 - shown.to(x.dtype)) * -10000.0)[:, None, None]
    for _ in range(case["layers"]):
        x = encoder_block(x, w, case["heads"], mask)
    return [x]


def vit(w, case, image):
    import torch
    import torch.nn.functional as F
    x = F.conv2d(image, next(w), next(w), stride=16).flatten(2).transpose(1, 2)
    x = torch.cat([next(w).expand(len(x), -1, -1), x], 1) + next(w)
    for _ in range(case["layers"]):
        x = encoder_block(x, w, case["heads"], pre=True)
    return [linear(norm(x, w)[:, 0], w)]


def gpt2(w, case, ids, extend, mask=None):
    """`extend(layer, keys, values)` gives all keys and values."""
    import torch.nn.functional as F
    table = next(w)
    x = F.embedding(ids, table) + next(w)
    for layer in range(case["layers"]):
        q, k, v = (heads_of(part, case["heads"]) for part in linear(norm(x, w), w).chunk(3, -1))
        x = x + linear(attend(q, *extend(layer, k, v), mask), w)
        x = x + linear(F.gelu(linear(norm(x, w), w), approximate="tanh"), w)
    return norm(x, w)[:, -1] @ table.t()


def gpt2_step(w, case, ids, *caches):
    """Caches come and go, as in the graph."""
    import torch
    made = []

    def extend(layer, k, v):
        made.extend(torch.cat([caches[2 * layer + i], new], 2) for i, new in enumerate((k, v)))
        return made[-2:]

    scores = gpt2(w, case, ids, extend)
    return [*made, scores]


def greedy_step(w, case, token, position, *caches):
    """Caches with room for all steps, written in place; the next token."""
    import torch

    def extend(layer, k, v):
        for i, new in enumerate((k, v)):
            caches[2 * layer + i].index_copy_(2, position, new)
        return caches[2 * layer:2 * layer + 2]

    seen = (torch.arange(caches[0].shape[2], device=token.device) <= position)[None, None, None]
    return gpt2(w, case, token[:, None], extend, seen).argmax(-1)


FORMS = {"bert": bert, "vit": vit, "gpt2_step": gpt2_step, "gpt2_greedy": greedy_step}


def module(case, torch, arrays, dtype, device, caches=()):
    """Weights as parameters, so that CUDA graphs find them where they are; caches as buffers."""

    class Form(torch.nn.Module):
        def __init__(self):
            super().__init__()
            weights = (torch.from_numpy(a).to(device, dtype) for a in arrays)
            self.weights = torch.nn.ParameterList(torch.nn.Parameter(t, requires_grad=False) for t in weights)
            for n, cache in enumerate(caches):
                self.register_buffer(f"cache{n}", cache)

        def forward(self, *given):
            kept = [getattr(self, f"cache{n}") for n in range(len(caches))]
            return FORMS[case["form"]](iter(list(self.weights)), case, *given, *kept)

    return Form()


def inputs(case, torch, dtype, device):
    """By name; all values are bf16."""
    generator, made = torch.Generator().manual_seed(2), {}
    for each in case["inputs"]:
        if each["kind"] == "i64":
            value = torch.randint(1, each["limit"], each["shape"], generator=generator)
        else:
            value = (0.5 * torch.randn(each["shape"], generator=generator)).bfloat16().to(dtype)
        made[each["name"]] = value.to(device)
    return made


class Greedy:
    """A loop of steps on the host, each compiled or not."""

    def __init__(self, case, torch, arrays, dtype, device, mode=None):
        given = list(inputs(case, torch, dtype, device).values())
        room = lambda cache: torch.cat([cache, cache.new_zeros(*cache.shape[:2], case["steps"], cache.shape[3])], 2)
        self.torch, self.first = torch, given[0]
        self.step = module(case, torch, arrays, dtype, device, [room(cache) for cache in given[1:]])
        self.positions = [torch.tensor([case["past"] + n], device=device) for n in range(case["steps"])]
        if mode:
            self.step = torch.compile(self.step, mode=mode)

    def __call__(self):
        token, tokens = self.first, []
        for position in self.positions:
            self.torch.compiler.cudagraph_mark_step_begin()
            token = self.step(token, position).clone()
            tokens.append(token)
        return [self.torch.stack(tokens, 1)]


def forward(case, torch, arrays, dtype, device, mode=None):
    """A call without arguments that gives a list of tensors."""
    if case["form"] == "gpt2_greedy":
        return Greedy(case, torch, arrays, dtype, device, mode)
    given = list(inputs(case, torch, dtype, device).values())
    made = module(case, torch, arrays, dtype, device)
    if mode:
        for tensor in given:
            torch._dynamo.mark_static_address(tensor)  # a CUDA graph would copy them in each run
        made = torch.compile(made, mode=mode)
    return lambda: made(*given)
