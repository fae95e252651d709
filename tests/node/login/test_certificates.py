"""Users by their certificates."""

from __future__ import annotations

from timebound.node.login.certificates import common_name


def test_the_common_name_is_the_user() -> None:
    subject = ((("organizationName", "plant"),), (("commonName", "press-7"),))

    assert common_name({"subject": subject}) == "press-7"


def test_a_certificate_without_one_names_nobody() -> None:
    assert common_name({"subject": ((("organizationName", "plant"),),)}) == ""
    assert common_name({}) == common_name(None) == ""
