"""What a server is told: one object for Python, for ``serve run``, and for Ray's YAML files."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Literal, Optional

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .._load import load


class Settings(BaseModel):
    """How a model is served.

    Unknown names and values out of range are refused by pydantic's ValidationError, which lists them all.
    """

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="a library (.so), an ONNX file, or a folder: of a sentence encoder, or of the hub")
    kind: Literal["auto", "tensors", "text", "decoder"] = Field(
        "auto", description="tensors in and out; text to embeddings; text to generated text. auto: what the folder holds"
    )
    name: str = Field("model", pattern=r"^[A-Za-z0-9_.-]+$", description="in the paths of HTTP and in metrics")
    options: Dict[str, Any] = Field(default_factory=dict, description="of attnc.load: dims, weights, precision...")

    replicas: int = Field(1, ge=1, description="processes, which share the weights' pages")
    cpus: int = Field(1, ge=1, description="CPUs that Ray reserves per replica, and threads of a run")
    max_tokens: int = Field(4096, ge=1, description="of a batch, padding included: rows times the longest one's length")
    max_rows: int = Field(64, ge=1, description="of a batch")
    max_padding: int = Field(8, ge=0, description="tokens of a batch that may be padding: what a run costs beside its own")
    wait: float = Field(0.0, ge=0, le=10, description="seconds that an idle replica waits for a batch to fill")
    timeout: float = Field(30.0, gt=0, description="seconds from arrival to answer, where a request names none")
    max_ongoing: int = Field(256, ge=1, description="requests per replica at a time; more wait in Ray's queue")
    max_queued: int = Field(1024, ge=-1, description="requests in Ray's queue; more get status 503. -1: no limit")
    max_body: int = Field(64 << 20, ge=1, description="bytes of a request by HTTP; more get status 413")
    drain: float = Field(20.0, ge=0, description="seconds that a replica which is to go has for what it has taken")
    padding: Dict[str, float] = Field(
        default_factory=dict,
        description="kind tensors: by input, the value that fills it up where requests of different lengths share a batch",
    )
    max_models: int = Field(8, ge=1, description="a folder of models: how many are open at a time")
    max_bytes: int = Field(0, ge=0, description="a folder of models: bytes of weights that are open at a time; 0: any")
    slots: int = Field(8, ge=1, le=1024, description="kind decoder: sequences that are generated at a time")
    chunk: int = Field(16, ge=1, description="kind decoder: tokens of a new prompt that go into one step")
    max_new_tokens: int = Field(256, ge=1, description="kind decoder: where a request names no number")
    backend: str = Field("", description='another engine behind the same replica: "module:function", model -> runner')

    @model_validator(mode="after")
    def _find_kind(self) -> "Settings":
        folder = pathlib.Path(self.model)
        if not folder.exists():
            raise ValueError(f"model: {self.model}: no such file or folder")
        if self.kind == "auto":
            self.kind = _kind_of(folder)
        if self.kind in ("text", "decoder") and not folder.is_dir():
            raise ValueError(f"kind '{self.kind}' needs a folder with a tokenizer, and {self.model} is a file")
        self.model = str(folder.resolve())
        return self

    def compiled(self) -> "Settings":
        """Compiles what replicas will load, so that they find it in the cache, and reports what is wrong with it here."""
        if self.backend:
            return self
        from ._models import is_collection, open_runner

        if not is_collection(self):
            open_runner(self)
        return self

    def deployment(self) -> Dict[str, Any]:
        """The options of Ray's deployment."""
        return {
            "num_replicas": self.replicas,
            "max_ongoing_requests": self.max_ongoing,
            "max_queued_requests": self.max_queued,
            "backpressure_config": {"retry_after_s": 1},  # beside status 503
            "graceful_shutdown_timeout_s": self.drain,
            "graceful_shutdown_wait_loop_s": 0.2,
            "health_check_period_s": 5,
            "logging_config": {"enable_access_log": False},  # a line per request is work
            "ray_actor_options": {"num_cpus": self.cpus},
        }

    def load(self, source: Any, **more: Any) -> Any:
        """attnc.load as replicas use it: as many threads as Ray reserves CPUs, the digest compared once per file."""
        return load(source, **{"threads": self.cpus, "sessions": 1, "verify": "once", **self.options, **more})


def _kind_of(path: pathlib.Path) -> Any:
    if not path.is_dir():
        return "tensors"
    if (path / "generation_config.json").exists() or any(path.glob("**/decoder*.onnx")):
        return "decoder"
    return "text" if (path / "tokenizer.json").exists() else "tensors"
