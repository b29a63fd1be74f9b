"""The arena's own tokenizer: byte-level BPE with a ChatML template, trained in about a second."""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TURN = "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


# Where tokens end in plans that are lists, and in specifications.
LIST_ENDS = r"[0-9]|[\"\]]+,?\s*"
SPEC_ENDS = r"\n *(?:- )?[a-z]+: ?|[\[\]\n]|, |[0-9]"


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, ends: str = LIST_ENDS) -> PreTrainedTokenizerFast:
  """Trains on example chats.

  A token may span words and lines, so that phrases which many chats share cost little, but there
  are places where it ends. In lists these are quotes and closing brackets, and every digit is a
  token of its own: worker ids are. In specifications they are the keys and their values, so that no
  token has a part in two fields.

  Args:
    texts: what to train on.
    vocab_size: tokens, the 256 bytes and the special tokens included.
    ends: a pattern of what is split off.
  """
  tokenizer = Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
      pre_tokenizers.Split(Regex(ends), "isolated"),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
  tokenizer.decoder = decoders.ByteLevel()
  tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
      vocab_size=vocab_size, special_tokens=["<|im_start|>", END_OF_TURN],
      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
  return PreTrainedTokenizerFast(
      tokenizer_object=tokenizer, eos_token=END_OF_TURN, pad_token=END_OF_TURN,
      chat_template=CHAT_TEMPLATE)
