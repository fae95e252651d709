"""How keys are written, and which key was probably meant."""

from __future__ import annotations

from timebound.config.names import ARRAYS, key_text, suggestion, tables_under
from timebound.config.values import Config


def test_key_text_is_how_people_write_it() -> None:
    assert key_text(("listeners", 0, "tls", "key")) == "listeners[0].tls.key"
    assert key_text(()) == ""


def test_tables_are_those_directly_inside() -> None:
    assert tables_under("listeners") == ["tls"]
    assert "listeners" in tables_under("")
    assert "listeners.tls" not in tables_under("")


def test_tables_of_which_a_file_may_have_several_are_tuples_of_the_configuration() -> None:
    several = {name for name in tables_under("") if isinstance(getattr(Config(), name, None), tuple)}

    # Rules and weights are kept with what they belong to.
    assert several | {"acl", "weights"} == ARRAYS


def test_a_suggestion_is_a_close_key_or_the_table_of_the_key_or_what_there_is() -> None:
    assert suggestion("prot", ["port", "host"], "listeners") == "; did you mean 'port'?"
    assert suggestion("fsync", ["level"], "log") == "; it belongs to [data]"
    assert suggestion("filter", ["level"], "log") == "; it belongs to [[acl]]"
    assert suggestion("zzz", ["level"], "log") == "; [log] has level"
