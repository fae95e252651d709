"""Content filters from text to conditions, by recursive descent.

The grammar is that of SQL-92 selectors as JMS has them, with sets, prefixes and suffixes:

    disjunction = conjunction {OR conjunction}
    conjunction = negation {AND negation}
    negation    = {NOT} test
    test        = sum [comparison | [NOT] BETWEEN | [NOT] IN | [NOT] LIKE | IS [NOT] NULL | ...]
    sum         = product {(+|-) product}
    product     = sign {(*|/) sign}
    primary     = literal | name | set | '(' disjunction ')'

Parentheses may hold a condition or a value, so one grammar reads both, and what was read is
checked where it is used.
"""

from __future__ import annotations

from typing import Final

from timebound.core.predicate.attributes import BARE, PAYLOAD, TOPIC, Name
from timebound.core.predicate.lexer import (
    END,
    NAME,
    NUMBER,
    RESERVED,
    STRING,
    SYMBOL,
    Token,
    failure,
    tokens_of,
)
from timebound.core.predicate.like import Like, read_pattern
from timebound.core.predicate.terms import (
    Affix,
    And,
    Arithmetic,
    Attribute,
    Comparison,
    Condition,
    Constant,
    Contains,
    FilterNode,
    InList,
    IsNull,
    Literal,
    Operand,
    Or,
    Subset,
    Truth,
)
from timebound.core.predicate.values import FALSE, TRUE, Moment, calculate, read_moment, read_set
from timebound.errors import FilterError

# A filter is stored with its session and checked against messages: this is ample for hand and
# machine written filters, and bounds the work one subscription can ask for per message.
LENGTH_MAX: Final = 4096
# Parentheses, NOT and signs inside each other: the evaluator recurses as deep.
DEPTH_MAX: Final = 32
# Arithmetic operators in one filter: a chain of them is a tree as deep as it is long.
OPERATORS_MAX: Final = 64

_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")


class Parser:
    """Reads one filter; `parse_condition` is the only way in."""

    __slots__ = ("_depth", "_index", "_operators", "_text", "_tokens")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._index = 0
        self._depth = 0
        self._operators = 0

    def parse_condition(self) -> Condition:
        condition = self._required_condition(self._disjunction(), 0)
        if self._token().kind != END:
            raise self._error("expected AND, OR or the end of the filter")
        return condition

    # The token at hand.

    def _token(self) -> Token:
        return self._tokens[self._index]

    def _error(self, fact: str) -> FilterError:
        return failure(fact, self._text, self._token().position)

    def _next_is_symbol(self, symbol: str) -> bool:
        token = self._token()
        return token.kind == SYMBOL and token.text == symbol

    def _accept_symbol(self, symbol: str) -> bool:
        if self._next_is_symbol(symbol):
            self._index += 1
            return True
        return False

    def _accept_word(self, word: str) -> bool:
        if self._token().word == word:
            self._index += 1
            return True
        return False

    def _expect_symbol(self, symbol: str) -> None:
        if not self._accept_symbol(symbol):
            raise self._error(f"expected {symbol}")

    def _expect_word(self, word: str) -> None:
        if not self._accept_word(word):
            raise self._error(f"expected {word}")

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._error(f"filter is nested too deeply (depth_max={DEPTH_MAX})")

    # What was read, as what is needed.

    def _required_condition(self, node: FilterNode, index: int) -> Condition:
        """Return the node as a condition; `index` is the token it began with."""
        if isinstance(node, Condition):
            return node
        if isinstance(node, Attribute):
            return Truth(node)
        if isinstance(node, Literal) and isinstance(node.constant, bool):
            return Constant(TRUE if node.constant else FALSE)
        raise failure("expected a condition, found only a value", self._text, self._tokens[index].position)

    def _required_operand(self, node: FilterNode, index: int) -> Operand:
        if isinstance(node, Operand):
            return node
        raise failure("expected a value, found a condition", self._text, self._tokens[index].position)

    # Conditions.

    def _disjunction(self) -> FilterNode:
        start = self._index
        first = self._conjunction()
        if self._token().word != "OR":
            return first
        parts = [self._required_condition(first, start)]
        while self._accept_word("OR"):
            start = self._index
            parts.append(self._required_condition(self._conjunction(), start))
        return Or(tuple(parts))

    def _conjunction(self) -> FilterNode:
        start = self._index
        first = self._negation()
        if self._token().word != "AND":
            return first
        parts = [self._required_condition(first, start)]
        while self._accept_word("AND"):
            start = self._index
            parts.append(self._required_condition(self._negation(), start))
        return And(tuple(parts))

    def _negation(self) -> FilterNode:
        if not self._accept_word("NOT"):
            return self._test()
        self._descend()
        start = self._index
        condition = self._required_condition(self._negation(), start)
        self._depth -= 1
        return condition.opposite()

    def _test(self) -> FilterNode:
        start = self._index
        node = self._sum()
        token = self._token()
        if token.kind == SYMBOL and token.text in _COMPARISONS:
            self._index += 1
            return self._comparison(token, self._required_operand(node, start))
        if token.kind != NAME or token.word == "AND" or token.word == "OR":
            return node
        return self._word_test(self._required_operand(node, start))

    def _comparison(self, operator: Token, left: Operand) -> Condition:
        start = self._index
        right = self._required_operand(self._sum(), start)
        if operator.text != "=" and operator.text != "<>":
            for side in (left, right):
                if isinstance(side, Literal) and isinstance(side.constant, (bool, frozenset)):
                    fact = "booleans and sets have no order, only = and <>; found " + operator.text
                    raise failure(fact, self._text, operator.position)
        return Comparison(operator.text, left, right)

    def _word_test(self, operand: Operand) -> Condition:
        """Parse a test that begins with a word, after its operand."""
        if self._accept_word("IS"):
            is_negated = self._accept_word("NOT")
            self._expect_word("NULL")
            return IsNull(operand, is_negated)
        is_negated = self._accept_word("NOT")
        if self._accept_word("BETWEEN"):
            between = self._between(operand)
            return between.opposite() if is_negated else between
        if self._accept_word("IN"):
            return InList(operand, self._listed_values(), is_negated)
        if self._accept_word("LIKE"):
            return self._like(operand, is_negated)
        if self._accept_word("STARTS"):
            self._expect_word("WITH")
            return Affix(operand, self._string(), at_end=False, is_negated=is_negated)
        if self._accept_word("ENDS"):
            self._expect_word("WITH")
            return Affix(operand, self._string(), at_end=True, is_negated=is_negated)
        if self._accept_word("CONTAINS"):
            return Contains(operand, self._member(), is_negated)
        is_proper = self._accept_word("PROPER")
        if is_proper or self._token().word == "SUBSET":
            return self._subset(operand, is_proper, is_negated)
        if is_negated:
            raise self._error("expected BETWEEN, IN, LIKE, STARTS, ENDS, CONTAINS or SUBSET after NOT")
        raise self._error("expected a comparison, AND, OR or the end of the filter")

    def _between(self, operand: Operand) -> Condition:
        start = self._index
        low = self._required_operand(self._sum(), start)
        self._expect_word("AND")
        start = self._index
        high = self._required_operand(self._sum(), start)
        return And((Comparison(">=", operand, low), Comparison("<=", operand, high)))

    def _like(self, operand: Operand, is_negated: bool) -> Condition:
        position = self._token().position
        text = self._string()
        escape = ""
        if self._accept_word("ESCAPE"):
            escape_position = self._token().position
            escape = self._string()
            if len(escape) != 1:
                raise failure("expected one character to escape with", self._text, escape_position)
        pattern = read_pattern(text, escape)
        if pattern is None:
            fact = f"pattern has {escape!r} before something else than %, _ or {escape!r}"
            raise failure(fact, self._text, position)
        return Like(operand, pattern, is_negated)

    def _subset(self, left: Operand, is_proper: bool, is_negated: bool) -> Condition:
        self._expect_word("SUBSET")
        self._expect_word("OF")
        start = self._index
        right = self._required_operand(self._sum(), start)
        return Subset(left, right, is_proper=is_proper, is_negated=is_negated)

    # Literals where only literals make sense.

    def _string(self) -> str:
        token = self._token()
        if token.kind != STRING:
            raise self._error("expected a string in single quotes")
        self._index += 1
        return token.text

    def _constant(self) -> object:
        start = self._index
        operand = self._sign()
        if isinstance(operand, Literal) and not isinstance(operand.constant, frozenset):
            return operand.constant
        raise failure(
            "expected a string, number, boolean or date-time", self._text, self._tokens[start].position
        )

    def _member(self) -> object:
        position = self._token().position
        constant = self._constant()
        if isinstance(constant, Moment):
            raise failure("a set holds strings, numbers or booleans", self._text, position)
        return constant

    def _listed_values(self) -> tuple[object, ...]:
        """Parse the values after IN, in parentheses or written as a set."""
        closing = "}" if self._next_is_symbol("{") else ")"
        if not self._accept_symbol("{"):
            self._expect_symbol("(")
        values = [self._constant()]
        while self._accept_symbol(","):
            values.append(self._constant())
        self._expect_symbol(closing)
        return tuple(values)

    # Values.

    def _sum(self) -> FilterNode:
        start = self._index
        node = self._product()
        while self._next_is_symbol("+") or self._next_is_symbol("-"):
            operator = self._token()
            self._index += 1
            left = self._required_operand(node, start)
            right_start = self._index
            right = self._required_operand(self._product(), right_start)
            node = self._arithmetic(operator, left, right)
        return node

    def _product(self) -> FilterNode:
        start = self._index
        node = self._sign()
        while self._next_is_symbol("*") or self._next_is_symbol("/"):
            operator = self._token()
            self._index += 1
            left = self._required_operand(node, start)
            right_start = self._index
            right = self._required_operand(self._sign(), right_start)
            node = self._arithmetic(operator, left, right)
        return node

    def _sign(self) -> FilterNode:
        operator = self._token()
        if not (self._accept_symbol("-") or self._accept_symbol("+")):
            return self._primary()
        self._descend()
        start = self._index
        operand = self._required_operand(self._sign(), start)
        self._depth -= 1
        if isinstance(operand, Literal):
            constant = operand.constant
            # A written number keeps all its digits; arithmetic may round a very long one.
            if isinstance(constant, (int, float)) and not isinstance(constant, bool):
                return Literal(-constant if operator.text == "-" else constant)
        return self._arithmetic(operator, Literal(0), operand)

    def _arithmetic(self, operator: Token, left: Operand, right: Operand) -> Operand:
        """Join two operands; two numbers are calculated at once, so the index sees the result."""
        for side in (left, right):
            if isinstance(side, Literal):
                constant = side.constant
                if isinstance(constant, bool) or not isinstance(constant, (int, float)):
                    fact = f"expected numbers on both sides of {operator.text}"
                    raise failure(fact, self._text, operator.position)
        if isinstance(left, Literal) and isinstance(right, Literal):
            first, second = left.constant, right.constant
            assert isinstance(first, (int, float))
            assert isinstance(second, (int, float))
            result = calculate(operator.text, first, second)
            if result is None:
                raise failure("calculation has no result", self._text, operator.position)
            return Literal(result)
        self._operators += 1
        if self._operators > OPERATORS_MAX:
            fact = f"filter has too many arithmetic operators (operators_max={OPERATORS_MAX})"
            raise failure(fact, self._text, operator.position)
        return Arithmetic(operator.text, left, right)

    def _primary(self) -> FilterNode:
        token = self._token()
        if self._accept_symbol("("):
            self._descend()
            node = self._disjunction()
            self._expect_symbol(")")
            self._depth -= 1
            return node
        if self._next_is_symbol("{"):
            return self._set()
        if token.kind == STRING:
            self._index += 1
            return Literal(token.text)
        if token.kind == NUMBER:
            self._index += 1
            return Literal(token.number)
        if token.kind != NAME:
            raise self._error("expected a value")
        return self._named(token)

    def _named(self, token: Token) -> Operand:
        word = token.word
        if word == "TRUE" or word == "FALSE":
            self._index += 1
            return Literal(word == "TRUE")
        if word == "NULL":
            raise self._error("expected a value; write IS NULL to test for NULL")
        if word in RESERVED:
            raise self._error("expected a value")
        self._index += 1
        if (word == "TIMESTAMP" or word == "DATE") and self._token().kind == STRING:
            return self._moment(word)
        return Attribute(self._attribute_name(token))

    def _moment(self, word: str) -> Operand:
        moment = read_moment(self._token().text)
        is_date = len(self._token().text) == len("2026-01-31")
        if moment is None or is_date != (word == "DATE"):
            example = "2026-01-31" if word == "DATE" else "2026-01-31T12:00:00Z"
            raise self._error(f"expected a {word.lower()} like '{example}'")
        self._index += 1
        return Literal(moment)

    def _attribute_name(self, token: Token) -> Name:
        segments = token.segments
        if not token.is_quoted:
            if segments[0] == "payload":
                return Name(PAYLOAD, segments[1:])
            if token.text == "$topic":
                return Name(TOPIC, ())
            if segments[0].startswith("$"):
                fact = f"unknown name {token.text}; only $topic begins with $, unless in double quotes"
                raise failure(fact, self._text, token.position)
        return Name(BARE, segments, ".".join(segments))

    def _set(self) -> Operand:
        self._expect_symbol("{")
        members: list[object] = []
        if not self._accept_symbol("}"):
            members.append(self._member())
            while self._accept_symbol(","):
                members.append(self._member())
            self._expect_symbol("}")
        return Literal(read_set(members))
