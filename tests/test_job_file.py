"""TOML + flags -> Job: what is laid over what, and every mistake in a sentence."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.config import EngineConfig, Job
from rowmill.engines.echo import check_options
from rowmill.errors import BadJob, UnknownName
from rowmill.job_file import load_job


def mistakes_of(
    tmp_path: Path, toml: str | bytes, sets: tuple[str, ...] = (), **settings: object
) -> list[str]:
    file = tmp_path / "job.toml"
    file.write_bytes(toml if isinstance(toml, bytes) else toml.encode())
    with pytest.raises(BadJob) as caught:
        load_job(file, settings=settings, sets=sets)
    assert caught.value.fields["where"] == str(file)
    mistakes: list[str] = caught.value.fields["mistakes"]
    assert all(mistake.isprintable() for mistake in mistakes)
    return mistakes


def test_flags_come_before_the_file_and_sets_before_flags(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'source = "a.jsonl"\noutput = "out"\n[sampling]\nmax_tokens = 1\nn = 2\n[run]\nlimit = 3\n'
    )

    job = load_job(
        file,
        settings={"run.limit": 4, "sampling.max_tokens": 5, "output.path": "other"},
        sets=["sampling.max_tokens=6"],
    )

    assert job.source == ("a.jsonl",)
    assert job.output.path == "other"
    assert job.run.limit == 4
    assert job.sampling.max_tokens == 6
    assert job.sampling.n == 2


def test_defaults_stand_where_nothing_is_said() -> None:
    assert load_job() == Job()


def test_short_output_keeps_the_rest_of_its_table(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('[output]\npath = "a"\nprefix = "x_"\n')

    assert (
        load_job(file, sets=["output=b"]).output
        == load_job(sets=["output=b", "output.prefix=x_"]).output
    )


def test_byte_order_mark_in_front_of_a_job_file_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_bytes(b'\xef\xbb\xbfprompt = "{text}"\r\n')

    assert load_job(file).prompt == "{text}"


def test_engine_settings_of_any_name_reach_the_engines_own_check() -> None:
    seen: list[EngineConfig] = []

    def check(engine: EngineConfig) -> list[str]:
        seen.append(engine)
        return ["`engine.threads` is odd"]

    with pytest.raises(BadJob) as caught:
        load_job(sets=["engine.threads=4", "sampling.n=0"], check_options=check)

    assert seen[0].options == {"threads": 4}
    assert len(caught.value.fields["mistakes"]) == 2


@pytest.mark.parametrize("labels", ['["no", "no"]', '["yes"]', '["yes", 2020-01-01]'])
def test_wrong_labels_are_one_mistake_and_not_said_to_be_missing(labels: str) -> None:
    with pytest.raises(BadJob) as caught:
        load_job(
            None,
            sets=["engine.name=echo", "kind=classify", f"classify.labels={labels}"],
            check_options=check_options,
        )

    assert len(caught.value.fields["mistakes"]) == 1
    assert "labels" in str(caught.value)


def test_unknown_engine_is_one_mistake_among_the_others() -> None:
    def check(engine: EngineConfig) -> list[str]:
        raise UnknownName(what="engine", name=engine.name, known=["echo", "http"])

    with pytest.raises(BadJob) as caught:
        load_job(sets=["engine.name=ecko", "run.limit=0"], check_options=check)

    assert caught.value.fields["mistakes"] == [
        "`run.limit` is `0`; expected a whole number above 0",
        "unknown engine `ecko`; did you mean `echo`? known: `echo`, `http`",
    ]


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("prompt = {text}", "not valid TOML at line 1, column"),
        (
            "kind = chat",
            "not valid TOML at line 1, column 8: Invalid value; text stands in quotes",
        ),
        ("[run]\n[run]\n", "not valid TOML at line 2, column"),
        (b"# ok\n# ok\nprompt = '\xff'", "line 3 is not UTF-8"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("n = " + "1" * 5000, "too many digits"),
        ("promt = 'x'", "unknown key `promt`; did you mean `prompt`? a job takes "),
        ("max_tokens = 4", "unknown key `max_tokens`; did you mean `sampling.max_tokens`?"),
        ("[samplin]", "unknown table `samplin`; did you mean `sampling`?"),
        (
            "[validate]\nzzz = 1",
            "unknown key `validate.zzz`; `[validate]` takes `duplicate_ids`, ",
        ),
        ("validate_ = {}", "unknown table `validate_`; did you mean `validate`?"),
        ("engine = 'vllm'", "`engine` is a string; expected a table with `chat_template`, "),
        (
            "sampling.max_tokens = '6'",
            "`sampling.max_tokens` is a string; expected a whole number",
        ),
        ("sampling.temperature = true", "is `true`; expected a number at least 0"),
        ("sampling.n = 1.5", "`sampling.n` is `1.5`; expected a whole number at least 1"),
        (
            "sampling.top_p = 2",
            "`sampling.top_p` is `2`; expected a number above 0 and at most 1",
        ),
        ("sampling.stop = ['a', 1]", "item 2 of `sampling.stop` is `1`; expected a string"),
        ("sampling.seed = 2024-01-01", "`sampling.seed` is a date or time"),
        ("run.checkpoint_s = inf", "`run.checkpoint_s` is `inf`; expected a finite number"),
        (
            "output.prefix = ''",
            "is an empty string; expected a string that matches `^[A-Za-z_]",
        ),
        ("kind = 'chatt'", "`kind` is `chatt`; expected one of `auto`, `generate`, `chat`"),
        ("source = 5", "`source` holds `5`; expected a string or a list of strings"),
        ("source = ['']", "`source` holds an empty string"),
        ("output = 5", "`output` is `5`; expected a string or a table"),
        ("output = '-'", "`-` is no output"),
        ("prompt = 'a'\nprompt_jinja = 'b'", "exclude each other; keep one"),
        ("kind = 'embed'\nplan.sort = 'input'", "leave it out of a job of kind `embed`"),
        (
            "sampling = {regex = 'a', choices = ['b']}",
            "`[sampling]`: `choices` and `regex` exclude",
        ),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, toml: str | bytes, sentence: str) -> None:
    mistakes = mistakes_of(tmp_path, toml)

    assert len(mistakes) == 1
    assert sentence in mistakes[0]


def test_absent_job_file_and_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()

    with pytest.raises(BadJob, match="there is no such job file"):
        load_job(tmp_path / "absent.toml")
    with pytest.raises(BadJob, match="a folder, not a job file"):
        load_job(tmp_path / "folder.toml")


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    toml = """
        kind = "chatt"
        promt = "x"
        prompt = "a"
        prompt_jinja = "b"
        [sampling]
        max_tokens = "64"
        regex = "a"
        choices = ["b"]
        [run]
        limit = -1
        checkpoint_s = nan
    """

    mistakes = mistakes_of(tmp_path, toml, ("plan.order=best", "nonsense"))

    assert len(mistakes) == 9


def test_a_mistake_of_a_flag_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    mistakes = mistakes_of(tmp_path, "", ("sampling.n=0",), **{"run.limit": 0})

    assert [m.rpartition(" (")[2] for m in mistakes] == [
        "given by `--set`)",
        "given by a flag)",
    ]


def test_text_of_prompts_is_not_shown(tmp_path: Path) -> None:
    mistakes = mistakes_of(tmp_path, 'run = "secret text"\n[sampling]\nn = "secret text"\n')

    assert "secret" not in " ".join(mistakes)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("prompt=5", "5"),
        ('prompt="quoted"', "quoted"),
        ('prompt="Hi" said {text}', '"Hi" said {text}'),
        ("prompt={text}: good?", "{text}: good?"),
        ("prompt=a=b", "a=b"),
        ("prompt=[not toml", "[not toml"),
        ("prompt=", ""),
        ("prompt=1\nsystem='x'", "1\nsystem='x'"),
    ],
)
def test_set_takes_text_settings_as_they_stand(text: str, found: str) -> None:
    job = load_job(sets=[text])

    assert job.prompt == found
    assert not job.system


def test_set_reads_other_values_as_toml() -> None:
    job = load_job(
        sets=[
            "sampling.temperature=0",
            "sampling.stop=END",
            "sampling.choices=['a', '2']",
            "sampling.extra={a = [1]}",
            "engine.gpu=true",
            "engine.revision=2024-01-01",
            "engine.file=a b.gguf",
            "validate.too_long=clamp_max_tokens",
        ]
    )

    assert job.sampling.temperature == 0
    assert job.sampling.stop == ("END",)
    assert job.sampling.choices == ("a", "2")
    assert job.sampling.extra == {"a": [1]}
    assert job.engine.options == {"gpu": True, "file": "a b.gguf"}
    assert job.engine.revision == "2024-01-01"
    assert job.validate_.too_long == "clamp_max_tokens"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sampling.n", "`--set` takes `key.path=value`"),
        ("=1", "`--set` takes `key.path=value`"),
        ("sampling..n=1", "`--set` takes `key.path=value`"),
        ("samplin.n=1", "unknown table `samplin`; did you mean `sampling`?"),
        ("sampling.m=1", "unknown key `sampling.m`"),
        ("sampling.n=many", "`sampling.n` is a string; expected a whole number"),
        ("sampling.choices=['a'", "`--set sampling.choices`: the value begins like TOML"),
        ("prompt.text=1", "`prompt` is a table; expected a string"),
    ],
)
def test_wrong_set_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadJob) as caught:
        load_job(sets=[text])

    assert sentence in str(caught.value)
    assert len(caught.value.fields["mistakes"]) == 1


def test_what_a_job_cannot_do_without_is_asked_for() -> None:
    with pytest.raises(BadJob) as caught:
        load_job(needs=("source", "output"))

    assert [m.split(":")[0] for m in caught.value.fields["mistakes"]] == [
        "no input",
        "no output",
    ]


toml_values = st.recursive(
    st.none().map(lambda _: "x")
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(
    ["source", "output", "prompt", "engine", "sampling", "run", "plan", "kind", "raw", "zzz"]
)
inner_keys = st.sampled_from(
    ["name", "n", "stop", "schema", "limit", "path", "prefix", "order"]
)


@given(
    tree=st.dictionaries(
        keys, toml_values | st.dictionaries(inner_keys, toml_values, max_size=3), max_size=4
    ),
    sets=st.lists(st.text(max_size=20), max_size=2),
)
def test_any_tree_is_a_job_or_a_bad_job(tree: dict[str, object], sets: list[str]) -> None:
    mistakes: list[str] = ["none"]
    try:
        load_job(settings=tree, sets=sets)
    except BadJob as error:
        mistakes = error.fields["mistakes"]

    assert mistakes
    assert all(mistake.isprintable() for mistake in mistakes)
