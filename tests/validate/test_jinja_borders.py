"""A template's own words and a row's data are told apart, and no template sees how."""

from __future__ import annotations

import pytest

from tests.validate.rows_of import ask, line

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
        ("{% filter upper %}<{{ b }}>{% endfilter %}w", ["<", "XYZ", ">w"]),
        ("{% set x %}<{{ b }}>{% endset %}{{ x }}w", ["", "<xyz>", "w"]),
        (
            "{% macro turn(r) %}<{{ r }}>{{ caller() }}</>{% endmacro %}"
            "{% call turn('u') %}hi {{ a }}{% endcall %}w",
            ["<", "u", ">", "hi DATA", "</>w"],
        ),
    ],
)
def test_words_and_data_are_told_apart(template: str, spans: list[str]) -> None:
    assert spans_of(template) == spans


def test_data_that_a_filter_turns_around_stays_data() -> None:
    assert spans_of("{% filter reverse %}<{{ a }}>{% endfilter %}w") == ["", ">ATAD<", "w"]


def test_a_text_that_a_filter_cuts_makes_no_data_of_the_words_behind_it() -> None:
    first, data, behind = spans_of(
        "{% filter truncate(9, true, '', 0) %}<{{ a ~ b }}>{% endfilter %}w"
    )

    assert (first, behind) == ("", "w")
    assert data.startswith("<DATA")
