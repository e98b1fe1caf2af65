"""Token ids to bytes on the device: a table of each token's bytes, and the byte row of a completion."""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt8

from scope_jax.rewards.markers import MarkerTable, marker_table


@flax.struct.dataclass
class TokenBytes:
    """The bytes of every token of a vocabulary.

    Ids that leave no text behind (special tokens, unused ids, ids beyond the table) have length 0.
    """

    table: UInt8[Array, "V W"]  # the first W bytes of each token
    lengths: Int[Array, "V"]  # true lengths; one above W makes the bytes past W unsure
    markers: MarkerTable  # finds answer markers in token ids

    @classmethod
    def from_tokenizer(cls, tokenizer, *, max_bytes: int = 16, max_subs: int = 16) -> "TokenBytes":
        """Reads the table off a byte-level BPE tokenizer of Hugging Face's `transformers`.

        Args:
          tokenizer: any tokenizer whose ordinary tokens are written in the byte-level alphabet, such as Qwen3's.
          max_bytes: width W of the table; the bytes of longer tokens are unsure past it.
          max_subs: largest i of the markers `[SUB-i ANSWER]` that can be found.

        Raises:
          ValueError: a token is not written in that alphabet (a SentencePiece or WordPiece vocabulary, say).
        """
        spelled = token_spellings(tokenizer)
        table = np.zeros((len(spelled), max_bytes), np.uint8)
        for token, text in enumerate(spelled):
            table[token, : len(text)] = np.frombuffer(text[:max_bytes], np.uint8)
        lengths = np.array([len(text) for text in spelled], np.int32)
        markers = marker_table(spelled, max_subs=max_subs)
        return cls(table=jnp.asarray(table), lengths=jnp.asarray(lengths), markers=markers)


@flax.struct.dataclass
class ByteView:
    """A row of bytes a completion, left aligned."""

    bytes: UInt8[Array, "B S"]  # 0 where mask is False
    mask: Bool[Array, "B S"]
    unsure: Bool[Array, "B S"]  # True where the table is too narrow to tell the byte


def lower_case(view: ByteView) -> UInt8[Array, "B S"]:
    """The bytes with ASCII letters in lower case; 0 on padding."""
    upper = (view.bytes >= ord("A")) & (view.bytes <= ord("Z"))
    return jnp.where(view.mask, jnp.where(upper, view.bytes + 32, view.bytes), 0).astype(jnp.uint8)


def byte_alphabet() -> dict[str, int]:
    """The byte that each character of byte-level BPE stands for.

    The alphabet writes a printable Latin-1 byte as itself and the n-th other byte as character 256 + n, so that no
    token holds a space or a control character (Radford et al. 2019, "Language Models are Unsupervised Multitask
    Learners", section 2.2, and its released encoder).
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + n): byte for n, byte in enumerate(others)}


def token_spellings(tokenizer) -> list[bytes]:
    """The bytes of each token id, in the order of ids; empty for ids that `decode(skip_special_tokens=True)` drops."""
    alphabet = byte_alphabet()
    vocabulary, added = tokenizer.get_vocab(), tokenizer.added_tokens_decoder
    spelled = [b""] * (max(vocabulary.values()) + 1)
    for text, token in vocabulary.items():
        if token in added:
            # Added tokens are kept as plain text; special ones, such as the end token, are no text at all.
            spelled[token] = b"" if added[token].special else added[token].content.encode()
        elif all(character in alphabet for character in text):
            spelled[token] = bytes(alphabet[character] for character in text)
        else:
            raise ValueError(
                f"Token {token} ({text!r}) is not written in the byte-level BPE alphabet: "
                "TokenBytes needs a byte-level BPE tokenizer, such as Qwen3's."
            )
    return spelled


def token_lengths(tokens: Int[Array, "B T"], mask: Bool[Array, "B T"], table: TokenBytes) -> Int[Array, "B T"]:
    """Bytes that each token adds to the completion; 0 where the mask is False."""
    known = table.lengths.at[tokens].get(mode="fill", fill_value=0, wrap_negative_indices=False)
    return jnp.where(mask, known, 0)


def bytes_at(
    tokens: Int[Array, "B T"], ends: Int[Array, "B T"], table: TokenBytes, positions: Int[Array, "B P"]
) -> ByteView:
    """The bytes that stand at given places of the completions.

    A gather, because scatters are slow on a TPU: each place finds its token by bisecting the running length. Memory is
    [B T] + [B P].

    Args:
      tokens: token ids.
      ends: running sum of `token_lengths` along the row.
      table: the bytes of each token.
      positions: places from 0; those below 0 or past the completion's end come back masked.
    """
    index = jax.vmap(lambda row, places: jnp.searchsorted(row, places, side="right"))(ends, positions)
    index = jnp.minimum(index, tokens.shape[1] - 1)
    start = jnp.where(index > 0, jnp.take_along_axis(ends, jnp.maximum(index - 1, 0), axis=1), 0)
    offset, width = positions - start, table.table.shape[1]
    mask = (positions >= 0) & (positions < ends[:, -1:])
    unsure = mask & (offset >= width)
    found = table.table[jnp.take_along_axis(tokens, index, axis=1), jnp.clip(offset, 0, width - 1)]
    return ByteView(bytes=jnp.where(mask & ~unsure, found, 0).astype(jnp.uint8), mask=mask, unsure=unsure)


def completion_bytes(tokens: Int[Array, "B T"], mask: Bool[Array, "B T"], table: TokenBytes, *, size: int) -> ByteView:
    """The completions' bytes, left aligned and cut at `size` bytes.

    The bytes are those of `tokenizer.decode(completion, skip_special_tokens=True)`.

    Args:
      tokens: token ids, prompt and padding included.
      mask: True on completion tokens.
      table: the bytes of each token.
      size: width S of the result.
    """
    ends = jnp.cumsum(token_lengths(tokens, mask, table), axis=1)
    positions = jnp.broadcast_to(jnp.arange(size), (tokens.shape[0], size))
    return bytes_at(tokens, ends, table, positions)
