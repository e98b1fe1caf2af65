r"""Where answers begin: exact marker search over token ids, without expanding them to bytes.

An Aho-Corasick automaton over bytes (Aho and Corasick 1975) finds all markers at once. Here it is lifted to tokens: a
table holds, for each token and each state, the state after the token and the places where markers end inside it.
Most tokens behave alike (they reset the automaton), so rows are stored once per class of tokens. Markers are found
however the text around them was tokenised.
"""

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

BOX, ANSWER, THINK, THOUGHT, MAIN = range(5)  # kinds of markers; `[SUB-i ANSWER]` is MAIN + i
BOX_TEXTS, ANSWER_TEXTS, MAIN_TEXT = (b"\\boxed{", b"\\boxed {"), (b"Answer:", b"Answer**:"), b"[MAIN ANSWER]"


@flax.struct.dataclass
class MarkerTable:
    """The token-level automaton: C classes of tokens, S states, K kinds of markers."""

    classes: Int[Array, "V"]  # class of each token
    next_state: Int[Array, "C S"]
    marker_end: Int[Array, "C S K"]  # offset in the token just past the last marker of each kind; 0 where none ends
    first_box: Int[Array, "C S"]  # the same for the first box after the token's last `</think>`


def marker_texts(max_subs: int) -> list[tuple[int, bytes]]:
    """The kind and the text of each marker; a kind may have several spellings."""
    named = [(BOX, text) for text in BOX_TEXTS] + [(ANSWER, text) for text in ANSWER_TEXTS]
    named += [(THINK, b"<think>"), (THOUGHT, b"</think>"), (MAIN, MAIN_TEXT)]
    return named + [(MAIN + i, b"[SUB-%d ANSWER]" % i) for i in range(1, max_subs + 1)]


def byte_automaton(patterns: list[tuple[int, bytes]]) -> tuple[np.ndarray, np.ndarray]:
    """Aho-Corasick over bytes: next state [S 256], and the kind that ends in each state [S] (-1 where none does).

    No pattern may be a suffix of another, so at most one ends in a state.
    """
    children, ending = [{}], [-1]
    for kind, pattern in patterns:
        state = 0
        for byte in pattern:
            if byte not in children[state]:
                children[state][byte] = len(children)
                children.append({})
                ending.append(-1)
            state = children[state][byte]
        ending[state] = kind
    following = np.zeros((len(children), 256), np.int32)
    queue = [(0, 0)]  # (state, state of its longest proper suffix), shallow states first
    for state, fallback in queue:
        if state:
            following[state] = following[fallback]
        for byte, child in children[state].items():
            queue.append((child, following[fallback, byte] if state else 0))
            following[state, byte] = child
    return following, np.array(ending, np.int32)


def lift_to_tokens(following: np.ndarray, spelled: list[bytes]) -> np.ndarray:
    """The state after each token from each state, [V S]."""
    lengths = np.array([len(text) for text in spelled])
    reached = np.empty((len(spelled), len(following)), np.int16)
    for first in range(0, len(spelled), 4096):  # in pieces, to bound the memory of the gathers
        piece = spelled[first : first + 4096]
        text = np.zeros((len(piece), max(1, max(map(len, piece)))), np.uint8)
        for row, token in enumerate(piece):
            text[row, : len(token)] = np.frombuffer(token, np.uint8)
        states = np.tile(np.arange(len(following), dtype=np.int16), (len(piece), 1))
        for column in range(text.shape[1]):
            rows = np.flatnonzero(lengths[first : first + 4096] > column)
            states[rows] = following[states[rows], text[rows, column, None]]
        reached[first : first + 4096] = states
    return reached


def endings_in(token: bytes, following: np.ndarray, ending: np.ndarray, kinds: int) -> tuple[np.ndarray, np.ndarray]:
    """Where markers end inside one token, from each state: `MarkerTable.marker_end` [S K] and `.first_box` [S]."""
    states = np.arange(len(following))
    ends, first_box = np.zeros((len(following), kinds), np.int16), np.zeros(len(following), np.int16)
    for offset, byte in enumerate(token):
        states = following[states, byte]
        kind = ending[states]
        found = np.flatnonzero(kind >= 0)
        ends[found, kind[found]] = offset + 1
        first_box = np.where(kind == THOUGHT, 0, np.where((kind == BOX) & (first_box == 0), offset + 1, first_box))
    return ends, first_box.astype(np.int16)


def marker_table(spelled: list[bytes], *, max_subs: int) -> MarkerTable:
    """Builds the token-level automaton of a vocabulary.

    Args:
      spelled: the bytes of each token id.
      max_subs: largest i of the markers `[SUB-i ANSWER]`.
    """
    patterns = marker_texts(max_subs)
    following, ending = byte_automaton(patterns)
    reached = lift_to_tokens(following, spelled)
    last_bytes = {pattern[-1] for _, pattern in patterns}
    kinds = MAIN + max_subs + 1
    silent = np.zeros((len(following), kinds), np.int16), np.zeros(len(following), np.int16)
    classes, seen, rows = np.empty(len(spelled), np.int32), {}, []
    for token, text in enumerate(spelled):
        ends, first_box = endings_in(text, following, ending, kinds) if last_bytes.intersection(text) else silent
        look = (reached[token].tobytes(), (ends.tobytes(), first_box.tobytes()) if ends.any() else b"")
        if look not in seen:
            seen[look] = len(seen)
            rows.append((reached[token], ends, first_box))
        classes[token] = seen[look]
    return MarkerTable(jnp.asarray(classes), *(jnp.asarray(np.stack(part)) for part in zip(*rows, strict=True)))


def last_markers(
    tokens: Int[Array, "B T"], lengths: Int[Array, "B T"], table: MarkerTable, kinds: slice, *, first_box: bool = False
) -> Int[Array, "B K"]:
    """Byte places just past the last marker of each kind; -1 where a kind does not occur.

    One pass over the columns with [B]-sized steps: memory is [B T] + [B K].

    Args:
      tokens: token ids.
      lengths: bytes that each token adds to the completion; tokens of length 0 (prompt, padding) are passed over.
      table: the token-level automaton.
      kinds: the K kinds that are asked for.
      first_box: give the first box after the last `</think>` in the place of the last box; kinds must start at BOX.
    """
    marker_end = table.marker_end[:, :, kinds].astype(jnp.int32)
    next_state = table.next_state.astype(jnp.int32)

    def step(carry, column):
        state, place, last = carry
        token_class, length = column
        ends = marker_end[token_class, state]
        real = length > 0
        found = jnp.where(real[:, None] & (ends > 0), place[:, None] + ends, last)
        if first_box:
            offset = table.first_box[token_class, state].astype(jnp.int32)
            box = jnp.where(real & (ends[:, THOUGHT] > 0), -1, last[:, BOX])
            found = found.at[:, BOX].set(jnp.where((box < 0) & real & (offset > 0), place + offset, box))
        state = jnp.where(real, next_state[token_class, state], state)
        return (state, place + length, found), None

    rows = tokens.shape[0]
    classes = table.classes.at[tokens].get(mode="fill", fill_value=0, wrap_negative_indices=False)
    none = jnp.full((rows, marker_end.shape[2]), -1, jnp.int32)
    start = (jnp.zeros(rows, jnp.int32), jnp.zeros(rows, jnp.int32), none)
    (_, _, last), _ = jax.lax.scan(step, start, (classes.T, lengths.T.astype(jnp.int32)), unroll=4)
    return last
