"""Models that leave the library: ONNX, LightGBM's text, treelite, model cards.

Whatever is exported predicts where fferm is not installed. An ONNX graph holds the
encoding of raw tables too; it computes in double precision, as the models do.
"""

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fferm._typing import FloatArray, Table
from fferm.auditing import Audit
from fferm.data.frame import MISSING, as_pandas
from fferm.data.groups import group_name
from fferm.data.validate import is_table
from fferm.errors import InvalidInputError, InvalidTypeError, import_extra
from fferm.estimators.base import FairEstimator
from fferm.registry import last_step

# Versions of the operators of a graph; TreeEnsemble in double precision is of 5.
OPSETS = {"": 21, "ai.onnx.ml": 5}
IR_VERSION = 10
# Modes of TreeEnsemble, and the text by which LightGBM calls them.
MODES = {"<=": 0, "==": 6}
# Layers that are one operator of the same name.
LAYERS = {"ReLU": "Relu", "Tanh": "Tanh", "Sigmoid": "Sigmoid", "Softplus": "Softplus"}


def onnx(model: FairEstimator, path: str | os.PathLike[str], example: Table) -> None:
    """Write a model as ONNX, with the encoding of the columns it was fitted on.

    Outputs are ``label`` and ``probabilities`` of classes, ``prediction`` of numbers.

    Parameters
    ----------
    model
        A fitted estimator of fferm.
    path
        Where to write.
    example
        Some rows to predict on. A table gives the graph an input per column, (n, 1)
        numbers or text by the column's type; an array one input ``X``.
    """
    helper = import_extra("onnx.helper", "onnx", "export.onnx")
    checker = import_extra("onnx.checker", "onnx", "export.onnx")
    if not isinstance(model, FairEstimator):
        raise InvalidTypeError(
            "model must be a fitted estimator of fferm; got "
            f"{type(model).__name__}. Export the last step of a pipeline by itself."
        )
    model.predict(example)  # raises unless fitted, and if the example does not fit
    graph = _Graph(helper)
    scores = _scores(graph, model, graph.read(model, example))
    outputs: list[tuple[str, str, list[Any]]] = [("prediction", "DOUBLE", ["n"])]
    if hasattr(model, "classes_"):
        classes = np.asarray(model.classes_)
        is_text = classes.dtype.kind not in "biu"
        names = classes.astype(str if is_text else np.int64)
        if is_text:
            names = names.astype(object)
        best = graph.add("ArgMax", scores, axis=1, keepdims=0)
        graph.add("Gather", graph.constant(names), best, out="label")
        graph.add("Softmax", scores, axis=1, out="probabilities")
        outputs = [("label", "STRING" if is_text else "INT64", ["n"])]
        outputs.append(("probabilities", "DOUBLE", ["n", len(classes)]))
    else:
        graph.add("Identity", scores, out="prediction")
    made = graph.finish(outputs, type(model).__name__)
    checker.check_model(made)
    with open(path, "wb") as stream:
        stream.write(made.SerializeToString())


def onnx_inputs(table: Table) -> dict[str, Any]:
    """Return the rows of a table as ONNX Runtime takes them, by column.

    Numbers become float64 with NaN for gaps, all else text with ``"(missing)"``.

    Examples
    --------
    >>> rows = pd.DataFrame({"age": [30, None], "city": ["A", None]})
    >>> {name: column.ravel().tolist() for name, column in onnx_inputs(rows).items()}
    {'age': [30.0, nan], 'city': ['A', '(missing)']}
    """
    inputs, frame = {}, as_pandas(table)
    for name in frame.columns:
        if _is_number(frame[name]):
            values = frame[name].to_numpy(np.float64, na_value=np.nan)
        else:
            texts = [group_name(value) or MISSING for value in frame[name]]
            values = np.array(texts, dtype=object)
        inputs[str(name)] = values[:, None]
    return inputs


def lightgbm(model: Any, path: str | os.PathLike[str]) -> None:
    """Write the trees of a `FairBoostingClassifier` as LightGBM's text.

    ``lightgbm.Booster(model_file=path).predict`` gives the probabilities.
    """
    _booster(model).save_model(os.fspath(path))


def treelite(model: Any) -> Any:
    """Return the trees of a `FairBoostingClassifier` as a ``treelite.Model``."""
    frontend = import_extra("treelite.frontend", "treelite", "export.treelite")
    return frontend.from_lightgbm(_booster(model))


def _booster(model: Any) -> Any:
    last = last_step(model)
    if not hasattr(last, "booster_"):
        raise InvalidTypeError(
            "model must be a fitted FairBoostingClassifier; got "
            f"{type(last).__name__}. Use export.onnx."
        )
    return last.booster_


def model_card(
    model: FairEstimator,
    audit: Audit,
    path: str | os.PathLike[str],
    *,
    license: str = "other",
    limitations: str = "",
) -> None:
    """Write a model card as Hugging Face shows it (``README.md``), with the audit.

    Parameters
    ----------
    model
        A fitted estimator.
    audit
        What it does to each group, on rows that it has not seen.
    path
        Where to write.
    license, limitations
        Of the model; what it must not be used for.
    """
    hub = import_extra("huggingface_hub", "huggingface", "export.model_card")
    kind = "regression" if not hasattr(model, "classes_") else "classification"
    name = type(model).__name__
    metric = {"type": audit.notion, "name": "violation", "value": audit.violation}
    task = {"type": f"tabular-{kind}", "name": kind}
    data = {"type": "tabular", "name": f"{audit.n_rows} held-out rows"}
    result = {"task": task, "dataset": data, "metrics": [metric]}
    made = hub.ModelCardData(
        license=license,
        library_name="fferm",
        tags=["fairness", f"tabular-{kind}"],
        **{"model-index": [{"name": name, "results": [result]}]},
    )
    parts = [
        f"---\n{made.to_yaml()}\n---\n\n# {name}",
        f"```python\n{model!r}\n```",
        "## Fairness",
        f"```text\n{audit}\n```",
        *(["## Limitations", limitations] if limitations else []),
    ]
    hub.ModelCard("\n\n".join(parts) + "\n").save(path)


class _Graph:
    # An ONNX graph under construction; every operation returns the name of its output.
    def __init__(self, helper: Any) -> None:
        self.helper, self.numpy = helper, import_extra("onnx.numpy_helper", "onnx")
        self.width = 0  # of the last linear layer
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.tensors: list[Any] = []

    def add(
        self, kind: str, *inputs: str, out: str | None = None, **options: Any
    ) -> str:
        out = out or f"{kind}_{len(self.nodes)}"
        domain = "ai.onnx.ml" if kind == "TreeEnsemble" else ""
        node = self.helper.make_node(kind, inputs, [out], domain=domain, **options)
        self.nodes.append(node)
        return out

    def constant(self, values: Any) -> str:
        name = f"constant_{len(self.tensors)}"
        self.tensors.append(self.numpy.from_array(np.asarray(values), name))
        return name

    def tensor(self, values: Any, dtype: Any) -> Any:
        return self.numpy.from_array(np.asarray(values, dtype=dtype))

    def cast(self, name: str, dtype: Any = np.float64) -> str:
        to = self.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.add("Cast", name, to=to)

    def input(self, name: str, dtype: str, width: int) -> str:
        kind = getattr(import_extra("onnx", "onnx").TensorProto, dtype)
        shape = ["n", width]
        self.inputs.append(self.helper.make_tensor_value_info(name, kind, shape))
        return name

    def finish(self, outputs: Sequence[tuple[str, str, Any]], name: str) -> Any:
        types = import_extra("onnx", "onnx").TensorProto
        made = [
            self.helper.make_tensor_value_info(out, getattr(types, dtype), shape)
            for out, dtype, shape in outputs
        ]
        parts = self.nodes, f"fferm_{name}", self.inputs, made, self.tensors
        opsets = [self.helper.make_opsetid(*item) for item in OPSETS.items()]
        return self.helper.make_model(
            self.helper.make_graph(*parts), opset_imports=opsets, ir_version=IR_VERSION
        )

    def read(self, model: Any, example: Table) -> str:
        """Return the encoded features of a table, or the array."""
        if not is_table(example):
            if hasattr(model, "encoder_"):
                raise InvalidInputError(
                    "example must be a table, as the model was fitted on one; got "
                    f"{type(example).__name__}."
                )
            return self.input("X", "DOUBLE", int(model.n_features_in_))
        frame = as_pandas(example)
        if hasattr(model, "encoder_"):
            columns = model.encoder_.columns_
        elif hasattr(model, "booster_"):
            levels = iter(model.booster_.pandas_categorical or ())
            columns = [
                {"name": name, "codes": next(levels)}
                if n in model.categorical_
                else {"name": name}
                for n, name in enumerate(model.feature_names_in_)
            ]
        else:
            columns = [{"name": name} for name in model.feature_names_in_]
        parts = [self._encode(column, frame[column["name"]]) for column in columns]
        return self.add("Concat", *parts, axis=1)

    def _encode(self, column: dict[str, Any], example: "pd.Series[Any]") -> str:
        is_number = _is_number(example)
        x = self.input(column["name"], "DOUBLE" if is_number else "STRING", 1)
        known = column.get("levels", column.get("codes"))
        if known is not None:
            # One comparison per level, which no other text or number meets.
            texts = [str(group_name(level)) for level in known]
            values: Any = np.array(texts, dtype=object)
            if is_number:
                values = pd.to_numeric(pd.Series(texts), errors="coerce").to_numpy(
                    float
                )
            is_level = self.add("Equal", x, self.constant(values[None]))
            if is_number and MISSING in texts:
                gap = self.constant(np.array([[text == MISSING for text in texts]]))
                is_gap = self.add("And", self.add("IsNaN", x), gap)
                is_level = self.add("Or", is_level, is_gap)
            one_hot = self.cast(is_level)
            if "codes" not in column:
                return one_hot
            # Trees see the position, and -1 where there is none, which is in no set.
            place = self.constant(np.arange(1.0, len(texts) + 1)[:, None])
            code = self.add("MatMul", one_hot, place)
            return self.add("Sub", code, self.constant(np.array(1.0)))
        if "fill" not in column:
            return x
        is_gap = self.add("IsNaN", x)
        filled = self.add("Where", is_gap, self.constant(np.float64(column["fill"])), x)
        centred = self.add("Sub", filled, self.constant(np.float64(column["mean"])))
        scaled = self.add("Div", centred, self.constant(np.float64(column["scale"])))
        if not column["has_gaps"]:
            return scaled
        return self.add("Concat", scaled, self.cast(is_gap), axis=1)

    def linear(self, x: str, coef: FloatArray, intercept: Any) -> str:
        product = self.add("MatMul", x, self.constant(np.atleast_2d(coef).T))
        return self.add("Add", product, self.constant(np.atleast_1d(intercept)))

    def network(self, x: str, layer: Any) -> str:
        """Return the output of a layer, or of layers that follow each other."""
        kind = type(layer).__name__
        state = {
            name: value.cpu().numpy() for name, value in layer.state_dict().items()
        }
        if kind == "Linear":
            self.width = layer.out_features
            zero = np.zeros(self.width, state["weight"].dtype)
            return self.linear(x, state["weight"], state.get("bias", zero))
        if kind in LAYERS:
            return self.add(LAYERS[kind], x)
        if kind in ("Dropout", "Identity"):
            return x
        if kind in ("Sequential", "DefaultNet"):
            return functools.reduce(self.network, layer, x)
        if kind == "RegressionNet" and layer.turn is None:
            centred = self.add("Sub", x, self.constant(state["centre"]))
            standard = self.add("Div", centred, self.constant(state["scale"]))
            return self.network(standard, layer.layers)
        if kind != "Bins":
            raise InvalidInputError(
                "export.onnx knows networks of linear layers and activations; got a "
                f"layer {kind}. Use torch.onnx.export(model.module_, ...)."
            )
        low, width = state["low"], state["width"]
        picked = self.add("Gather", x, self.constant(state["numeric"]), axis=1)
        wide = self.add("Unsqueeze", picked, self.constant(np.array([2])))
        past = self.add("Sub", wide, self.constant(low))
        shares = self.add("Div", past, self.constant(np.maximum(width, 1e-12)))
        steps, is_wide = self.add("Sign", past), self.constant(width > 0)
        share = self.add("Where", is_wide, shares, steps)
        ends = (self.constant(low.dtype.type(end)) for end in (0, 1))
        share = self.add("Clip", share, *ends)
        flat = self.add("Reshape", share, self.constant(np.array([-1, low.size])))
        plain = self.add("Gather", x, self.constant(state["plain"]), axis=1)
        return self.add("Concat", plain, flat, axis=1)

    def trees(self, x: str, booster: Any) -> str:
        """Return the (n, scores) sums of a booster's leaves."""
        dump = booster.dump_model()
        forest = _Forest()
        n_scores = int(dump["num_tree_per_iteration"])
        for number, tree in enumerate(dump["tree_info"]):
            forest.add(tree["tree_structure"], number % n_scores)
        feature, mode, split, missing, *sides = zip(*forest.nodes, strict=True)
        (true_leafs, true_ids), (false_leafs, false_ids) = (
            zip(*side, strict=True) for side in sides
        )
        target, weight = zip(*forest.leaves, strict=True)
        return self.add(
            "TreeEnsemble",
            x,
            n_targets=n_scores,
            aggregate_function=1,
            post_transform=0,
            tree_roots=forest.roots,
            nodes_featureids=feature,
            nodes_splits=self.tensor(split, np.float64),
            nodes_modes=self.tensor(mode, np.uint8),
            nodes_truenodeids=true_ids,
            nodes_trueleafs=true_leafs,
            nodes_falsenodeids=false_ids,
            nodes_falseleafs=false_leafs,
            nodes_missing_value_tracks_true=missing,
            leaf_targetids=target,
            leaf_weights=self.tensor(weight, np.float64),
            **(
                {"membership_values": self.tensor(forest.members, np.float64)}
                if forest.members
                else {}
            ),
        )


class _Forest:
    # The nodes and leaves of LightGBM's trees as TreeEnsemble lists them.
    def __init__(self) -> None:
        self.roots: list[int] = []
        # Feature, mode, split, whether gaps go left; and of both sides, whether it is a
        # leaf, and which leaf or node.
        self.nodes: list[list[Any]] = []
        self.leaves: list[tuple[int, float]] = []
        self.members: list[float] = []

    def add(self, tree: dict[str, Any], target: int) -> None:
        self.roots.append(len(self.nodes))
        is_leaf, leaf = self._node(tree, target)
        if is_leaf:  # a node leads to it either way
            self.nodes.append([0, MODES["<="], 0.0, 0, (1, leaf), (1, leaf)])

    def _node(self, node: dict[str, Any], target: int) -> tuple[int, int]:
        if "split_feature" not in node:
            self.leaves.append((target, float(node["leaf_value"])))
            return 1, len(self.leaves) - 1
        if node["missing_type"] == "Zero":
            raise InvalidInputError(
                "export.onnx cannot say zero_as_missing of LightGBM. Use "
                "export.lightgbm, or train without it."
            )
        split, missing = 0.0, 0
        if node["decision_type"] == "==":
            self.members += [*map(float, node["threshold"].split("||")), np.nan]
        else:
            # Where training had no gaps, one counts as 0.
            split = float(node["threshold"])
            is_left = (
                node["default_left"] if node["missing_type"] == "NaN" else split >= 0
            )
            missing = int(is_left)
        place, mode = len(self.nodes), MODES[node["decision_type"]]
        made: list[Any] = [int(node["split_feature"]), mode, split, missing]
        self.nodes.append(made)
        made += [
            self._node(node[f"{side}_child"], target) for side in ("left", "right")
        ]
        return 0, place


def _scores(graph: _Graph, model: Any, x: str) -> str:
    # One score per class, or the predicted number, in double precision.
    if hasattr(model, "booster_"):
        scores, n_scores = graph.trees(x, model.booster_), len(model.classes_)
        n_scores = n_scores if n_scores > 2 else 1
    elif hasattr(model, "module_"):
        dtype = next(model.module_.parameters()).detach().cpu().numpy().dtype
        scores = graph.cast(graph.network(graph.cast(x, dtype), model.module_))
        n_scores = graph.width
        if not hasattr(model, "classes_"):
            centre, scale = (graph.constant(np.float64(v)) for v in model.unit_)
            scores = graph.add("Add", graph.add("Mul", scores, scale), centre)
    else:
        scores = graph.linear(x, model.coef_, model.intercept_)
        n_scores = len(np.atleast_2d(model.coef_))
    if not hasattr(model, "classes_"):
        return graph.add("Reshape", scores, graph.constant(np.array([-1])))
    if n_scores == 1:
        zero = graph.add("Sub", scores, scores)
        scores = graph.add("Concat", zero, scores, axis=1)
    return scores


def _is_number(column: "pd.Series[Any]") -> bool:
    return bool(pd.api.types.is_numeric_dtype(column.dtype))
