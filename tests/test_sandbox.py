"""Templates of strangers: they reach nothing and they end, and what is meant well is rendered as Jinja has it."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rowmill.sandbox import Sandbox, TooMuch

VALUES: dict[str, Any] = {
    "text": "abc",
    "rows": [{"a": 1}, {"a": 2}],
    "n": 3,
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}],
}
WELL_MEANT = (
    "{{ text ~ n ~ rows[0].a }}",
    "{% for m in messages %}<{{ m.role }}>{{ m['content'] | trim }}{{ '\\n' }}{% endfor %}",
    "{% set ns = namespace(s='') %}{% for r in rows %}{% set ns.s = ns.s ~ r.a %}{% endfor %}{{ ns.s }}",
    "{% macro say(x) %}[{{ x }}]{% endmacro %}{{ say(text) }}{{ say(n) }}",
    "{{ text * n }}{{ n ** 2 }}{{ '%s-%d' % (text, n) }}{{ 7 % n }}{{ [1] + [2] }}",
    "{{ text | center(9) }}|{{ rows | map(attribute='a') | join(', ') }}|{{ 'x' | indent(2) }}",
    "{{ '{}:{:>4}'.format(text, n) }}{{ text.replace('b', 'BB') }}{{ ','.join(['a', 'b']) }}",
    "{% for i in range(3) recursive %}{{ loop.index }}{% if not loop.last %}, {% endif %}{% else %}-{% endfor %}",
    "{% filter upper %}{{ text }}{% endfilter %}{{ rows | tojson }}{{ 2.71 | round(1) }}",
)


@pytest.mark.parametrize("source", WELL_MEANT)
def test_well_meant_templates_render_as_without_a_guard(source: str) -> None:
    sandbox = Sandbox()
    ours = sandbox.text_of(sandbox.from_string(source), VALUES)

    assert ImmutableSandboxedEnvironment().from_string(source).render(VALUES) == ours


ENDLESS = {
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "a macro that calls itself": "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "a tree of calls": "{% macro m(n) %}{% if n %}{% set x = m(n-1) %}{% set y = m(n-1) %}{% endif %}"
    "{% endmacro %}{{ m(60) }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "squares": "{% set ns = namespace(n=10**9) %}{% for i in range(40) %}{% set ns.n = ns.n * ns.n %}"
    "{% endfor %}{{ ns.n }}",
    "product": "{{ 'a' * 10**10 }}",
    "list": "{{ ([1] * 10**10) | length }}",
    "doubling": "{% set ns = namespace(s='xx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
    "{% endfor %}",
    "adding": "{% set ns = namespace(s='xx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}"
    "{% endfor %}",
    "blocks": "{% set x %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endset %}"
    + "{% set x %}{{ x }}{{ x }}{{ x }}{{ x }}{% endset %}" * 30,
    "width": "{{ 'a' | center(10**10) }}",
    "indent": "{{ 'a' | indent(10**10, true) }}",
    "just": "{{ 'a'.ljust(10**10) }}",
    "zeros": "{{ '1'.zfill(10**10) }}",
    "format": "{{ '%9999999999d' % 1 }}",
    "format filter": "{{ '%9999999999d' | format(1) }}",
    "format method": "{{ '{:9999999999}'.format(1) }}",
    "nested format": "{{ '{:{}}'.format(1, 10**10) }}",
    "replace": "{{ ('a' * 10**6).replace('a', 'b' * 10**6) }}",
    "replace filter": "{{ ('a' * 10**6) | replace('a', 'b' * 10**3) }}",
    "join": "{{ ('a' * 10**6).join(['b'] * 10**6) }}",
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ENDLESS)
def test_template_without_an_end_is_ended(name: str) -> None:
    sandbox = Sandbox()

    with pytest.raises((TooMuch, OverflowError)):
        sandbox.text_of(sandbox.from_string(ENDLESS[name]), VALUES)


def test_next_row_has_a_budget_of_its_own() -> None:
    sandbox = Sandbox()
    template = sandbox.from_string("{% for i in range(n) %}{% endfor %}ok")
    for _ in range(15):
        assert "ok" == sandbox.text_of(template, {"n": 90_000})


@pytest.mark.parametrize(
    "source",
    [
        "{{ text.__class__.__mro__ }}",
        "{{ text['__class__'] }}",
        "{{ text | attr('__class__') }}",
        "{{ rows | map(attribute='__class__') | list }}",
        "{% set f = text.__init__ %}{{ f.__globals__ }}",
    ],
)
def test_reaching_for_attributes_is_refused_before_a_row_is_read(source: str) -> None:
    with pytest.raises(TemplateSyntaxError, match="no template may reach"):
        Sandbox().from_string(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ text | attr('_' ~ '_class__') }}",
        "{{ text['__cla' ~ 'ss__'] }}",
        "{{ '{0.__class__}'.format(text) }}",
        "{{ self._TemplateReference__context }}",
        "{{ rows.append(1) }}",
        "{{ cycler.next.__func__ }}",
    ],
)
def test_reaching_by_another_way_gets_nothing(source: str) -> None:
    sandbox = Sandbox()
    try:
        found = sandbox.text_of(sandbox.from_string(source), VALUES)
    except TemplateError:
        return

    assert "class" not in found
    assert "object at" not in found


def test_a_column_cannot_pass_itself_off_as_the_guard() -> None:
    sandbox = Sandbox()
    template = sandbox.from_string(
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
    )

    with pytest.raises(TooMuch):
        sandbox.text_of(template, {"turn": 1, "environment": None, "joined": 2})
