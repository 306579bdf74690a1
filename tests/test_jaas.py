"""`sasl.jaas.config`, read as Kafka's JaasConfig reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.jaas import JaasError, LoginModule, parse_login_module
from tests.cases import for_each


@for_each(
    ("text", "options"),
    [
        ("Module required;", {}),
        ("Module REQUIRED ;", {}),
        ('Module required user_alice="secret";', {"user_alice": "secret"}),
        ("Module required user_alice='se\"cret' user_bob=plain;", {"user_alice": 'se"cret', "user_bob": "plain"}),
        ('Module required\n  user_alice = "a"\n  user_bob="b";\n', {"user_alice": "a", "user_bob": "b"}),
        ('Module optional // of no use\n a="//" /* b="c" */ ;', {"a": "//"}),
        (r'Module required a="\"\\\t\101\60" ;', {"a": '"\\\tA0'}),
        (r'Module required a="\477" ;', {"a": "'7"}),
        ('Module required a="";', {"a": ""}),
        ('Module required a="1" a="2";', {"a": "2"}),
        ("Module required a=ümlaut€;", {"a": "ümlaut€"}),
        ('Module required "a b"="c=d;";', {"a b": "c=d;"}),
        ("Module required a=x-1.5;", {"a": "x-1.5"}),
        ("Module required / a comment\na=b;", {"a": "b"}),
        ("Module required a=_$.9;", {"a": "_$.9"}),
    ],
)
def test_a_login_module_has_options(text: str, options: dict[str, str]) -> None:
    module = parse_login_module(text)
    assert (module.name, module.options) == ("Module", options)


@for_each(
    ("text", "complaint"),
    [
        ("", "contains 0 login modules"),
        ("Module", "control flag not specified"),
        ("Module maybe;", "Invalid login module control flag"),
        ("; required;", "Login module not specified"),
        ("Module required", "not terminated by semi-colon"),
        ('Module required a="b"', "not terminated by semi-colon"),
        ("Module required a;", "Value not specified for a key"),
        ("Module required a=;", "Value not specified for a key"),
        ("Module required a b;", "Value not specified for a key"),
        ("Module required =b;", "Value not specified for a key"),
        ("Module required a=/b;", "Value not specified for a key"),
        ("Module required a=5;", "Value not specified for a key"),
        ("Module required a=-1.5;", "Value not specified for a key"),
        ("Module required a=.;", "Value not specified for a key"),
        ("Module required a=\\b;", "Value not specified for a key"),
        ("Module required a=b,c;", "Value not specified for a key"),
        ('Module required a="b\nc";', "Value not specified for a key"),
        ("Module required; Module required;", "contains 2 login modules"),
    ],
)
def test_syntax_that_kafka_rejects_is_rejected(text: str, complaint: str) -> None:
    with pytest.raises(JaasError, match=complaint):
        parse_login_module(text)


@given(st.text(alphabet=st.sampled_from(list("Module required=;\"'/*\\ \n07a\x85€")), max_size=60))
def test_any_text_is_a_login_module_or_rejected(text: str) -> None:
    try:
        assert isinstance(parse_login_module(text), LoginModule)
    except JaasError as error:
        assert "\n" not in str(error)


def test_the_repr_of_a_login_module_hides_its_options() -> None:
    assert "secret" not in repr(parse_login_module('Module required user_alice="secret";'))
