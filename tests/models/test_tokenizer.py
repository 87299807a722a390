"""The tokenizer wrapper over small tokenizers that the test builds."""

import pytest
from gguf_files import vocabulary
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from engine.models.tokenizer import Tokenizer

CHAT = (
    "{% for m in messages %}[{{ m['content'] }}]{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}"
)


def save(folder, backend, **options):
    PreTrainedTokenizerFast(tokenizer_object=backend, **options).save_pretrained(folder)
    return Tokenizer(folder)


def byte_level_backend():
    names = vocabulary()[:258]
    backend = Backend(
        models.BPE({name: i for i, name in enumerate(names)}, [("t", "h"), ("th", "e")])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "</s>"])  # 258 and 259
    return backend


@pytest.fixture
def byte_level(tmp_path):
    return save(
        tmp_path, byte_level_backend(), bos_token="<s>", eos_token="</s>", chat_template=CHAT
    )


def test_text_survives(byte_level):
    text = "the  tree\n— ünï 木 🌳"
    assert byte_level.decode(byte_level.encode(text)) == text


def test_every_token_has_a_text_and_bytes_join_to_the_sequence(byte_level):
    text = "the 木"
    ids = byte_level.encode(text)
    assert [byte_level.token_text(i) for i in ids] == ["the", " ", "\\xe6", "\\x9c", "\\xa8"]
    for number in range(byte_level.vocab_size):
        assert not byte_level.token_text(number).startswith("<id")


def test_special_and_unknown_ids(byte_level):
    assert byte_level.token_text(259) == "</s>"
    assert byte_level.token_text(260) == "<id 260>"
    assert byte_level.token_text(-1) == "<id -1>"
    ids = [258, *byte_level.encode("the"), 259, 9999, -4]
    assert byte_level.decode(ids) == "<s>the</s>"
    assert byte_level.decode(ids, skip_special=True) == "the"


def test_chat_uses_the_template_with_the_generation_prompt(byte_level):
    assert byte_level.decode(byte_level.encode_chat("the 木")) == "[the 木]>"


def test_without_template_the_tokenizer_frames_the_prompt_itself(tmp_path):
    backend = byte_level_backend()
    backend.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 258)])
    tokenizer = save(tmp_path, backend, bos_token="<s>")
    assert tokenizer.encode_chat("the") == [258, 257]
    assert tokenizer.encode("the") == [257]


def test_byte_fallback_vocabulary(tmp_path):
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "\u2581a"]
    backend = Backend(
        models.BPE(
            {name: i for i, name in enumerate(names)},
            [("\u2581", "a")],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer = save(tmp_path, backend, unk_token="<unk>")
    ids = tokenizer.encode("a aé")
    assert [tokenizer.token_text(i) for i in ids] == ["a", " a", "\\xc3", "\\xa9"]
    assert tokenizer.token_text(1 + ord("\n")) == "\n"


def test_folder_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected tokenizer files"):
        Tokenizer(tmp_path)
