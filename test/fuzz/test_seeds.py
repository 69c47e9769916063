#!/usr/bin/env python3
"""Neighbours are alike up to where they part; seeds of rare branches are drawn the most."""
import collections
import pathlib
import random
import tempfile
import unittest

import numpy as np

import model_graphs
import models
import seeds


def drawn(seed, n=8):
    r = seeds.Draws(seed)
    return [r.choice(range(1000)) if k % 2 else r.random() for k in range(n)]


class DrawsTest(unittest.TestCase):
    def test_a_number_draws_what_it_draws_by_itself(self):
        r = random.Random(5)
        self.assertEqual(drawn(5), [r.choice(range(1000)) if k % 2 else r.random() for k in range(8)])

    def test_a_neighbour_is_alike_up_to_its_cut(self):
        self.assertEqual(drawn("5@0:7"), drawn(7))
        r = seeds.Draws(5)
        before = [r.random() for _ in range(3)]
        r = seeds.Draws("5@2:7")
        near = [r.random() for _ in range(3)]
        self.assertEqual(near[:2], before[:2])
        self.assertEqual(near[2], random.Random(7).random())

    def test_a_neighbour_has_neighbours(self):
        r = seeds.Draws("5@1:7@3:9")
        values = [r.random() for _ in range(5)]
        seven, nine = random.Random(7), random.Random(9)
        self.assertEqual(values, [random.Random(5).random(), seven.random(), seven.random(), nine.random(), nine.random()])
        self.assertEqual(r.count, 5)

    def test_no_seeds(self):
        for seed in ("", "5@", "5@4", "5@4:", "-5", "5@-4:7", "5@4:7@1:9", "5@4:7@4:9"):
            with self.assertRaises(ValueError):
                seeds.Draws(seed)

    def test_numbers_of_a_seed(self):
        self.assertEqual((seeds.first(5), seeds.last(5)), (5, 5))
        self.assertEqual((seeds.first("5@1:7@3:9"), seeds.last("5@1:7@3:9")), (5, 9))

    def test_the_opset_is_that_of_the_first(self):
        for seed in range(40, 60):
            model, _ = models.make(seed)
            near, _ = models.make(f"{seed}@{model_graphs.make(seed).r.count}:3")
            self.assertEqual(near, model)

    def test_models(self):
        model = model_graphs.make(11)
        near = model_graphs.make(f"11@{model.r.count}:3")  # behind the last draw
        self.assertEqual(near.proto(), model.proto())
        near = model_graphs.make(f"11@{model.r.count // 2}:3")
        self.assertEqual(near.opset, model.opset)
        self.assertNotEqual(near.proto(), model.proto())


class ByBranchesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "branches.json"

    def next(self, chosen):
        return [chosen.next(n, lambda seed: 10) for n in range(1000, 3000)]

    def test_without_branches_each_model_is_new(self):
        chosen = seeds.ByBranches(self.file)
        chosen.reached(1, np.zeros(0, np.uint8))
        self.assertEqual(self.next(chosen), list(range(1000, 3000)))
        self.assertEqual(str(chosen), "0 of 0 branches of the passes reached, new ones by 0 models")

    def test_rare_branches(self):
        chosen = seeds.ByBranches(self.file)
        for seed, counters in ((1, [1, 9, 0, 0]), (2, [1, 0, 0, 0]), (3, [1, 1, 1, 0]), (4, [1, 1, 0, 0])):
            chosen.reached(seed, np.array(counters, np.uint8))
        self.assertEqual(chosen.kept, {"1": [0, 1], "3": [2]})
        self.assertEqual(str(chosen), "3 of 4 branches of the passes reached, new ones by 2 models")
        bases = collections.Counter(str(seed).partition("@")[0] for seed in self.next(chosen) if "@" in str(seed))
        self.assertEqual(set(bases), {"1", "3"})
        self.assertAlmostEqual(sum(bases.values()), 1000, delta=100)
        # 1 / 4² + 1 / 3² against 1 / 1²
        self.assertAlmostEqual(bases["1"] / bases["3"], 1 / 16 + 1 / 9, delta=0.05)

    def test_neighbours_of_neighbours_part_before_them_or_behind(self):
        chosen = seeds.ByBranches(self.file)
        chosen.reached("1@5:8", np.array([1], np.uint8))
        drawn = [seed for seed in self.next(chosen) if isinstance(seed, str)]
        for seed in drawn:
            seeds.checked(seed)
        shallow = [seed for seed in drawn if seed.count("@") == 1]
        self.assertEqual({seed.count("@") for seed in drawn}, {1, 2})
        self.assertTrue(all(int(seed[2]) <= 5 for seed in shallow), shallow)
        self.assertTrue(all(seed.startswith("1@5:8@") for seed in drawn if seed not in shallow))

    def test_goes_on(self):
        chosen = seeds.ByBranches(self.file)
        chosen.reached(1, np.array([1, 0, 1], np.uint8))
        chosen.reached("1@4:8", np.array([0, 1, 1], np.uint8))
        chosen.save()
        again = seeds.ByBranches(self.file)
        self.assertEqual((again.models, again.kept, again.all), (chosen.models, chosen.kept, 3))
        self.assertEqual(self.next(again), self.next(chosen))


if __name__ == "__main__":
    unittest.main()
