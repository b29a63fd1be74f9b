import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conductor_jax.workflows.yaml_nodes import (
    ListNode,
    MapNode,
    ScalarNode,
    YamlError,
    plain_value,
    read_yaml,
)

BOMB = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True))


def fault(text, **limits):
  with pytest.raises(YamlError) as caught:
    read_yaml(text, **limits)
  return caught.value


def value_of(text):
  """The node of the only key."""
  (_, node), = read_yaml(text).pairs
  return node


def body(text):
  node = value_of(text)
  return text[slice(*node.body)]


def nodes(node):
  yield node
  children = getattr(node, "items", ()) if isinstance(node, ListNode) else ()
  if isinstance(node, MapNode):
    children = [part for pair in node.pairs for part in pair]
  for child in children:
    yield from nodes(child)


def test_reads_maps_lists_and_texts():
  text = "a: b\nc:\n- d\n-   e: 'f'\n    g: [h, {i: j}, k: l]\nm: {n, o: }"
  assert plain_value(read_yaml(text)) == {
      "a": "b", "c": ["d", {"e": "f", "g": ["h", {"i": "j"}, {"k": "l"}]}],
      "m": {"n": "", "o": ""}}


@pytest.mark.parametrize("text", [
    "yes", "No", "true", "1.0", "0x1F", "1_000", "2001-12-14", ".inf", ".NaN", "<<", "=", "0o7"])
def test_scalars_stay_text(text):
  assert value_of(f"key: {text}").value == text


@pytest.mark.parametrize("text", ["", " ", "~", "null", "Null", "NULL", "# nothing", "''", '""'])
def test_no_value_is_the_empty_text(text):
  assert value_of(f"key: {text}").value == ""


def test_null_in_quotes_is_text():
  assert value_of("key: 'null'").value == "null"


class TestPlaces:

  def test_of_every_node_in_the_whole_text(self):
    text = ("🧮\r\nkey: [ab, 'c d',\r\n  {e\u0301: \"\\u00e9\"}] # end\r\n"
            "last:\r\n - x\r\n\r\n # y\r\n")
    pieces = [text[node.start:node.end] for node in nodes(read_yaml(text, 3))]
    assert pieces == [
        text[3:text.index("x") + 1], "key", text[text.index("["):text.index("]") + 1], "ab",
        "'c d'", '{e\u0301: "\\u00e9"}', "e\u0301", '"\\u00e9"', "last", "- x", "x"]

  def test_the_end_of_the_document_is_the_end_of_what_is_read(self):
    text = "a: [b]\n```\nc: ]"
    assert plain_value(read_yaml(text, 0, text.index("```"))) == {"a": ["b"]}

  def test_a_byte_order_mark_is_a_character(self):
    assert read_yaml("\ufeffab: c").pairs[0][0] == ScalarNode("ab", 1, 3, (1, 3))

  def test_an_empty_value_has_an_empty_place_after_its_colon(self):
    assert value_of("ab:  # c\n") == ScalarNode("", 3, 3, (3, 3))

  @pytest.mark.parametrize("text, shown", [
      ("key: a b  # c", "a b"),
      ("key: a\n\n  b \n", "a\n\n  b"),
      ("key: 'it''s '  # c", "it''s "),
      ('key: "a\\n\\"b"', 'a\\n\\"b'),
      ('key: "a\n  b\\\n  c"', "a\n  b\\\n  c"),
      ("key: ''", ""),
  ])
  def test_the_body_of_a_text_lies_between_its_quotes(self, text, shown):
    assert body(text) == shown

  @pytest.mark.parametrize("text, value, shown", [
      ("key: |\n  a\n  b\n", "a\nb\n", "a\n  b"),
      ("key: |-  # c\n\n    a\n     b\n\n\n", "\na\n b", "a\n     b"),
      ("key: >+\n a\n b \n \n\n# c\n", "a b \n\n\n", "a\n b "),
      ("key: |2-\n    a\n  b", "  a\nb", "a\n  b"),
      ("key: |-\r\n  a\r\n\r\n  b\r\n", "a\n\nb", "a\r\n\r\n  b"),
      ("key: |\n \ta\n \t\n", "\ta\n\t\n", "\ta\n \t"),
      ("key: |\n", "", ""),
      ("key: |\n   \n\n", "", ""),
      ("key: >", "", ""),
  ])
  def test_the_body_of_a_block_goes_from_its_first_to_its_last_character(self, text, value, shown):
    assert value_of(text).value == value
    assert body(text) == shown
    assert value_of(text).end == value_of(text).body[1]


@pytest.mark.parametrize("text, reason, position", [
    (BOMB, "line 1, column 4: an anchor (&) is not allowed: put the text in quotes", 3),
    ("a: *b", "line 1, column 4: an alias (*) is not allowed: put the text in quotes", 3),
    ("a: **b**", "line 1, column 4: an alias (*) is not allowed: put the text in quotes", 3),
    ("a: !!python/object:os.system x",
     "line 1, column 4: a tag (!) is not allowed: put the text in quotes", 3),
    ("- a\n- ! b", "line 2, column 3: a tag (!) is not allowed: put the text in quotes", 6),
    ("a: !<x> b", "line 1, column 4: a tag (!) is not allowed: put the text in quotes", 3),
    ("%YAML 1.2\n---\na: b", "line 1, column 1: a directive (%) is not allowed", 0),
    ("%TAG ! x\n---\na: b", "line 1, column 1: a directive (%) is not allowed", 0),
    ("# c\n%FOO\n---\na: b", "line 2, column 1: a directive (%) is not allowed", 4),
    ("a: b\nc: d\na: e", 'line 3, column 1: the key "a" is there twice', 10),
    ("{a: b, 'a': c}", 'line 1, column 8: the key "a" is there twice', 7),
    ("[a]: b", "line 1, column 1: a key must be text, and no list or map", 0),
    ("a: {{b: c}: d}", "line 1, column 5: a key must be text, and no list or map", 4),
    ("? a\n: b", "line 1, column 1: a question mark cannot begin a key: put the text in quotes", 0),
    ("a: {b: why?}",
     "line 1, column 11: a question mark cannot begin a key: put the text in quotes", 10),
    ("a: b\n---\nc: d", "line 2, column 1: two documents, but one is allowed", 5),
    ("a: b\n---\n", "line 2, column 1: two documents, but one is allowed", 5),
    ("--- a\n...\nb: c", "line 3, column 1: two documents, but one is allowed", 10),
    ("a: b\n...\n@", "line 3, column 1: two documents, but one is allowed", 9),
    ("{a: b}\nThat is all.", 'line 2, column 1: "That" follows the end of the document', 7),
    ("[]]", 'line 1, column 3: "]" follows the end of the document', 2),
    ("", "line 1, column 1: the document is empty", 0),
    (" \n# a\n", "line 1, column 1: the document is empty", 0),
    ("---\n", "line 2, column 1: the document is empty", 4),
    ("\n null", "line 2, column 2: the document is empty", 2),
    ("a:\n\tb: c", "line 2, column 1: a tab may stand in quotes only: use spaces", 3),
    ("a:\tb", "line 1, column 3: a tab may stand in quotes only: use spaces", 2),
    ("a: 'b\tc'\nd: e\tf", "line 2, column 5: a tab may stand in quotes only: use spaces", 13),
    ("a: @b", "line 1, column 4: a text cannot begin with @: put it in quotes", 3),
    ("a: `b`", "line 1, column 4: a text cannot begin with `: put it in quotes", 3),
    ("a: b: c", "line 1, column 5: a colon too many: put the text in quotes, or align the line "
     "with its neighbours", 4),
    ("a: b\n  c: d", "line 2, column 4: a colon too many: put the text in quotes, or align the "
     "line with its neighbours", 8),
    ("a: b\nThat is all.", 'line 2, column 1: "That" must be a key with a colon after it', 5),
    ("a: - b", "line 1, column 4: a list's first dash must begin a line", 3),
    ("a: |b\n  c", "line 1, column 5: after | or > the text must begin on the next line", 4),
    ("a: >0\n  c", "line 1, column 5: after | or > the text must begin on the next line", 4),
    ("a: 'b", "line 1, column 4: this quote is never closed", 3),
    ("a: \"b\n---\nc\"", "line 1, column 4: this quote is never closed", 3),
    ("a: [b, {c: d}", "line 1, column 4: this bracket is never closed", 3),
    ("a: [b}", 'line 1, column 6: a comma or a closing bracket is missing before "}": a text with '
     "one of ,?[]{} needs quotes here", 5),
    ("a: ['b' c]", 'line 1, column 9: a comma or a closing bracket is missing before "c": a text '
     "with one of ,?[]{} needs quotes here", 8),
    ("a: [b, , c]", 'line 1, column 8: something is missing before ","', 7),
    ("a: ]", 'line 1, column 4: something is missing before "]"', 3),
    (r'a: "b \d c"', "line 1, column 7: there is no escape \\d: a backslash in double quotes is "
     "written \\\\", 6),
    (r'a: "\x4 b"', "line 1, column 5: there is no escape \\x4: a backslash in double quotes is "
     "written \\\\", 4),
    (r'a: "\\a \frac b"', "line 1, column 9: there is no escape \\frac: a backslash in double "
     "quotes is written \\\\", 8),
    (r'a: "\U00110000"', "line 1, column 5: there is no character \\U00110000", 4),
    (r'a: "\UFFFFFFFF"', "line 1, column 5: there is no character \\UFFFFFFFF", 4),
    (r'a: "b\ud83e\uddee"', "line 1, column 4: half of a surrogate pair is no character: write \\U "
     "and eight digits", 3),
    ("a: 'b' c", 'line 1, column 8: "c" does not fit what is before it: mend the indentation or '
     "the quotes", 7),
    ("a:\n  - b\n c: d", 'line 3, column 2: "c:" does not fit what is before it: mend the '
     "indentation or the quotes", 10),
    ("a: b\x00", "line 1, column 5: the character U+0000 cannot stand here", 4),
    ("a: \x1b[0m", "line 1, column 4: the character U+001B cannot stand here", 3),
    ("a: \ud800", "line 1, column 4: the character U+D800 cannot stand here", 3),
    ("a: b\u2028c", "line 1, column 5: the character U+2028 cannot stand here", 4),
    ("a: 'b\x85'", "line 1, column 6: the character U+0085 cannot stand here", 5),
    ("a: \ufeffb", "line 1, column 4: the character U+FEFF cannot stand here", 3),
])
def test_a_fault_has_a_reason_and_a_place(text, reason, position):
  found = fault(text)
  assert (found.reason, found.position) == (reason, position)
  assert str(found) == reason


def test_lines_and_columns_are_those_of_the_whole_text():
  for broken in ("\n", "\r\n", "\r"):
    text = broken.join(["🧮 \u2028 e\u0301", "```", "a: b", "🧮e\u0301: c: d"])
    with pytest.raises(YamlError) as caught:
      read_yaml(text, text.index("a:"))
    assert caught.value.reason.startswith("line 4, column 7: a colon too many")
    assert caught.value.position == text.index(": d")


@pytest.mark.parametrize("latex", [
    "alpha", "beta", "frac", "rho", "vec", "neq", "nu x", "times", "text{a}", "theta", "ell",
    "Lambda", "Psi", "Nabla", "_", "0"])
def test_latex_in_double_quotes_is_no_escape(latex):
  found = fault(f'a: "x \\{latex}"')
  assert found.position == 6
  assert "there is no escape \\" in found.reason


@pytest.mark.parametrize("quoted, value", [
    (r'"a\nb\tc\"d\\frac\/"', 'a\nb\tc"d\\frac/'),
    (r'"First.\nThen: \x0aeq \u0007"', "First.\nThen: \neq \a"),
    ("'a \\frac \\d'", "a \\frac \\d"), ("a \\frac \\d", "a \\frac \\d"),
    (r'"\U0001f9ee\
        b"', "🧮b")])
def test_escapes_that_are_meant_are_read(quoted, value):
  assert value_of(f"key: {quoted}").value == value


class TestLimits:

  @pytest.mark.parametrize("opened, position", [
      ("[" * 10000, 8), ("{" * 10000, 8), ("{a: " * 3000, 32), ("- " * 5000, 16),
      ("- [" * 3000, 26), ("[a: " * 3000, 32), ("[a,\n" * 3000, 32)])
  def test_the_ninth_list_or_map_inside_another_is_refused_where_it_begins(self, opened, position):
    found = fault(opened)
    assert found.position == position
    assert found.reason.endswith(
        ": lists and maps stand more than 8 deep inside one another")

  def test_many_brackets_after_a_key_are_no_deeper(self):
    assert fault("a: [" * 1000).position == 16

  def test_eight_inside_one_another_are_allowed(self):
    assert plain_value(read_yaml("[" * 8 + "a" + "]" * 8)) == [[[[[[[["a"]]]]]]]]
    assert plain_value(read_yaml("- - - - - - - [a]")) == [[[[[[[["a"]]]]]]]]
    assert fault("[[a]]", max_depth=1).position == 1

  def test_nodes_are_counted(self):
    assert len(read_yaml("[" + "a, " * 3999 + "]").items) == 3999
    found = fault("[" + "a, " * 4000 + "]")
    assert found.position == 3 * 3999 + 1
    assert found.reason == (
        "line 1, column 11999: the document has more than 4000 texts, lists and maps")
    assert fault("{a: [], b: c}", max_nodes=3).position == 8

  def test_characters_are_counted(self):
    assert value_of("a: " + "b" * 16381).end == 16384
    found = fault("a: " + "b" * 16382)
    assert found.position == 16384
    assert found.reason == (
        "line 1, column 16385: the document has 16385 characters, allowed are 16384")
    assert fault("\na: b", max_characters=4).reason.startswith("line 2, column 4: ")


YAML = st.text(alphabet="ab:-?[]{},#&*!|>'\"%@`~\\ \n\r\t.x0u\ufeff\x85🧮")


@settings(max_examples=400)
@given(st.one_of(YAML, st.text()), st.sampled_from(["", "k: ", "- ", "k: \"", "{k: ["]))
@example('\\UFFFFFFFF"', "k: \"")
@example("]]]", "k: ")
def test_any_text_is_read_or_has_a_fault_with_a_place(text, before):
  text = before + text
  try:
    root = read_yaml(text)
  except YamlError as found:
    assert 0 <= found.position <= len(text)
    assert found.reason.startswith("line ") and "\n" not in found.reason
    return
  for node in nodes(root):
    assert 0 <= node.start <= node.end <= len(text)
    if isinstance(node, ScalarNode):
      assert node.start <= node.body[0] <= node.body[1] <= node.end
