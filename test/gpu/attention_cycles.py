"""How fast an attention by warpgroups can be, by a model of cycles: upper bounds to be held against a card.

A quarter of a processor has one warp of each of the two warpgroups, and of its own: matrix units (a product of 64 queries takes
columns x depth / 32 cycles), an issue slot a cycle, and units that take a warp's instruction in more than one. Latencies and
memory take no time.
"""
import dataclasses

PROCESSORS, CLOCK = 132, 1.755e9  # of an H100 SXM5
FLOPS_PER_CYCLE = 4096            # of a processor, 16-bit operands
# Throughput of compute capability 9.0 in the CUDA Programming Guide, as cycles that a warp's instruction takes of a quarter.
UNITS = {"special functions": (8, ("MUFU",)), "shuffles": (4, ("SHFL",)),
         "integers": (2, ("FMNMX", "F2FP", "FSETP", "FSEL", "SEL", "ISETP", "IADD", "IMNMX", "LOP3", "SHF", "PRMT", "LEA"))}


def cycles(opcodes):
    """That instructions of one warp take at least."""
    return max([len(opcodes)] + [each * sum(name.startswith(kinds) for name in opcodes) for each, kinds in UNITS.values()])


@dataclasses.dataclass
class Tile:
    """Cycles of a warpgroup for a tile of keys: two products, and instructions of a warp beside the second and beside none."""
    product: float
    beside: float
    alone: float

    def teraflops(self, span):
        return 4 * self.product * FLOPS_PER_CYCLE / span * PROCESSORS * CLOCK / 1e12

    def in_lock_step(self):
        """Both warpgroups do the same at the same time, so that they share all units."""
        return self.teraflops(2 * (self.product + max(self.product, self.beside) + self.alone))

    def apart(self):
        """What one does alone, the other does beside its products. Nothing here says that they come to it."""
        one = self.product + max(self.product, self.beside) + self.alone
        return self.teraflops(max(4 * self.product, 2 * (self.beside + self.alone), one))


def tile_of(head, keys, beside, alone):
    return Tile(64 * keys * head * 2 / FLOPS_PER_CYCLE, cycles(beside), cycles(alone))
