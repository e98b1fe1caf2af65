"""Replies of language models as JSON: read strictly, with a reason that the model, too, can act on."""

import json
import re
from collections.abc import Sequence
from typing import Any

LONGEST = 100_000  # characters of a reply that is looked at

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)


class ReplyError(ValueError):
    """A reply that is not what was asked for; the message says what is wrong."""


def read_object(reply: str, names: Sequence[str], *, texts: Sequence[str] = ()) -> dict[str, Any]:
    """The one JSON object that a reply is, with exactly the fields `names`, of which `texts` are strings.

    Text before the last `</think>` is a model's own business; one Markdown fence around the whole object is taken off.
    Nothing else is forgiven: no words around the object, no repeated or unknown names.

    Raises:
      ReplyError: the reply is anything else.
    """
    if len(reply) > LONGEST:
        raise ReplyError(f"the reply has {len(reply)} characters; at most {LONGEST} are read")
    text = reply.rpartition("</think>")[2].strip()
    fenced = _FENCE.fullmatch(text)
    try:
        value = json.loads(fenced[1] if fenced else text, object_pairs_hook=_unique)
    except ReplyError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReplyError(f"the reply is not one JSON object and nothing else ({error}): {text[:80]!r}") from error
    check_object(value, names, "the reply", texts=texts)
    return value


def check_object(value: Any, names: Sequence[str], what: str, *, texts: Sequence[str] = ()) -> None:
    """Refuses what is no object with exactly the fields `names`, of which `texts` are strings.

    Raises:
      ReplyError: names `what` and the field at fault.
    """
    if not isinstance(value, dict):
        raise ReplyError(f"{what} must be a JSON object with {', '.join(names)}")
    for name in sorted(set(names) ^ set(value)):
        fault = "missing" if name in names else "unknown"
        raise ReplyError(f"{what} must have exactly the fields {', '.join(names)}; {name!r} is {fault}")
    for name in texts:
        if not isinstance(value[name], str):
            raise ReplyError(f"{what}: {name!r} must be a string")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ReplyError(f"{name!r} stands twice in one object of the reply")
    return dict(pairs)
