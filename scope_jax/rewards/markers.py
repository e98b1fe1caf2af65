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

BOX, ANSWER, MAIN = 0, 1, 2  # marker ids; `[SUB-i ANSWER]` is MAIN + i
BOX_TEXT, ANSWER_TEXT, MAIN_TEXT = b"\\boxed{", b"Answer:", b"[MAIN ANSWER]"


@flax.struct.dataclass
class MarkerTable:
    """The token-level automaton: C classes of tokens, S states, K markers."""

    classes: Int[Array, "V"]  # class of each token
    next_state: Int[Array, "C S"]
    marker_end: Int[Array, "C S K"]  # offset in the token just past the last marker of each kind; 0 where none ends


def marker_texts(max_subs: int) -> list[bytes]:
    """The text of each marker, in the order of their ids."""
    return [BOX_TEXT, ANSWER_TEXT, MAIN_TEXT, *(b"[SUB-%d ANSWER]" % i for i in range(1, max_subs + 1))]


def byte_automaton(patterns: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Aho-Corasick over bytes: next state [S 256], and the pattern that ends in each state [S] (-1 where none does).

    No pattern may be a suffix of another, so at most one ends in a state.
    """
    children, ending = [{}], [-1]
    for number, pattern in enumerate(patterns):
        state = 0
        for byte in pattern:
            if byte not in children[state]:
                children[state][byte] = len(children)
                children.append({})
                ending.append(-1)
            state = children[state][byte]
        ending[state] = number
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


def endings_in(token: bytes, following: np.ndarray, ending: np.ndarray, markers: int) -> np.ndarray:
    """Where markers end inside one token, from each state: [S K], as `MarkerTable.marker_end`."""
    states = np.arange(len(following))
    ends = np.zeros((len(following), markers), np.int16)
    for offset, byte in enumerate(token):
        states = following[states, byte]
        found = np.flatnonzero(ending[states] >= 0)
        ends[found, ending[states[found]]] = offset + 1
    return ends


def marker_table(spelled: list[bytes], *, max_subs: int) -> MarkerTable:
    """Builds the token-level automaton of a vocabulary.

    Args:
      spelled: the bytes of each token id.
      max_subs: largest i of the markers `[SUB-i ANSWER]`.
    """
    patterns = marker_texts(max_subs)
    following, ending = byte_automaton(patterns)
    reached = lift_to_tokens(following, spelled)
    last_bytes = {pattern[-1] for pattern in patterns}
    silent = np.zeros((len(following), len(patterns)), np.int16)
    classes, seen, rows, ends = np.empty(len(spelled), np.int32), {}, [], []
    for token, text in enumerate(spelled):
        found = endings_in(text, following, ending, len(patterns)) if last_bytes.intersection(text) else silent
        look = (reached[token].tobytes(), found.tobytes() if found.any() else b"")
        if look not in seen:
            seen[look] = len(seen)
            rows.append(reached[token])
            ends.append(found)
        classes[token] = seen[look]
    return MarkerTable(
        classes=jnp.asarray(classes), next_state=jnp.asarray(np.stack(rows)), marker_end=jnp.asarray(np.stack(ends))
    )


def last_markers(
    tokens: Int[Array, "B T"], lengths: Int[Array, "B T"], table: MarkerTable, first: int, count: int
) -> Int[Array, "B K"]:
    """Byte places just past the last marker of each kind; -1 where a kind does not occur.

    One pass over the columns with [B]-sized steps: memory is [B T] + [B K].

    Args:
      tokens: token ids.
      lengths: bytes that each token adds to the completion; tokens of length 0 (prompt, padding) are passed over.
      table: the token-level automaton.
      first: first marker id that is asked for.
      count: how many marker ids, K.
    """
    marker_end = table.marker_end[:, :, first : first + count].astype(jnp.int32)
    next_state = table.next_state.astype(jnp.int32)

    def step(carry, column):
        state, place, last = carry
        token_class, length = column
        ends = marker_end[token_class, state]
        real = length > 0
        last = jnp.where(real[:, None] & (ends > 0), place[:, None] + ends, last)
        state = jnp.where(real, next_state[token_class, state], state)
        return (state, place + length, last), None

    rows = tokens.shape[0]
    classes = table.classes.at[tokens].get(mode="fill", fill_value=0, wrap_negative_indices=False)
    start = (jnp.zeros(rows, jnp.int32), jnp.zeros(rows, jnp.int32), jnp.full((rows, count), -1, jnp.int32))
    (_, _, last), _ = jax.lax.scan(step, start, (classes.T, lengths.T.astype(jnp.int32)), unroll=4)
    return last
