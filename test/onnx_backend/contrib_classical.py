"""Operators of classical models: ai.onnx.ml, and TfIdfVectorizer."""
import numpy as np
from onnx import numpy_helper

from contrib_cases import RNG, case, floats

ML = "ai.onnx.ml"


def features():
    pool, begins = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 1, 1, 2, 3, 3, 3], [0, 4, 10]
    grams = 4 + 3 + 2 # of one, two and three numbers
    for mode in ("TF", "IDF", "TFIDF"):
        for least, most, skip, columns in ((1, 1, 0, 12), (1, 3, 2, 12), (2, 3, 5, 7), (3, 3, 9, 12), (1, 2, 0, 1), (2, 2, 3, 3)):
            for kind in (np.int32, np.int64):
                x = RNG.integers(1, 9, (3, columns)).astype(kind)
                places = RNG.permutation(grams) if mode == "TF" else np.arange(grams) # weights are those of columns
                weights = {} if mode == "TF" else {"weights": np.linspace(0.5, 2, grams).tolist()}
                more = dict(domain="", mode=mode, min_gram_length=least, max_gram_length=most, max_skip_count=skip,
                            ngram_counts=begins, ngram_indexes=places.tolist(), pool_int64s=pool, **weights)
                case(f"tfidf_{mode}_{least}_{most}_{columns}_{kind.__name__}", "TfIdfVectorizer", [x], **more)
                case(f"tfidf_row_{mode}_{least}_{most}_{columns}_{kind.__name__}", "TfIdfVectorizer", [x[0]], **more)
    case("binarizer", "Binarizer", [floats(4, 5)], domain=ML, threshold=0.3)
    columns = np.array([3, 0, 0, 2], np.int64)
    case("feature_columns", "ArrayFeatureExtractor", [floats(3, 2, 4), columns], domain=ML)
    case("feature_columns_row", "ArrayFeatureExtractor", [floats(4), columns], domain=ML)


def forest(trees, numbers, targets, kind, modes, missing):
    """Attributes of random trees, each of three levels."""
    nodes, leaves = [], []

    def grow(level):
        if level == 3 or (level and RNG.random() < 0.2):
            leaves.append((int(RNG.integers(targets)), float(RNG.standard_normal())))
            return 1, len(leaves) - 1
        at = len(nodes)
        nodes.append(None)
        sides = [grow(level + 1), grow(level + 1)]
        nodes[at] = (int(RNG.integers(numbers)), int(RNG.choice(modes)), float(RNG.integers(-2, 3)), sides, int(RNG.integers(2)))
        return 0, at

    roots = [grow(0)[1] for _ in range(trees)]
    values = [v for node in nodes if node[1] == 6 for v in [*RNG.integers(-2, 3, 2), np.nan]]
    attributes = {
        "tree_roots": roots, "n_targets": targets, "leaf_targetids": [t for t, _ in leaves],
        "leaf_weights": numpy_helper.from_array(np.array([w for _, w in leaves], kind), "weights"),
        "nodes_featureids": [n[0] for n in nodes], "nodes_modes": numpy_helper.from_array(np.array([n[1] for n in nodes], np.uint8), "modes"),
        "nodes_splits": numpy_helper.from_array(np.array([n[2] for n in nodes], kind), "splits")}
    for side, name in ((0, "true"), (1, "false")):
        attributes[f"nodes_{name}leafs"] = [n[3][side][0] for n in nodes]
        attributes[f"nodes_{name}nodeids"] = [n[3][side][1] for n in nodes]
    if missing:
        attributes["nodes_missing_value_tracks_true"] = [n[4] for n in nodes]
    if values:
        attributes["membership_values"] = numpy_helper.from_array(np.array(values, kind), "members")
    return attributes


def trees():
    for kind in (np.float32, np.float64):
        x = RNG.integers(-3, 4, (9, 5)).astype(kind)
        x[2, 1] = x[5] = np.nan
        for name, modes, aggregate, after, missing in (("at_most", [0], 1, 0, False), ("each", range(6), 1, 0, False),
                                                       ("members", [0, 6], 1, 0, False), ("missing", [0], 1, 0, True),
                                                       ("average", [0], 0, 0, False), ("least", [0], 2, 0, False),
                                                       ("greatest", [0], 3, 0, False), ("softmax", [0], 1, 1, False),
                                                       ("logistic", [0], 1, 2, False)):
            for targets in (1, 3):
                if after and targets == 1:  # ONNX Runtime leaves a score alone as it is
                    continue
                # ONNX Runtime has the numbers of these two the other way round.
                oracle = ([x], {"post_transform": 3 - after}) if after else None
                case(f"trees_{name}_{targets}_{kind.__name__}", "TreeEnsemble", [x], domain=ML, aggregate_function=aggregate,
                     post_transform=after, oracle=oracle, **forest(6, 5, targets, kind, list(modes), missing))
