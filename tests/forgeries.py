"""Every small change of a card: fields deleted, added, repeated, scaled and swapped."""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from written_draws import draw_of

import beam_dp as dp
from beam_dp.releases.files.commit import Draw
from beam_dp.releases.kinds import release_from_bytes, verify_release
from beam_dp.releases.release import Release

Path = tuple[str | int, ...]
# Interchangeable names: each is replaced by the others of its group.
GROUPS = (
    ("discrete_laplace", "discrete_gaussian"),
    ("add_or_remove_one", "replace_one"),
    ("table", "residual"),
    ("permute_and_flip", "exponential_mechanism"),
    ("geometric", "exponential", "permute_and_flip"),
    ("tight", "textbook"),
    ("independent", "levels"),
    ("window", "block"),
    ("measure_all", "rounds", "selection", "small_db", "textbook", "of its own"),
    ("mwem", "laplace", "gaussian", "small_db"),
    ("pure", "zcdp", "textbook"),
    ("dense", "blocks"),
    ("mean", "median", "clipped_mean"),
    ("public", "noisy"),
    ("density", "midpoint"),
)
FACTORS = (0.0, 1e-6, 1 / 3, 0.5, 0.99, 1.01, 2.0, 3.0, -1.0)
# Random names, checksums and versions of libraries.
_LEFT = ("draw_id", "files", "versions", "schema_version", "kind", "horizon_id")


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in JSON values, except random or free ones."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in list(items):
        if path or key not in _LEFT:
            yield (*path, key)
            if isinstance(below, dict | list):
                yield from places(below, (*path, key))


def at(card: Any, path: Path) -> Any:
    for key in path:
        card = card[key]
    return card


def forged(card: dict[str, Any]) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Every change of a card: its place, the change, and the card."""
    for path in [(), *places(card)]:
        for label, changed in forged_at(card, path):
            yield path, label, changed


def forged_at(card: dict[str, Any], path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every change of a card at one place."""
    for label, put in _changes(at(card, path), path):
        changed = _changed(card, path, label, put)
        if changed != card:
            yield label, changed


def forged_once(card: dict[str, Any], *, from_end: bool) -> Iterator[tuple[Path, str, Any]]:
    """The changes that must fail: every one of each field, and one at least of each place.

    Items of a list have the same fields: the first that is met gets every change.
    """
    seen: set[object] = set()
    found = [(), *places(card)]
    for number, path in enumerate(reversed(found) if from_end else found):
        place, changes = fields(path), [*_changes(at(card, path), path)]
        turn = number % max(len(changes), 1)
        for label, put in changes[turn:] + changes[:turn]:
            new = {path, (place, label, put if label == "renamed" else None)} - seen
            if new and reason(place, label) is None:
                changed = _changed(card, path, label, put)
                if changed != card:
                    seen |= new
                    yield path, label, changed


def _changed(card: Any, path: Path, label: str, put: Any) -> Any:
    """Returns the changed card, which shares with the card what is not above the place."""
    if not path:
        return put
    changed = holder = copy.copy(card)
    *above, last = path
    for key in above:
        holder[key] = copy.copy(holder[key])
        holder = holder[key]
    if label == "deleted":
        del holder[last]
    elif label == "repeated":
        holder.insert(last, holder[last])
    elif label == "renamed":
        holder[put] = holder.pop(last)
    else:
        holder[last] = put
    return changed


def _changes(value: Any, path: Path) -> Iterator[tuple[str, Any]]:
    if path:
        yield "deleted", None
        if isinstance(path[-1], int):
            yield "repeated", None
        for group in GROUPS:
            if path[-1] in group:
                yield from (("renamed", each) for each in group if each != path[-1])
        if value is not None:
            yield "null", None
    if isinstance(value, dict):
        yield "unknown", {**value, "more_noise": [{"scale": 1e-6}]}
    elif isinstance(value, bool):
        yield "swapped", not value
    elif isinstance(value, int):
        yield from ((f"{step:+d}", value + step) for step in (-1, 1, 1000))
        yield from (("halved", value // 2), ("thirded", value // 3), ("doubled", 2 * value))
        yield from (("tripled", 3 * value), ("negative", -value))
    elif isinstance(value, float):
        yield from ((f"x{factor:.6g}", value * factor) for factor in FACTORS)
    elif isinstance(value, str):
        yield "other text", f"{value} and more"
        for group in GROUPS:
            if value in group:
                yield from ((each, each) for each in group if each != value)
    elif value is None:
        yield from (("a number", 1.0), ("a whole number", 1), ("text", "x"))


def forge(card: Any, changes: str) -> None:
    """Changes a card in place; see ``FORGERIES`` of ``test_forged_cards``.

    Changes are separated by "; ": ``PLACE = JSON`` sets, ``PLACE * 0.5`` scales, ``PLACE -``
    deletes, ``PLACE + JSON`` appends or adds, and ``PLACE & JSON`` repeats an item, changed.
    """
    for change in changes.split("; "):
        place, sign, *text = change.split(" ", 2)
        *above, last = (int(key) if key.isdigit() else key for key in place.split("."))
        holder, value = at(card, tuple(above)), json.loads(*text) if text else None
        match sign:
            case "=":
                holder[last] = value
            case "*":
                holder[last] *= value
            case "-":
                del holder[last]
            case "+":
                holder[last] += value if isinstance(value, int) else [value]
            case "&":
                holder.append({**holder[last], **value})
            case _:
                raise AssertionError(change)


def verified(
    card: dict[str, Any], payload: Mapping[str, bytes], directory: str | None = None
) -> dp.Verification | dp.InputError:
    """Verifies a release with this card and these files; returns the result or the error.

    ``directory``: where the releases are that it was planned with.
    """
    draw = Draw(json.dumps(card).encode(), dict(payload))
    try:
        release = release_from_bytes(draw.to_bytes())
        object.__setattr__(release, "directory", directory)
        return verify_release(release)
    except dp.InputError as error:
        return error


def holds(found: dp.Verification | dp.InputError) -> bool:
    return not isinstance(found, dp.InputError) and found.holds


def card_of(release: Release) -> dict[str, Any]:
    return json.loads(draw_of(release).text)


LESS, MORE, SCALED = "-1|halved|thirded", r"x1\.01|x2|x3|\+.*|doubled|tripled", r"x\d.*"
# Changes that may pass verification: fields, the change, and the reason.
ALLOWED = (
    # The promise is weaker than the noise provides.
    (r"guarantee\.epsilon", MORE, "more epsilon"),
    (r"guarantee\.delta", SCALED, "another delta, which is charged at what it is"),
    (r"guarantee\.max_records_per_unit|max_weight", LESS, "fewer records, or less weight"),
    (r"guarantee\.neighboring", "add_or_remove_one", "a unit moves more where it is replaced"),
    (r"guarantee\.neighboring", "replace_one", "the same sensitivity under either relation"),
    (r"guarantee\.epsilon", "x0.*", "textbook noise is larger than it must be"),
    # Limits that the noise assumes and a card cannot prove.
    (r"guarantee\.max_records_per_unit|max_weight", MORE, "another limit"),
    (r"parameters\.sketch\.max_squared_norm", LESS, "a smaller limit of a unit's sketch"),
    (r"parameters\.num_rounds|parameters\.num_updates", ".*", "fewer rounds are charged for less"),
    (r"parameters\.(selection|measurement)_scale", MORE, "more noise, and stated once"),
    (r"parameters\.distribution", "discrete_laplace", "other noise that keeps it, too"),
    (r"parameters\.most_choices", ".*", "the choices that were made are charged"),
    (r"parameters\.most_by_scores", ".*", "so that choices and measurements together are charged"),
    (r"parameters\.added_share", SCALED, "no pair was added"),
    (r"parameters\.selection|plan\.choice", "exponential.*|permute_and_flip", "the same epsilon"),
    (r"noise\.#\.measured", "table|residual", "the same information"),
    # Less is stated.
    (r"left_out", "deleted", "a release without these counts"),
    (r"errors\.#", "deleted", "an error fewer, of a small database"),
    (r"errors\.#\.marginal\.#", "deleted", "small databases state one bound for all"),
    (r"errors\.#\.bound", MORE, "a larger bound"),
    (r".*failure_probability", r"x0\.\d+|x[1-9].*", "the bound has room for it"),
    (r"settings\.exhausted_bound", "null", "a bound fewer"),
    (r"plan\.l2_sensitivity_squared", "deleted", "computed from the queries"),
    (r"parameters\.bound", "deleted", "no bound is stated"),
    (r".*loss\.(epsilon|mu)", "deleted|null", "a claim fewer"),
    (r".*loss\.(mu|rho)", SCALED, "between what is proved and what its epsilon implies"),
    # Names and figures of what was asked, of how it was computed, and of draws.
    (r"mechanism", ".*", "a name; its strategy is what is charged"),
    (r"guarantee\.privacy_unit|attribute\.name|domain\.attributes\.#\.name", "other text", "names"),
    (r"domain\.attributes\.#(\.min|\.max)?", f"{LESS}|{MORE}|deleted", "of online answers"),
    # What a domain declares, and how the numbers of units are weighed.
    (r"domain\.attributes\.#\.discover\.include(\.#)?", ".*", "values that are declared"),
    (r"domain\.attributes\.#\.discover\.bins", MORE, "more bins than were found"),
    (r"domain\.attributes\.#\.(clip|any_type)", "deleted", "how records were read"),
    (r"parameters\.records_per_unit\.noise_per_record", SCALED, "only the choice follows"),
    (r"parameters\.records_per_unit", "deleted", "counts that nothing follows from"),
    (r"workload\.weights\.#", SCALED, "weights of errors"),
    (r"parameters\.calibration", "textbook|tight", "a label of noise that is charged"),
    (r"fit\.(steps|estimated_cell_error)", ".*", "how the fit went: chance has a part in it"),
    (r"fit\.mismatch", SCALED, "nothing but the attributes is fitted"),
    (r"measurements\.distances\..*|fit\.start_distance", "x.*", "noisy draws"),
    (r"bin_sums\.sums\.#", ".*", "noisy draws, which move numbers within their bins"),
    (r"parameters\.start_from", "other text", "a name"),
    (r"parameters\.max_tree_cells", ".*", "a limit of sizes"),
    (r"parameters\.(sized_by|sampler.*|num_distinct_.*|num_multisets|vc_.*)", ".*", "of a search"),
    (r"queries\..*", ".*", "other queries of the same sensitivity"),
    (r"max_sparsity", ".*", "a limit of queries"),
    (r"plan\.starts_from_release|plan\.max_error", ".*", "what updates were planned for"),
    (r"settings\.threshold", ".1", "within the room of its bound"),
)


def fields(path: Path) -> str:
    """A place as text, without its numbers."""
    return ".".join("#" if isinstance(each, int) else each for each in path)


def reason(path: str, label: str) -> str | None:
    """The reason why a change may pass verification; None if the change must fail."""
    for where, what, why in ALLOWED:
        if re.fullmatch(where, path) and re.fullmatch(what, label):
            return why
    return None
