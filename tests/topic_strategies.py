"""Topics and filters of a small alphabet, so that they meet often, and a matcher to compare with."""

from __future__ import annotations

import re

from hypothesis import strategies as st

LEVELS = st.sampled_from(["a", "b", "", "$s"])
TOPICS = (
    st.lists(LEVELS, min_size=1, max_size=4)
    .map("/".join)
    .filter(bool)  # 4.7.3: a topic has at least one character
)


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.sampled_from(["a", "b", "", "$s", "+"]), max_size=4))
    if draw(st.booleans()) or not levels:
        levels.append("#")
    return "/".join(levels) or "+"


FILTERS = topic_filters()
GROUPS = st.sampled_from(["g", "h"])
SHARED_FILTERS = st.one_of(FILTERS, st.builds(lambda group, rest: f"$share/{group}/{rest}", GROUPS, FILTERS))


def selects(topic_filter: str, topic: str) -> bool:
    """4.7 by a regular expression: slow, short, and written apart from the code under test."""
    if topic[0] == "$" and topic_filter[0] in "+#":
        return False
    pattern = re.escape(topic_filter).replace(r"\+", "[^/]*")
    if topic_filter == "#":
        pattern = ".*"
    elif pattern.endswith(r"/\#"):
        pattern = pattern.removesuffix(r"/\#") + "(/.*)?"
    return re.fullmatch(pattern, topic, re.DOTALL) is not None
