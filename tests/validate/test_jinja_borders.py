"""A template's own words and a row's data are told apart, and no template sees how."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowmill.errors import ConfigError
from rowmill.validate.jinja_borders import PRINTED, WRITTEN, printed, split, within, written
from tests.validate.rows_of import ask, line, recipe, refusal

ROW = line(a="DATA", b="xyz")


def spans_of(template: str) -> list[str]:
    return list(ask(ROW, prompt_jinja=template, raw=True).data_spans)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% set x %}{{ a }}{% endset %}{{ x | length }} {{ x == a }} {{ x[:2] }}", "4 true DA"),
        ("{% set x | center(6) %}{{ a }}{% endset %}[{{ x }}]", "[ DATA ]"),
        ("{% set x | upper | reverse %}{{ b }}!{% endset %}{{ x }}", "!ZYX"),
        ("{% macro m(x) %}({{ x }}){% endmacro %}{{ m(a) | length }} {{ m(a) == '(DATA)' }}", "6 true"),
        ("{% block q %}{{ b }}{% endblock %}{{ self.q() | length }}", "xyz3"),
    ],
)  # fmt: skip
def test_what_a_template_makes_of_its_own_is_text_alone(template: str, text: str) -> None:
    assert "".join(spans_of(template)) == text


@pytest.mark.parametrize(
    ("template", "spans"),
    [
        ("{% set x %}<{{ b }}>{% endset %}{{ x }}w", ["<", "xyz", ">w"]),
        ("{% macro m(r) %}<{{ r }}>{% endmacro %}{{ m(b) }}{{ m('u') }}", ["<", "xyz", "><u>"]),
        (
            "{% macro turn(r) %}<{{ r }}>{{ caller() }}</>{% endmacro %}"
            "{% call turn('u') %}hi {{ a }}{% endcall %}w",
            ["<u>hi ", "DATA", "</>w"],
        ),
        ("{% block q %}<{{ b }}{% endblock %}{{ self.q() }}", ["<", "xyz", "<", "xyz", ""]),
        (
            "{% for x in [a, [b]] recursive %}"
            "{% if x is string %}<{{ x }}{% else %}{{ loop(x) }}{% endif %}{% endfor %}",
            ["<", "DATA", "<", "xyz", ""],
        ),
        ("{{ '<' ~ b + '>' }}w", ["<", "xyz", ">w"]),
        ("{% set role = {'u': '<u>'} %}{{ role['u'] }}{{ b }}", ["<u>", "xyz", ""]),
        ("{% set x %} <{{ b }} {% endset %}{{ x | trim ~ '>' }}", ["<", "xyz", ">"]),
        ("{% set x | trim %} {{ b }}> {% endset %}{{ x | string }}", ["", "xyz", ">"]),
        ("{% filter trim %} <{{ b }}>{{ ' ' }}{% endfilter %}", ["<", "xyz", ">"]),
        (
            "{% set ns = namespace(t='') %}{% for x in (a, b) %}{% set ns.t = ns.t ~ '<' ~ x %}{% endfor %}"
            "{{ ns.t }}",
            ["<", "DATA", "<", "xyz", ""],
        ),
    ],
)  # fmt: skip
def test_words_are_words_wherever_they_are_printed_as_they_stand(
    template: str, spans: list[str]
) -> None:
    assert spans_of(template) == spans


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% filter upper %}<{{ b }}>{% endfilter %}", "<XYZ>"),
        ("{% filter reverse %}<{{ a }}>{% endfilter %}", ">ATAD<"),
        ("{% filter urlencode %}q={{ b }}{% endfilter %}", "q%3Dxyz"),
        ("{% filter title %}{{ b }} w{% endfilter %}", "Xyz W"),
        ("{% filter capitalize %}{{ b }} w{% endfilter %}", "Xyz w"),
        ("{% filter replace('<x', '>') %}<{{ b }}{% endfilter %}", ">yz"),
        ("{% filter indent | reverse %}w\n{{ a }}{% endfilter %}", "ATAD    \nw"),
        ("{% filter wordcount %}{{ a }} w{% endfilter %}", "2"),
        ("{% filter truncate(7, true, '', 0) %}<{{ a ~ b }}>{% endfilter %}", "<DATAxy"),
        ("{% set x %}<{{ b }}{% endset %}{{ x | upper }}", "<XYZ"),
        ("{% set x %}<{{ b }}{% endset %}{{ x[:3] }}", "<xy"),
        ("{{ '<%s>' % b }}", "<xyz>"),
        ("{{ '<{}>'.format(b) }}", "<xyz>"),
        ("{% set x %}<{{ '{}' }}{% endset %}{{ x.format(b) }}", "<xyz"),
        ("{{ ['<', b] | join }}", "<xyz"),
        ("{{ '<'.join([a, b]) }}", "DATA<xyz"),
        ("{{ '<%s' | safe | format(b) }}", "<xyz"),
    ],
)
def test_all_else_that_is_made_of_words_and_data_is_data(template: str, text: str) -> None:
    assert spans_of(template + "w") == ["", text, "w"]


@given(st.lists(st.text("ab <>", max_size=3), max_size=5), st.sampled_from([None, " ", "<a"]))
def test_a_text_cut_at_its_ends_knows_its_words(parts: list[str], chars: str | None) -> None:
    made = written("".join(within(part) if i % 2 else part for i, part in enumerate(parts)))

    for cut in ("strip", "lstrip", "rstrip"):
        kept = getattr(made, cut)(chars)
        spans = split(printed(kept))

        assert "".join(spans) == kept == getattr("".join(parts), cut)(chars)
        assert "".join(spans[1::2]) in "".join(parts[1::2])


@pytest.mark.parametrize(
    "template",
    ["{{ [b] | map(filter) | join }}", "{{ [b] | map('written aside') | first }}"],
)
def test_a_row_names_no_filter_that_makes_words_of_it(template: str) -> None:
    for name in (WRITTEN, PRINTED):
        assert "`map` names a filter that is none" in refusal(
            line(b="<s>", filter=name), prompt_jinja=template
        )


@pytest.mark.parametrize("template", ["{{ '%c' % n }}", "{{ '{:c}'.format(n) }}"])
@pytest.mark.parametrize("border", [0xFDD2, 0xFDD3])
def test_a_border_made_of_a_number_is_refused(template: str, border: int) -> None:
    sentence = refusal(line(n=border), prompt_jinja=template)

    assert "makes the noncharacter U+FDD2 or U+FDD3 of this row" in sentence


@pytest.mark.parametrize("template", ["\ufdd3{{ a }}", "{{ '\\ufdd2' ~ a }}"])
def test_a_border_in_a_template_is_refused(template: str) -> None:
    with pytest.raises(ConfigError, match="line 1: the noncharacter"):
        recipe(prompt_jinja=template)
