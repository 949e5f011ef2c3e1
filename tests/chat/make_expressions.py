"""make_expressions.py: writes expressions.json, small templates and what Jinja2 prints for them.

Run by hand when cases are added: python3 make_expressions.py > expressions.json (needs jinja2 3.1).
"""

import json
import sys

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jinja2_render import Generation, raise_exception, tojson

ENV = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
ENV.filters["tojson"] = tojson
ENV.globals["raise_exception"] = raise_exception

CONTEXT = {
    "s": "Hello, World",
    "u": "naïve ßtraße 日本 😀",
    "e": "",
    "n": None,
    "t": True,
    "i": 7,
    "f": 2.5,
    "big": 18446744073709551615,
    "l": [3, 1, 2],
    "w": ["pear", "Apple", "fig", "apple"],
    "d": {"b": 1, "A": [1, "x"], "c": None},
    "p": [{"name": "x", "v": 2, "tag": {"k": "q"}}, {"name": "y", "v": 1}, {"name": "X", "v": 3, "tag": {"k": "r"}}],
    "nested": {"a": {"b": [{"c": "deep"}]}},
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2
7 // 2, 7 % 3, -7 // 2, -7 % 3, 2 ** 10, 2 ** -1, 7.5 // 2, -7.5 % 2
-2 ** 2
1 ~ 2 ~ 'x' ~ none ~ true
'a' + 'b' ~ 1 + 2
'a' * 3, [1] * 2, 3 * 'b'
not true or true and false
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, true == 1, 'a' < 'b', [1, 2] < [1, 3]
1 in [1, 2], 'ell' in s, 'b' in d, 'z' not in d, none in [none]
'yes' if t else 'no'
'yes' if e
('yes' if e else 'no') ~ '!'
1 if false else 2 if false else 3
s[0], s[-1], s[1:4], s[:-3], s[::2], s[::-1], s[50:], s[-3:], s[4:1:-1]
u[0:3], u[-1], u[2], u | length, u[::-1]
l[0], l[-1], l[1:], l[::-1], l[5] is defined
d.b, d['A'][1], d.missing is defined, d['missing'] is undefined, d.A.1
nested.a.b[0].c, nested['a']['b'][0]['c']
missing, missing | default('x'), e | default('x'), e | default('x', true), n | d('y', boolean=true), n | default('z')
missing is defined, missing is iterable, missing is string, missing is none, missing | length
[1, 'a', none, true, 2.5, [1], {'k': 'v'}, (1,), ()]
{'a': 1, "b's": 'x"y', 1: none}
'quote\'s', "it's", 'both \' and "', ['both \' and "', 'a\nb\t\\', 'é', '\x07', '\u200b']
1.0, 2.5e10, 1e16, 1e-5, 0.0001, 123456789.123, 1e100, -0.0, 1/3, 100.0, 12345678901234567.0
1_000, 1e3, 0.5
big, big + 0.0, big == big, i == 7
s | upper, s | lower, 'hELLO wORLD' | title, 'hELLO wORLD' | capitalize, "they're bill's (friends) a-b" | title
u | upper, u | lower, u | title, u | capitalize
'  x y  ' | trim ~ '|', 'xxhixx' | trim('x'), '\n a \t' | trim ~ '|'
s | replace('l', 'L'), s | replace('l', 'L', 1), 'aaa' | replace('', '-'), 'abc' | replace('x', 'y')
l | join(', '), w | join, p | join('-', attribute='name'), [1, none, 'a'] | join('|')
l | length, d | count, s | length
l | first, l | last, s | first, e | first is defined, w | last
l | sort, l | sort(reverse=true), w | sort, w | sort(case_sensitive=true), p | sort(attribute='v') | map(attribute='name') | list
d | dictsort, d | dictsort(case_sensitive=true), {'x': 2, 'y': 1} | dictsort(by='value'), {'x': 2, 'y': 1} | dictsort(reverse=true)
d | items | list, d.items() | list, d.keys() | list, d.values() | list, missing | items | list
p | map(attribute='name') | list, w | map('upper') | join(' '), p | map(attribute='tag.k', default='none') | list
p | map(attribute='tag') | map('default', 'u') | list | length
l | select('odd') | list, l | reject('gt', 1) | list, l | select | list, [0, 1, ''] | reject | list
p | selectattr('tag') | map(attribute='name') | list, p | selectattr('v', 'gt', 1) | map(attribute='v') | list, p | rejectattr('name', 'equalto', 'x') | list | length
p | selectattr('tag.k', 'defined') | list | length
d | tojson, s | tojson, n | tojson, t | tojson, f | tojson, big | tojson, u | tojson, 'a"\\\n\t\x01/é</script>' | tojson
d | tojson(indent=2), [] | tojson(indent=2), [[], {}] | tojson(indent=1), d | tojson(separators=(',', ':')), d | tojson(sort_keys=true)
u | tojson(ensure_ascii=true), {'1': 1.0, 2: 1e20} | tojson, {true: 1, none: 2} | tojson
'42' | int, '42.9' | int, 'x' | int, 'x' | int(5), '0x1f' | int(base=16), 2.9 | int, true | int, none | int, ' 7 ' | int, '1_0' | int
'2.5' | float, 'x' | float, 'x' | float(1.5), 3 | float, '1e3' | float
-3 | abs, 2.5 | round, 3.5 | round, 2.567 | round(2), 2.1 | round(method='ceil'), 2.9 | round(0, 'floor'), 7 | round, 1250 | round(-2), 12.5 | round(-1), -2.5 | round
l | sum, p | sum(attribute='v'), l | max, l | min, w | max, [] | max is defined, p | max(attribute='v')
w | unique | list, [1, 1, 2] | unique | list, w | unique(case_sensitive=true) | list
l | reverse | list, s | reverse, l | list, s | list | length, 'ab' | list
[1, 2, 3, 4, 5] | batch(2) | list, [1, 2, 3] | batch(2, 0) | list, [1, 2, 3, 4, 5] | slice(2) | list
'<a href="x">&\'' | e
'<b>' | escape | lower
5 | string + 'x'
'a\nb\n\nc' | indent, 'a\nb' | indent(2, true), 'a\n\nb' | indent(2, blank=true), 'a\nb' | indent('> ')
'%s is %d and %.2f%%' | format('x', 3, 2.5), '%5s|%-5s|' % ('a', 'b'), '%05d' % 42, '%r' % 'a'
'foo bar baz' | truncate(9), 'foo bar baz' | truncate(9, true), 'foo bar' | wordcount, 'x' | center(5) ~ '|'
'a b/c?d=é' | urlencode
s is string, i is number, f is float, i is integer, t is boolean, t is integer, t is number, d is mapping, l is sequence, s is sequence, d is iterable, i is iterable, n is none
i is odd, i is even, i is divisibleby 7, i is divisibleby(2), t is true, t is false, i is eq 7, i is ne 7, i is lt 8, i is ge(7), 3 is in l, i is not odd, s is sameas s
'abc' is lower, 'ABC' is upper, 'Abc' is lower, 'upper' is filter, 'nope' is filter, 'odd' is test, s is callable
s.split(), s.split(', '), s.split('l', 1), 'a  b'.split(' '), ' a b '.split(), 'a,b,c'.rsplit(',', 1), 'a b c'.split(none, 1), ' a b c '.rsplit(none, 1), ' a b c '.split(none, 1)
'  x '.strip() ~ '|', 'xxaxx'.strip('x'), 'abcab'.lstrip('ba'), 'abcab'.rstrip('ab'), '\n\nx'.lstrip('\n')
s.startswith('Hell'), s.endswith('x'), s.startswith(('x', 'H')), s.find('o'), s.rfind('o'), s.find('zz'), s.count('l'), s.index('W')
s.upper(), s.lower(), "they're".title(), 'aBC'.capitalize(), 'aBc'.swapcase(), s.replace('o', '0'), s.replace('o', '0', 1)
'-'.join(w), '{} and {}'.format('a', 1), '{1}{0}'.format('a', 'b'), '{x}{{}}'.format(x=3)
'12'.isdigit(), ''.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' '.isspace(), 'AB'.isupper(), 'ab'.islower()
'a\nb\r\nc'.splitlines(), 'a\n'.splitlines(true), 'ab'.ljust(4) ~ '|', 'ab'.rjust(4), 'ab'.center(5) ~ '|', 'abc'.center(6) ~ '|', '-7'.zfill(4), '7'.zfill(3)
'abc'.removeprefix('a'), 'abc'.removesuffix('bc'), 'a=b=c'.partition('='), 'a=b=c'.rpartition('='), 'abc'.partition('x')
d.get('b'), d.get('zz'), d.get('zz', 5), d.get('c', 5), l.index(1), l.count(3), w.index('fig')
range(3) | list, range(1, 7, 2) | list, range(3, 0, -1) | list, range(0) | list
dict(a=1, b='x'), dict({'a': 1}, b=2), namespace(a=1).a
[1, 2] + [3], (1, 2) + (3,), 'x' ~ [1]
(1, 2)[0], ((1, 2), 3)[0][1], [[1, 2], [3]][1][0]
'a' 'b' "c"
not missing, missing or 'x', n and 'x', e or n or 'z', l and 'full'
1 is none or 2, s | upper | lower | length, (s | length) + 1, -i | abs, -(3) + 5, +4
'a' if 'x' in 'xyz' and not false else 'b'
'a' is in ['a', 'b'] and 'c' is not in ['a']
l is iterable and s is not mapping
{'a': {'b': 1}}.a.b, {'a': 1}['a'], {'items': 3}['items'], {'items': 3}.items is callable
p | groupby('v') | map('first') | list, p | groupby('name') | map('last') | map('length') | list
true, false, none, True, False, None
'cab' | sort | join, 'aab' | unique | list, 'ab' | max, 'abc' | select | list, missing | selectattr('x') | list, 'abc' | batch(2) | list, '12' | map('int') | sum, missing | sum, 'ab' | reverse
missing.x
n.x is defined
n.x.y
missing + 1
s + 1
1 + none
1 < 'a'
l.append(1)
s.nosuch is defined
s.nosuch()
nosuch()
s | nosuch
s is nosuch
1 // 0
1 / 0
d[0] is defined
range(200000)
raise_exception('Sorry: ' ~ s)
missing | tojson
[1, 2][none] is defined
s[1.5] is defined
none | length
5 | list
'{' | trim ~ '}' , {'a': '}}'}['a'], "{{ '%}' }}"
""".strip().split("\n")

TEMPLATES = [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "a {%- if true -%} b {%- endif -%} c",
    "{% for x in l %}\n{{ x }}\n{% endfor %}\nend",
    "  {{ s }}  \n  {% set x = 1 %}  \n{{ x }}",
    "a\n  {%+ if true %}b{% endif +%}\nc",
    "a\r\nb\rc\n\n",
    "{# c #}\nx{#- d -#}  \n y {# multi\nline #}z",
    "\t{# c #}  x\n \t{% set a = 1 %}\n{{ a }}",
    "{% raw %}{{ x }}{% if %}{% endraw %}!{%- raw -%}  a  {%- endraw -%} b",
    "x{{ 1 -}}   y   {{- 2 }}\n{{- 3 -}}\n\nz",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}",
    "{% for x in [] %}a{% else %}empty{% endfor %}{% for x in missing %}a{% else %}undefined{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for c in 'añ😀' %}[{{ c }}]{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }} {% endfor %}",
    "{% for x in [{'n': 1, 'c': [{'n': 2, 'c': []}, {'n': 3}]}] recursive %}{{ x.n }}{{ loop.depth }}{% if x.c %}({{ loop(x.c) }}){% endif %}{% endfor %}",
    "{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% set x = 1 %}{% for y in l %}{% set x = y %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for y in l %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}{{ ns.y is defined }}",
    "{% if true %}{% set x = 5 %}{% endif %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, %}{{ c }}",
    "{% set x %}  block {{ s }}{% endset %}[{{ x }}]{% set y | upper | trim %} abc {% endset %}[{{ y }}]",
    "{% set x = 1 %}{% set x %}{% set x = 2 %}{{ x }}{% endset %}{{ x }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='z') }}{{ m(b=1, a=0) }}{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(4) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(x=2) }}",
    "{% macro outer() %}<{{ caller('v') }}>{% endmacro %}{% call(x) outer() %}[{{ x }}{{ s }}]{% endcall %}",
    "{% macro outer() %}{{ caller() if caller else 'no caller' }}{% endmacro %}{{ outer() }}{% call outer() %}yes{% endcall %}",
    "{% macro fact(n) %}{{ 1 if n <= 1 else n * (fact(n - 1) | int) }}{% endmacro %}{{ fact(6) }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
    "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ m() }}{{ q is defined }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b') | trim %} aa {% endfilter %}|",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}",
    "{% generation %}g{{ s }}{% endgeneration %}",
    "{% for x in l %}{% generation %}{{ x }}{% endgeneration %}{% endfor %}",
    "{% if n is none %}a{% elif t %}b{% else %}c{% endif %}{% if e %}a{% elif t %}b{% else %}c{% endif %}{% if e %}a{% elif n %}b{% else %}c{% endif %}",
    "{{ '\\n' }}{{ \"\\t\\\\ \\x41 \\u00e9 \\' \\\" \\q\" }}",
    "{{ {'a': {'b': '}}'}} }}{{ [[1]] }}",
    "{%- if t -%}\n  x\n{%- endif -%}\n\n\n",
    "{% set x = {'a': 1} %}{% set x.a = 2 %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{{ m(**{'a': 1}) }}{{ m(*[1, 2]) }}".replace("{{", "{% macro m(a, b=0) %}{{ a }}{{ b }}{% endmacro %}{{", 1),
    "{{ a",
    "{% if %}x{% endif %}",
    "{% if t %}x",
    "{% endif %}",
    "{% nosuch %}",
    "{{ 1 + }}",
    "{{ 'a }}",
    "{{ (1 }}",
    "{{ [1) }}",
    "{% for x l %}{% endfor %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{# open",
    "{{ f(a=1, 2) }}",
    "{% set true = 1 %}",
    "{% break %}",
    "",
    "\n",
    "plain text only } } % { #",
]


def run(source):
    try:
        return {"template": source, "output": ENV.from_string(source).render(**CONTEXT)}
    except Exception as error:  # any failure
        return {"template": source, "fails": True, "jinja": str(error)[:80]}


cases = [run("{{ " + e + " }}") for e in EXPRESSIONS]
cases += [run(t) for t in TEMPLATES]
json.dump({"made_by": "Jinja2 " + jinja2.__version__, "context": CONTEXT, "cases": cases}, sys.stdout, ensure_ascii=False, indent=1)
print()
