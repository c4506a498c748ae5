from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import ConfigError
from rowmill.validate.columns import compile_columns
from tests.strategies import TEXTS
from tests.validate.rows_of import WIRE, ask, line, recipe, refusal


def filled(template: str, raw: bytes) -> str | None:
    by = recipe(prompt=template, raw=True)
    first = ask(raw, by)
    again = ask(raw, by)
    assert (first.text, first.data_spans) == (again.text, again.data_spans)
    assert "".join(first.data_spans) == first.text
    return first.text


@given(TEXTS)
def test_doubled_braces_stand_for_themselves(text: str) -> None:
    template = text.replace("{", "{{").replace("}", "}}")

    assert compile_columns(template).literals == (text,)


@given(TEXTS, TEXTS.filter(bool), TEXTS)
def test_a_string_goes_in_as_it_is(before: str, value: str, behind: str) -> None:
    escaped = [part.replace("{", "{{").replace("}", "}}") for part in (before, behind)]

    assert filled("{a b}".join(escaped), line(**{"a b": value})) == before + value + behind


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"1.50", "1.50"),
        (b"1e999", "1e999"),
        (b"123456789012345678901234567890", "123456789012345678901234567890"),
        (b"true", "true"),
        (b'[1, "\xc3\xbc"]', '[1, "ü"]'),
        (b'{"k":  0.10}', '{"k":  0.10}'),
        (b'"\\u00fc"', "ü"),
    ],
)
def test_other_values_go_in_as_the_source_spells_them(raw: bytes, text: str) -> None:
    assert filled("<{a}>", b'{"a": ' + raw + b"}") == f"<{text}>"


def test_a_column_may_change_its_type_between_rows() -> None:
    by = recipe(prompt="{a}{b}{a}", raw=True)
    rows = [("x", "y"), (1, "y"), ("x", "y"), ("x", [2]), (1.5, True)]

    assert [ask(line(a=a, b=b), by).text for a, b in rows] == [
        *("xyx", "1y1", "xyx", "x[2]x", "1.5true1.5")
    ]
    assert "`a` is null" in refusal(line(a=None, b="y"), by)
    assert "column `b` is absent" in refusal(line(a="x"), by)


@pytest.mark.parametrize("template", ["{", "}", "a {} b", "{a", "a}", "{{a}", "{a}}", "{a{b}}"])
def test_a_brace_that_is_no_column_names_its_place(template: str) -> None:
    with pytest.raises(ConfigError, match=r"`prompt`: `.+` at character \d+ is no column"):
        compile_columns(template)


def test_a_prompt_may_have_no_column() -> None:
    assert ask(line(a=1), prompt="Say hi.", raw=True).text == "Say hi."


def test_a_column_of_two_meanings_is_read_with_thought() -> None:
    by = recipe(prompt="{custom_id} {id}", raw=True)
    for _ in range(2):
        request = ask(line(custom_id="c", id="i"), by)
        assert (request.text, request.id) == ("c i", b'"c"')
    with pytest.raises(ConfigError, match="column `sampling` holds"):
        recipe(prompt="{sampling}")


def test_a_missing_column_names_those_that_are_there() -> None:
    sentence = refusal(line(text="x", id=1), prompt="{txt}")

    assert "column `txt` is absent; the row has `text`, `id`" in sentence


def test_a_name_with_a_dot_is_told_how_fields_inside_a_column_are_reached() -> None:
    row = line(customer={"name": "Ada"})

    inside = refusal(row, prompt="{customer.name}")
    assert inside.endswith(
        "the row has `customer`; for a field inside `customer` take `prompt_jinja`"
        " and `{{ customer.name }}`"
    )
    assert refusal(row, prompt="{client.name}").endswith("the row has `customer`")
    assert refusal(row, prompt="{customer.a b}").endswith("the row has `customer`")


def test_a_column_with_a_dot_in_its_name_is_a_column() -> None:
    request = ask(line(**{"a.b": "x", "a": {"b": "y"}}), prompt="{a.b}", raw=True)

    assert request.text == "x"


def test_a_prompt_that_comes_out_empty_is_a_row_error() -> None:
    assert "the prompt is empty, for so is `a`" in refusal(line(a=""), prompt="{a}")


def test_the_text_is_one_user_message_where_the_job_is_chat() -> None:
    request = ask(line(a="x"), prompt="Is it {a}?", system="Be brief.")

    assert request.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Is it x?"},
    ]
    raw = ask(line(a="x"), prompt="Is it {a}?", raw=True)
    assert (raw.text, list(raw.data_spans)) == ("Is it x?", ["Is it ", "x", "?"])


def test_an_endpoint_is_sent_the_filled_prompt() -> None:
    request = ask(line(a="x"), recipe(WIRE, prompt="{a}!"))

    assert request.wire == b'[{"role":"user","content":"x!"}]'


def test_a_table_of_web_pages_is_columns_not_batch_lines() -> None:
    row = {"method": "GET", "url": "http://x", "body": {"a": 1}}

    assert ask(line(**row), prompt="{body} {url}", raw=True).text == '{"a": 1} http://x'


def test_only_the_column_sampling_is_sampling() -> None:
    by = recipe(prompt="{a}")

    assert ask(line(a="x", max_tokens="many", n="?"), by).sampling.max_tokens is None
    assert ask(line(a="x", sampling={"max_tokens": 5}), by).sampling.max_tokens == 5
    assert ask(line(a="x", sampling=None), by).sampling.max_tokens is None
    assert "`sampling.max_tokens` is a string" in refusal(
        line(a="x", sampling={"max_tokens": "5"}), by
    )
    assert "`sampling` is an empty list" in refusal(line(a="x", sampling=[]), by)
    assert "`sampling.maxtokens` is unknown" in refusal(
        line(a="x", sampling={"maxtokens": 5}), by
    )


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b", 'q"', "é"]), st.integers() | TEXTS),
        max_size=4,
    )
)
def test_rows_of_any_columns_are_filled_or_refused(rows: list[dict[str, Any]]) -> None:
    by = recipe(prompt="<{a}>", raw=True)
    for row in rows:
        if "a" in row:
            assert ask(line(**row), by).text == f"<{row['a']}>"
        else:
            assert "column `a` is absent" in refusal(line(**row), by)


@pytest.mark.parametrize(
    ("template", "raw", "text"),
    [
        ("{{ a }}", b'{"a": 1.50}', "1.50"),
        ("{{ a }}", b'{"a": 1e999}', "1e999"),
        ("{{ a + 1 }}", b'{"a": 1.5}', "2.5"),
        ("{{ a }}", b'{"a": [1.50, "\xc3\xbc"]}', '[1.50, "ü"]'),
        ("{{ a | tojson }}", b'{"a": {"k": "<"}}', '{"k": "<"}'),
        ("{{ a.k }}", b'{"a": {"k": "v"}}', "v"),
        ("{{ a }}", b'{"a": true}', "true"),
        ("{% if a %}yes{% else %}no{% endif %}", b'{"a": false}', "no"),
        ("{% for x in a %}{{ x }};{% endfor %}\n", b'{"a": [1, 2]}', "1;2;\n"),
        ("{% macro m(x) %}({{ x }}){% endmacro %}{{ m(a) }}!", b'{"a": 1}', "(1)!"),
    ],
)
def test_jinja_prints_columns_as_the_source_spells_them(
    template: str, raw: bytes, text: str
) -> None:
    request = ask(raw, prompt_jinja=template, raw=True)

    assert request.text == text
    assert "".join(request.data_spans) == text
    assert len(request.data_spans) % 2 == 1


def test_jinja_data_is_told_from_the_templates_own_words() -> None:
    request = ask(line(a="x"), prompt_jinja="<s>{{ a }}<s>", raw=True)

    assert list(request.data_spans) == ["<s>", "x", "<s>"]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ b }}", "'b' is undefined"),
        ("{{ none }}", "prints a null"),
        ("{{ null }}", "prints a null"),
        ("{{ text / 2 }}", "TypeError"),
        ("{{ text['__cla' ~ 'ss__'].x }}", "unsafe"),
        ("{{ 'a' * 10**10 }}", "does more than it may for one row"),
        ("{% if not text %}x{% endif %}", "empty prompt"),
    ],
)
def test_jinja_that_cannot_be_filled_is_a_row_error(template: str, said: str) -> None:
    sentence = refusal(line(text="private words", null=None), prompt_jinja=template)

    assert said in sentence
    assert "private" not in sentence


@pytest.mark.parametrize("spelled", ["\ufdd2", "\\ufdd3", "\\uFDD2"])
def test_data_cannot_pass_itself_off_as_the_templates_words(spelled: str) -> None:
    raw = f'{{"a": "x{spelled}y"}}'.encode()

    assert "`a` holds the noncharacter" in refusal(raw, prompt_jinja="{{ a }}")


def test_jinja_with_a_wrong_syntax_names_the_line() -> None:
    with pytest.raises(ConfigError, match="`prompt_jinja`, line 2"):
        recipe(prompt_jinja="a\n{% if %}")
    with pytest.raises(
        ConfigError, match="line 2: `__class__` is an attribute that no template"
    ):
        recipe(prompt_jinja="a\n{{ text.__class__ }}")
