"""Templates get what they expect, and cannot take what they like."""

from __future__ import annotations

import time

import pytest

from superfluid.model.template import ChatTemplate, TemplateError
from tests.model import templates

HELLO = [{"role": "user", "content": "hello"}]


def _render(source, messages=HELLO, **options):
    options.setdefault("now_ms", 0)
    return ChatTemplate(source, bos="<s>", eos="</s>").render(messages, **options)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>hello</s>"),
        ("{% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }}", "2"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "hello!"),
        ("{{ {'b': '<é>&', 'a': 1} | tojson }}", '{"b": "<é>&", "a": 1}'),
        ("{{ {'b': 'é', 'a': 1} | tojson(ensure_ascii=True, sort_keys=True) }}", '{"a": 1, "b": "\\u00e9"}'),
        ("{{ {'b': 1} | tojson(indent=2) }}", '{\n  "b": 1\n}'),
        ("{{ {'b': [1, 2]} | tojson(separators=(',', ':')) }}", '{"b":[1,2]}'),
        ("{{ strftime_now('%Y-%m-%d') }}", "1970-01-01"),
        ("{{ tools is none }}{{ add_generation_prompt }}{{ undefined_thing }}", "TrueFalse"),
        ("{{ '<' ~ messages[0].content ~ 3 ~ '>' }}{{ 'a' + 'b' * 2 }}{{ 2 ** 3 }}", "<hello3>abb8"),
        ("{{ messages[0]['content'].split('l')[0] | trim | indent(2) | upper }}", "HE"),
    ],
)
def test_what_templates_expect_is_there(source, text):
    assert _render(source) == text


def test_tools_and_the_opener_reach_the_template():
    source = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    assert _render(source, tools=[{"name": "a"}], opener=True) == '{"name": "a"}>'


def test_a_raise_carries_its_text():
    with pytest.raises(TemplateError, match=r"^not today$"):
        _render(templates.ALWAYS_RAISES)


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content.no.such }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}x{{ ''.__class__.__mro__[0] }}",
        "{% include 'x' %}",
    ],
)
def test_what_fails_is_a_template_error(source):
    with pytest.raises(TemplateError) as error:
        _render(source)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(999999999) %}x{% endfor %}",
        "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
        "{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
        "{{ 'x' * 9999999999 }}",
        "{{ 9 ** 999999999 }}",
        "{% set ns = namespace(a='x') %}{% for i in range(99) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
        "{% set ns = namespace(a='x') %}{% for i in range(99) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
        "{% set ns = namespace(a=9) %}{% for i in range(99) %}{% set ns.a = ns.a * ns.a %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'x'.center(9999999999) }}",
        "{{ 'x' | center(9999999999) }}",
        "{{ 'x' | indent(9999999999, true) }}",
        "{{ [1] | tojson(indent=9999999999) }}",
        "{{ strftime_now('%9999999999d') }}",
    ],
)
def test_bombs_end_soon(source):
    started = time.monotonic()
    with pytest.raises(TemplateError):
        _render(source)
    assert time.monotonic() - started < 5


def test_an_absurd_clock_or_source_is_a_template_error():
    with pytest.raises(TemplateError):
        _render("{{ strftime_now('%Y') }}", now_ms=1 << 63)
    with pytest.raises(TemplateError, match="characters"):
        ChatTemplate("x" * (1 << 21))


def test_large_contents_render():
    assert len(_render(templates.CHATML, [{"role": "user", "content": "x" * 3_000_000}])) > 3_000_000
