"""The job: what is asked, as one frozen value. A field's docstring is its documentation.

Promises: an unknown key, a wrong type or a value out of range never passes; all mistakes are found at once.
Knows nothing of: files (see job_file.py), engines beyond their name (an adapter's own options are its own).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from rowmill.kinds_config import (
    ClassifyConfig,
    EmbedConfig,
    Kind,
    ScoreConfig,
    asked_of,
    refuse_to_sort,
)
from rowmill.kubernetes_config import KubernetesConfig
from rowmill.media_config import MediaConfig
from rowmill.part import Part
from rowmill.ray_config import RayConfig
from rowmill.read_config import ReadConfig
from rowmill.reasoning_config import ReasoningConfig
from rowmill.sink_config import SinkConfig
from rowmill.telemetry_config import TelemetryConfig

INNER_TABLES = ("media", "reasoning")
"""Tables of the job that an engine is given as well."""
TooLongPolicy = Literal["error", "truncate_left", "truncate_right", "clamp_max_tokens", "chunk"]


class EngineConfig(Part):
    """`[engine]`: what answers the rows. Settings that an engine alone knows go beside these by their own name."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = ""
    """`llamacpp`, `http`, `vllm`, `transformers`, `echo`, or a plugin's name.
    Empty: `http` where `url` is set, else `llamacpp` for texts, `transformers` to weigh labels, `onnx` for the rest."""
    model: str = ""
    """A path, a name on the Hugging Face hub (`vllm`, `transformers`), or the name an endpoint serves.
    Empty: the demo model, SmolLM2-135M-Instruct (`llamacpp`)."""
    revision: str = ""
    """Version of the model, part of the identity."""
    tokenizer: str = ""
    """Folder or `tokenizer.json` to count and encode with; empty: the model's own. `bytes`: one token a byte."""
    chat_template: str = ""
    """Path of a Jinja file that replaces the model's own chat template."""
    max_model_len: int | None = Field(default=None, gt=0)
    """Most tokens of prompt and answer together. None: what the engine says."""
    seats: int | None = Field(default=None, gt=0)
    """Rows the engine works on at once (`max_num_seqs`, or requests in flight). None: the engine's own default."""
    embed: EmbedConfig | None = Field(default=None, json_schema_extra={"is_inner": True})
    """The job's own `[embed]` where its kind is `embed`: filled in, not to be set."""
    media: MediaConfig | None = Field(default=None, json_schema_extra={"is_inner": True})
    """The job's own `[media]`, in the same way."""
    reasoning: ReasoningConfig | None = Field(
        default=None, json_schema_extra={"is_inner": True}
    )
    """The job's own `[reasoning]`, in the same way."""
    classify: ClassifyConfig | None = Field(default=None, json_schema_extra={"is_inner": True})
    """The same of `[classify]`, where its kind is `classify`."""
    score: ScoreConfig | None = Field(default=None, json_schema_extra={"is_inner": True})
    """The same of `[score]`, where its kind is `score` or `rerank`."""
    ranks: bool = Field(default=False, json_schema_extra={"is_inner": True})
    """The job's kind is `rerank`."""

    @property
    def is_asked_for_texts(self) -> bool:
        """Whether answers are texts: all but vectors, labels and scores."""
        return self.embed is None and self.classify is None and self.score is None

    @property
    def options(self) -> dict[str, Any]:
        """Settings beyond the common ones, for the adapter to check."""
        return dict(self.__pydantic_extra__ or {})


class SamplingConfig(Part):
    """`[sampling]`: how answers are drawn; a row's own values come first."""

    temperature: float | None = Field(default=None, ge=0)
    """0 takes the most likely token each time. None: the engine's default."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Draw from the smallest set of tokens with this much probability."""
    top_k: int | None = None
    """Draw from this many most likely tokens."""
    min_p: float | None = Field(default=None, ge=0, le=1)
    """Leave out tokens under this share of the most likely one's probability."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Most tokens of an answer. None: what the context leaves."""
    n: int = Field(default=1, ge=1)
    """Answers a row."""
    stop: tuple[str, ...] = ()
    """Strings that end an answer; they are not part of it."""
    seed: int | None = None
    """Seed of the draw."""
    presence_penalty: float | None = None
    """Penalty on tokens that occurred."""
    frequency_penalty: float | None = None
    """Penalty on tokens by how often they occurred."""
    repetition_penalty: float | None = Field(default=None, gt=0)
    """Factor on tokens that occurred; 1 is none."""
    logprobs: int | None = Field(default=None, ge=0)
    """Log-probabilities of so many most likely tokens; 0: of the chosen one alone."""
    choices: tuple[str, ...] = ()
    """The answer is exactly one of these."""
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    """JSON Schema the answer must follow."""
    regex: str = ""
    """Regular expression the answer must match."""
    ignore_eos: bool = False
    """Go on past the end token until `max_tokens`: for benchmarks."""
    return_token_ids: bool = False
    """Keep each answer's token ids in `choices`."""
    extra: dict[str, Any] = Field(default={})
    """Fields passed through to an endpoint untouched."""
    lora: str = ""
    """Adapter that answers, one of `engine.loras`; a row's own `lora` comes first. Empty: the model itself."""
    seed_per_row: bool = False
    """Each row draws with a seed of its own, made of its place in the input and `seed`: the same after a resume."""

    @field_validator("stop", "choices", mode="before")
    @classmethod
    def _one_string_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_constraint(self) -> SamplingConfig:
        given = [
            k
            for k, v in (
                ("choices", self.choices),
                ("schema", self.schema_),
                ("regex", self.regex),
            )
            if v
        ]
        if len(given) > 1:
            names = " and ".join(f"`{name}`" for name in given)
            msg = f"{names} exclude each other; keep one"
            raise ValueError(msg)
        return self


class ValidateConfig(Part):
    """`[validate]`: what is done with rows that are not as they should be."""

    too_long: TooLongPolicy = "error"
    """A prompt, or prompt + `max_tokens`, over the context: a row error, or cut to fit. `chunk`: a text to embed becomes
    several, with a vector each."""
    special_tokens: Literal["as_text", "parse"] = "as_text"
    """Control tokens such as `<|im_end|>` inside data (message contents, column values): plain text, or parsed."""
    duplicate_ids: Literal["error", "keep"] = "error"
    """Ids that repeat: refuse the job (among `first_rows`; later ones become row errors), or keep every row."""
    id_column: str = ""
    """Column that holds the user's id. Empty: `custom_id`, else `id`, where there is one."""
    first_rows: int = Field(default=200_000, ge=0)
    """Rows checked before the engine starts; later ones are checked in their window."""
    model_names: tuple[str, ...] = ()
    """What `model` of batch lines may say beside `engine.model`."""
    strict: bool = False
    """Refuse the job where any row is bad, before anything is asked; reads the whole input first."""


class PlanConfig(Part):
    """`[plan]`: in which order and company rows go to the engine."""

    order: Literal["auto", "file", "prefix"] = "auto"
    """`auto`: rows that begin alike together, and long answers first, where the plan finds a gain. `prefix`: rows that
    begin alike together also where they seem to fit into the KV cache. `file`: as they stand in the input."""
    sort: Literal["auto", "window", "input"] = "auto"
    """How far apart rows that begin alike may stand to be asked together. `window`: within `window_rows`. `input`:
    anywhere; the whole input is sorted on the disk first, as large as its text compressed. `auto`: `input` for
    1,000,000 rows and more where windows would miss 2 % of the prompts that are shared, and the engine has a prefix cache."""
    reorder_fields: bool = False
    """Put the parts of `prompt` that hold columns (lines with words of their own, or paragraphs) in the order in which most
    of the prompts begin alike: columns of few values first, or each row's common texts first, where that is better. Answers
    can change with it, so it is part of the identity of a run."""
    duplicates: Literal["copy", "ask"] = "copy"
    """Equal rows of a window, greedy ones only: ask once and copy the answer, or ask each."""
    window_rows: int = Field(default=8192, gt=0)
    """Rows planned at once; bounds memory."""
    window_bytes: int = Field(default=32 * 2**20, gt=0)
    """Bytes of input planned at once; bounds memory where rows are long."""
    profile: Literal["batch", "nearline", "online"] = "batch"
    """What the engine is set up for where the job leaves it open: the most rows an hour; each row within `deadline_s`,
    about; rows that somebody waits for, with few others beside them."""
    deadline_s: float | None = Field(default=None, gt=0)
    """Within so many seconds rows of `nearline` are wanted. None: 30."""
    gpu: str = ""
    """GPU that `check` forecasts for, as `H200` or `2xL4`; empty: those of this machine, else one of each kind that is
    known. It changes no run."""

    @model_validator(mode="after")
    def _file_order_is_not_sorted(self) -> PlanConfig:
        if self.order == "file" and self.sort == "input":
            msg = '`order = "file"` and `sort = "input"` exclude each other; keep one'
            raise ValueError(msg)
        return self


class RunConfig(Part):
    """`[run]`: how the work is kept safe and when it stops."""

    checkpoint_s: float = Field(default=30.0, gt=0)
    """Seconds between moments at which outcomes are safe on the disk: what a loss of power may repeat."""
    max_failed_share: float = Field(default=0.5, gt=0, le=1)
    """Stop early where more than this share of rows fails, once `max_failed_after` rows are done."""
    max_failed_after: int = Field(default=200, gt=0)
    """Rows that must be done before `max_failed_share` is looked at."""
    max_hours: float | None = Field(default=None, gt=0)
    """Drain and stop after so many hours; the same command resumes."""
    max_cost: float | None = Field(default=None, gt=0)
    """Drain and stop once this start and all before it have cost so much, at the prices below."""
    gpu_hour_price: float | None = Field(default=None, ge=0)
    """Price of one GPU for an hour, in your currency; without a GPU, of the machine."""
    prices: str = ""
    """TOML file of prices that forecasts take where `gpu_hour_price` is not set. Empty: rowmill's own table."""
    prompt_million_price: float | None = Field(default=None, ge=0)
    """What an endpoint asks for a million tokens of prompts; those from its cache are counted in full."""
    output_million_price: float | None = Field(default=None, ge=0)
    """What it asks for a million tokens of answers."""
    max_total_tokens: int | None = Field(default=None, gt=0)
    """Drain and stop once prompts and answers of this run, earlier starts counted in, have so many tokens."""
    min_free_gib: float | None = Field(default=None, ge=0)
    """Drain and stop where less is free at a local output. None: 1 GiB, on disks of 20 GiB and more."""
    drain_s: float = Field(default=8.0, ge=0)
    """Seconds that rows in flight are given after Ctrl-C, SIGTERM or a cap; a second signal ends at once.
    A pod has 30 s from SIGTERM to SIGKILL: up to 20 s leave enough to write down what is answered."""
    start_s: float = Field(default=3600.0, gt=0)
    """Seconds in which an engine must be ready. Loading a model off a slow disk takes long; an hour is a fault."""
    stall_s: float | None = Field(default=None, gt=0)
    """An engine that has rows and makes no progress for so many seconds is ended and started again. None: derived
    from what is in flight and from how the engine was so far, 2 minutes at least."""
    recycle_rows: int | None = Field(default=None, gt=0)
    """Start an engine anew after so many rows. None: never; paged KV caches do not fragment."""
    recycle_gib: float | None = Field(default=None, gt=0)
    """Start an engine anew once its processes hold so many GiB of memory more than after its first rows. None: never."""
    task_rows: int | None = Field(default=None, gt=0)
    """Rows of a task, the unit of claim and commit. None: a hundredth of the input, 1,000 to 50,000."""
    lease_s: float = Field(default=30.0, gt=0)
    """A task whose heartbeat stood still so long is taken over by another worker."""
    limit: int | None = Field(default=None, gt=0)
    """Only the first so many rows of the input."""
    executor: str = "local"
    """Who starts workers: `local`, one on this machine; `ray`, as many as a Ray cluster has room for; or a plugin's name."""

    @model_validator(mode="after")
    def _cost_needs_a_price(self) -> RunConfig:
        prices = (self.gpu_hour_price, self.prompt_million_price, self.output_million_price)
        if self.max_cost is not None and not any(prices):
            msg = (
                "`max_cost` needs a price: `gpu_hour_price`, or of an endpoint `prompt_million_price`"
                " and `output_million_price`"
            )
            raise ValueError(msg)
        return self


class OutputConfig(Part):
    """`[output]`: where results go; `output = "out/"` is short for its `path`."""

    path: str = ""
    """Folder, or a prefix of an object store: `s3://`, `gs://` or `az://BUCKET/NAME`.
    `output = "DIR"`, in place of this table, sets it alone."""
    prefix: str = Field(default="rowmill_", pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    """What the names of result columns begin with."""
    part_bytes: int = Field(default=256 * 2**20, ge=2**16)
    """Size of a results file before compression, about."""
    format: Literal["auto", "jsonl", "parquet", "arrow", "csv"] = "auto"
    """What results are written as. `auto`: Parquet where all input is Parquet or Arrow, else JSON Lines."""
    compression: Literal["auto", "none", "gzip", "zstd"] = "auto"
    """Of results files; Arrow knows no gzip. `auto`: zstd inside Parquet, none elsewhere."""
    vectors: Literal["float32", "float16"] = "float32"
    """What the numbers of vectors are written as."""
    order: Literal["input", "completion"] = "input"
    """Rows of results as they stand in the input, or task by task as they were answered."""

    @model_validator(mode="after")
    def _compression_suits(self) -> OutputConfig:
        if self.format == "arrow" and self.compression == "gzip":
            msg = "`compression` is `gzip`, which Arrow files do not know; allowed are `auto`, `zstd` and `none`"
            raise ValueError(msg)
        return self


class Job(Part):
    """One batch job: the same value from the command line, a TOML file or Python."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    source: tuple[str, ...] = ()
    """Path, glob or folder, or a list of them, on this machine or in an object store (`s3://BUCKET/NAME`);
    `-` is standard input."""
    read: ReadConfig = ReadConfig()
    """How files are understood."""
    output: OutputConfig = OutputConfig()
    """Where results go."""
    kind: Kind = "auto"
    """`chat`: one user message, or `messages`; `generate`: plain completion; `embed`: a vector for each text;
    `classify`: a label for each row, with its probability; `score`: how well a query and a document go together;
    `rerank`: the same of a query and many. `auto`: chat where the model has a template."""
    prompt: str = ""
    """Text with `{column}` in it; `{{` and `}}` stand for braces. Nothing else is special."""
    prompt_jinja: str = ""
    """Jinja text over the row's columns, in place of `prompt`."""
    system: str = ""
    """System message put before the user message that `prompt` makes."""
    messages: str = "messages"
    """Column that holds a conversation."""
    text: str = "text"
    """Column that holds the text to embed, or that a model with a head classifies, where there is no `prompt`."""
    embed: EmbedConfig = EmbedConfig()
    """How texts become vectors."""
    media: MediaConfig = MediaConfig()
    """Images and audio of rows."""
    reasoning: ReasoningConfig = ReasoningConfig()
    """How reasoning is told from answers."""
    classify: ClassifyConfig = ClassifyConfig()
    """Which labels there are."""
    score: ScoreConfig = ScoreConfig()
    """Where pairs stand in a row."""
    raw: bool = False
    """Send the prompt as plain completion even where the model has a chat template."""
    engine: EngineConfig = Field(default=EngineConfig(), validate_default=True)
    """What answers."""
    sampling: SamplingConfig = SamplingConfig()
    """How answers are drawn."""
    validate_: ValidateConfig = Field(default=ValidateConfig(), alias="validate")
    """What is done with bad rows."""
    plan: PlanConfig = PlanConfig()
    """Order and company of rows."""
    run: RunConfig = RunConfig()
    """Safety and stopping."""
    sink: SinkConfig = SinkConfig()
    """A vector store to load."""
    kubernetes: KubernetesConfig = KubernetesConfig()
    """Pods that `rowmill k8s` asks for."""
    ray: RayConfig = RayConfig()
    """Workers on a Ray cluster."""
    telemetry: TelemetryConfig = TelemetryConfig()
    """Who is told how the run stands."""

    @field_validator("source", mode="before")
    @classmethod
    def _one_source_is_a_list(cls, value: Any) -> Any:
        return (
            (str(value),)
            if not isinstance(value, list | tuple)
            else tuple(str(v) for v in value)
        )

    @field_validator("output", mode="before")
    @classmethod
    def _path_is_short_for_output(cls, value: Any) -> Any:
        return value if isinstance(value, dict | OutputConfig) else {"path": str(value)}

    @field_validator("sink", mode="before")
    @classmethod
    def _address_is_short_for_sink(cls, value: Any) -> Any:
        return value if isinstance(value, dict | SinkConfig) else {"to": str(value)}

    @model_validator(mode="after")
    def _one_prompt(self) -> Job:
        if self.prompt and self.prompt_jinja:
            msg = "`prompt` and `prompt_jinja` exclude each other; keep one"
            raise ValueError(msg)
        return self

    @field_validator("plan")
    @classmethod
    def _only_prompts_are_sorted(cls, plan: PlanConfig, found: ValidationInfo) -> PlanConfig:
        refuse_to_sort(found.data, plan.sort)
        return plan

    @field_validator("engine")
    @classmethod
    def _engine_knows_what_is_asked(
        cls, engine: EngineConfig, found: ValidationInfo
    ) -> EngineConfig:
        """An engine is opened by its own settings alone."""
        asked = {
            **asked_of(found.data),
            **{name: found.data.get(name) for name in INNER_TABLES},
        }
        for name, own in asked.items():
            if getattr(engine, name) not in (None, False, own):
                msg = f"`{name}` is filled in; set `[{name}]`"
                raise ValueError(msg)
        return engine.model_copy(update=asked)
