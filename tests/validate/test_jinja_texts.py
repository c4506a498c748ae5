"""What Jinja makes text of is printed as columns are, wherever in a template that happens."""

from __future__ import annotations

import json

import pytest
from jinja2 import Environment

from tests.validate.rows_of import ask, line, refusal

ROW = (
    b'{"null": null, "o": {"a": 1.50, "b": null}, "t": true, "l": [1e2, "x", false],'
    b' "s": "str", "n": 123456789012345678901.50}'
)
OBJECT = '{"a": 1.50, "b": null}'


def text_of(template: str) -> str | None:
    return ask(ROW, prompt_jinja=template, raw=True).text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ o ~ '!' }}", OBJECT + "!"),
        ("{{ t ~ n ~ l }}", 'true123456789012345678901.50[1e2, "x", false]'),
        ("{{ o | string }}", OBJECT),
        ("{{ t | upper }}", "TRUE"),
        ("{{ l | safe }}{{ t | e }}", '[1e2, "x", false]true'),
        ("{{ l | join('-') }}", "1e2-x-false"),
        ("{{ [o] | join(t, attribute='a') }}", "1.50"),
        ("{{ l | map('string') | join }}", "1e2xfalse"),
        ("{{ '%s, %s' % (o, t) }}", OBJECT + ", true"),
        ("{{ '%(a)s' % o }}", "1.50"),
        ("{{ '%r' | format(o) }}", OBJECT),
        ("{{ '%5.1f|%d' % (o.a, t) }}", "  1.5|1"),
        ("{{ '{}|{:>5}|{:d}|{x}'.format(o, t, t, x=l) }}", OBJECT + '| true|1|[1e2, "x", false]'),
        ("{{ '{0[l][2]}'.format({'l': l}) }}", "false"),
        ("{{ '{a}'.format_map(o) }}", "1.50"),
        ("{{ s | replace('s', t) }}", "truetr"),
        ("{{ {'a': t} | urlencode }}{{ {'a': t, 'b': null} | xmlattr }}", 'a=true a="true"'),
        ("{{ (s, t) }}{{ l | pprint }}", '["str", true][1e2, "x", false]'),
        ("{% filter lower %}{{ o ~ t }}{% endfilter %}", OBJECT + "true"),
    ],
)  # fmt: skip
def test_no_value_becomes_text_as_python_spells_it(template: str, text: str) -> None:
    assert text_of(template) == text


@pytest.mark.parametrize(
    "template",
    [
        "x{{ null ~ 'a' }}",
        "{{ null | string }}",
        "{{ null | upper }}",
        "{{ null | e }}",
        "{{ [null] | join }}",
        "{{ s | join(null) }}",
        "{{ '%s' % null }}",
        "{{ '%s' | format(null) }}",
        "{{ '%(b)s' % o }}",
        "{{ '{}'.format(null) }}",
        "{{ '{0[b]}'.format(o) }}",
        "{{ s | replace('s', null) }}",
        "{{ s | replace(old='s', new=null) }}",
        "{{ {'a': null} | urlencode }}",
    ],
)
def test_a_null_never_becomes_text(template: str) -> None:
    assert "`prompt_jinja` prints a null of this row" in refusal(ROW, prompt_jinja=template)


def test_a_null_is_named_where_it_is_a_column() -> None:
    sentence = refusal(line(a="x", b=None), prompt_jinja="{{ a }}{{ b }}")

    assert sentence.endswith("prints a null of this row (null: `b`), expected text")


def test_a_null_that_is_not_printed_is_one() -> None:
    template = (
        "{{ null is none }} {{ null == none }} {{ null | default('d', true) }} {{ null | tojson }}"
        " {% if null %}y{% else %}n{% endif %} {{ t is true }}"
    )

    assert text_of(template) == "true true d null n true"


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("{{ o.items() }}", "dict_items"),
        ("{{ l | map('string') }}", "generator"),
        ("{{ 'x' ~ s.upper }}", "builtin_function_or_method"),
        ("{% for x in l %}{{ loop }}{% endfor %}", "LoopContext"),
    ],
)
def test_what_no_row_could_hold_is_not_printed(template: str, kind: str) -> None:
    assert f"`prompt_jinja` prints a `{kind}`, expected" in refusal(ROW, prompt_jinja=template)


def test_a_filter_that_refuses_its_arguments_is_a_row_error() -> None:
    assert "AssertionError" in refusal(ROW, prompt_jinja="{{ s | truncate(2) }}")


def test_a_list_that_holds_itself_many_times_over_is_ended() -> None:
    template = (
        "{% set ns = namespace(l=['x' * 10**7]) %}"
        "{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l ~ '' }}"
    )

    assert "does more than it may" in refusal(ROW, prompt_jinja=template)


def test_a_list_indented_far_is_ended() -> None:
    for template in ("{{ l | tojson(indent=10**9) }}", "{{ [[l] * 10**5] | tojson(10**5) }}"):
        assert "does more than it may" in refusal(ROW, prompt_jinja=template)


@pytest.mark.parametrize(
    ("indent", "given"), [("2", 2), ("indent=0", 0), ("indent='\t'", "\t"), ("none", None)]
)
def test_json_is_indented_as_python_does_it(indent: str, given: int | str | None) -> None:
    values = {"a": [1, {"b": None, "c": []}, {}], "d": "x"}

    text = ask(line(o=values), prompt_jinja=f"{{{{ o | tojson({indent}) }}}}", raw=True).text
    assert text == json.dumps(values, indent=given)


def test_minus_zero_keeps_its_sign() -> None:
    row = b'{"z": -0, "l": [-0, {"k": -0, "s": "-0"}, 1.50, -0.50]}'
    template = "{{ z }} {{ z ~ '' }} {{ l }} {{ '%s %d' % (z, z) }} {{ z == 0 }} {{ z + 1 }}"

    assert (
        ask(row, prompt_jinja=template, raw=True).text
        == '-0 -0 [-0, {"k": -0, "s": "-0"}, 1.50, -0.50] -0 0 true 1'
    )


DEEP = (
    f'{{"a": [1], "o": {"[" * 600}{"]" * 600}}}'.encode(),
    f'{{"a": [1], "o": {{"a":{"[" * 599}{"]" * 599}}}}}'.encode(),
)


@pytest.mark.parametrize("row", DEEP)
def test_a_value_is_printed_however_deep_it_is_nested(row: bytes) -> None:
    text = ask(row, prompt_jinja="{{ o }}{{ o | tojson }}", raw=True).text

    assert text is not None
    assert text.count("]") in (1200, 1198)


@pytest.mark.parametrize("row", DEEP)
@pytest.mark.parametrize(
    "template",
    [
        "{{ '%s' % [o] }}",
        "{{ '{}'.format(o) }}",
        "{% macro m(x) %}{% for y in x %}{{ m(x[y] if x is mapping else y) }}{% endfor %}{% endmacro %}{{ m(o) }}",
    ],
)
def test_a_value_nested_too_deeply_is_named(row: bytes, template: str) -> None:
    sentence = (
        "`o` is nested too deeply for what `prompt_jinja` does with it (600 levels); flatten it"
    )

    assert sentence in refusal(row, prompt_jinja=template + "{{ a }}")


def test_macros_without_an_end_are_told_so() -> None:
    template = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"

    assert "goes too deep: its macros call each other" in refusal(ROW, prompt_jinja=template)


@pytest.mark.parametrize(
    "odd",
    [
        '"x\ufdd2"',
        '{"k": 1, "k": 2}',
        '"\\ud800"',
        "-1e999",
    ],
)
def test_a_column_that_the_template_does_not_read_does_no_harm(odd: str) -> None:
    raw = f'{{"a": "x", "odd": {odd}, "range": "r"}}'.encode()

    assert ask(raw, prompt_jinja="{{ a }}{{ range }}", raw=True).text == "xr"


@pytest.mark.parametrize(
    "template",
    [
        "{% if a %}{% set b = a %}{% endif %}{{ b }}",
        "{% for c in c if c %}{{ c }}{{ d }}{% endfor %}",
        "{% macro m(x, y=d) %}{{ x }}{{ y }}{{ b }}{% endmacro %}{{ m(a) }}",
        "{% set x %}{{ a }}{% endset %}{% macro m2() %}{{ caller(1) }}{{ x }}{% endmacro %}"
        "{% call(z) m2() %}{{ d }}{% endcall %}",
        "{% block q %}{{ b }}{% endblock %}{{ self.q() }}",
        "{% with a = b %}{{ a }}{% endwith %}{{ dict }}{{ d }}",
    ],
)
def test_every_column_that_a_template_reads_is_read(template: str) -> None:
    row = {"a": "", "b": "B", "c": ["x", "y"], "d": "D", "dict": "E"}
    over_all = Environment().from_string(template + ".").render(row)

    assert ask(line(**row), prompt_jinja=template + ".", raw=True).text == over_all
