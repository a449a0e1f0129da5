"""The tables that ``accuracy.py`` measures on, as code columns, and their exact marginals."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow.csv
from numpy.typing import NDArray

from beam_dp.domain.files import read_domain
from beam_dp.domain.universe import Domain
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.summaries.histogram import Marginals, MarginalsAccumulator

ADULT7 = [
    "workclass",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "income>50K",
]
# Files, and the columns that are used of them.
FILES = {"nltcs": ("nltcs", None), "adult7": ("adult", ADULT7), "adult": ("adult", None)}
# NIST's excerpt of the American Community Survey of 2019, and the columns that are used of it.
NIST = "nist/national2019.csv", "nist/data_dictionary.json"
NIST_COLUMNS = [
    "AGEP",
    "SEX",
    "MSP",
    "RAC1P",
    "HOUSING_TYPE",
    "OWN_RENT",
    "EDU",
    "PINCP_DECILE",
    "DVET",
    "DEYE",
]
Codes = list[NDArray[np.int64]]


@dataclasses.dataclass(frozen=True)
class MadeTable:
    """A generated table of correlated columns, like those of people.

    Each value comes from one of three distributions, whichever a coin says: its column's own, one
    that follows the record's hidden class, or one that follows the value of a column nearby. So
    all columns depend on each other a little, and some a lot; no small junction tree holds it all.

    Args:
        seed: of everything drawn.
        num_records: rows.
        sizes: number of codes of every column.
    """

    seed: int
    num_records: int
    sizes: tuple[int, ...]

    def draw(self) -> tuple[Domain, Codes]:
        """Returns the domain and the records."""
        generator = np.random.default_rng(self.seed)
        nothing = np.zeros(self.num_records, np.int64)
        classes = generator.choice(
            _NUM_CLASSES, size=self.num_records, p=generator.dirichlet([2.0] * _NUM_CLASSES)
        )
        codes: Codes = []
        for column, size in enumerate(self.sizes):
            values = _draw(generator, nothing, 1, size, 1.0)
            coin = generator.random(self.num_records)
            by_class = _draw(generator, classes, _NUM_CLASSES, size, 0.5)
            values = np.where(coin < 0.4, by_class, values)
            if column:
                parent = int(generator.integers(max(0, column - 6), column))
                by_parent = _draw(generator, codes[parent], self.sizes[parent], size, 0.2)
                values = np.where(coin > 0.5, by_parent, values)
            codes.append(values)
        return _domain(self.sizes), codes


@dataclasses.dataclass(frozen=True)
class PeopleTable:
    """A generated table of 14 columns of mixed kinds, correlated as tables of people are.

    Two hidden numbers of a record, as age and means are, move all ordered columns, whose codes are
    cut where a random skewed distribution says, so that one code may hold most records. A label
    follows an earlier column, or says nothing of it, as a coin says. A code is a function of an
    earlier column but for a few records. So a few pairs hold nearly all of a column each, many are
    related at a distance, and no junction tree of moderate size holds them all.

    Args:
        seed: of everything drawn.
        num_records: rows.
    """

    seed: int
    num_records: int

    def draw(self) -> tuple[Domain, Codes]:
        """Returns the domain and the records."""
        generator = np.random.default_rng(self.seed)
        hidden = generator.normal(size=(2, self.num_records))
        sizes = [size for _, size in _PEOPLE_COLUMNS]
        codes: Codes = []
        for column, (kind, size) in enumerate(_PEOPLE_COLUMNS):
            own = generator.dirichlet([0.5] * size)
            if kind == "ordered":
                pull = generator.normal(size=2)
                moved = pull @ hidden + generator.normal(size=self.num_records)
                ranks = np.argsort(np.argsort(moved)) / self.num_records
                codes.append(np.searchsorted(np.cumsum(own)[:-1], ranks, side="right"))
                continue
            parent = int(generator.integers(0, column))
            if kind == "code":
                functions = generator.integers(0, size, size=sizes[parent])
                values, share = functions[codes[parent]], 1 - _EXCEPTIONS
            else:
                values = _draw(generator, codes[parent], sizes[parent], size, 0.3)
                share = generator.uniform(0.3, 0.9)
            others = generator.choice(size, size=self.num_records, p=own)
            codes.append(np.where(generator.random(self.num_records) < share, values, others))
        return _domain(sizes), codes


@dataclasses.dataclass(frozen=True)
class SumsTable:
    """A generated table whose pairs of columns say little about its triples.

    Columns come in threes of equal size. The third column is the sum of the first two, modulo
    their size, but for a tenth of the records, where it is any code. For two codes, the sum is the
    exclusive or. The first two columns follow the first column of the previous three in some of the
    records, so that there are dependent pairs as well.

    Args:
        seed: of everything drawn.
        num_records: rows.
        sizes: number of codes of the columns of every three.
    """

    seed: int
    num_records: int
    sizes: tuple[int, ...]

    def draw(self) -> tuple[Domain, Codes]:
        """Returns the domain and the records."""
        generator = np.random.default_rng(self.seed)
        previous, num_previous = np.zeros(self.num_records, np.int64), 1
        codes: Codes = []
        for size in self.sizes:
            parts = []
            for share in generator.uniform(0.0, 0.4, size=2):
                followed = _draw(generator, previous, num_previous, size, 1.0)
                even = generator.integers(0, size, self.num_records)
                parts.append(np.where(generator.random(self.num_records) < share, followed, even))
            even = generator.integers(0, size, self.num_records)
            is_sum = generator.random(self.num_records) < 1 - _NOT_SUMS
            codes += [*parts, np.where(is_sum, (parts[0] + parts[1]) % size, even)]
            previous, num_previous = parts[0], size
        return _domain([size for size in self.sizes for _ in range(3)]), codes


@dataclasses.dataclass(frozen=True)
class MixtureTable:
    """A generated table whose columns are independent in each of a few hidden classes.

    Then every three columns depend on each other beyond their pairs.

    Args:
        seed: of everything drawn.
        num_records: rows.
        sizes: number of codes of every column.
    """

    seed: int
    num_records: int
    sizes: tuple[int, ...]

    def draw(self) -> tuple[Domain, Codes]:
        """Returns the domain and the records."""
        generator = np.random.default_rng(self.seed)
        classes = generator.choice(_MIXED_CLASSES, size=self.num_records)
        codes = [_draw(generator, classes, _MIXED_CLASSES, size, 0.5) for size in self.sizes]
        return _domain(self.sizes), codes


@dataclasses.dataclass(frozen=True)
class YesNoTable:
    """A generated table of yes/no columns that depend on each other in twos, threes and fours.

    A third of the columns follow two hidden numbers, as items of a test do. A third follow earlier
    columns: their log-odds are a sum over some of them, over products of two and of three. A third
    follow a rule of a questionnaire: yes if both of two earlier columns are, if one is, or if
    exactly one is; or it is only asked if an earlier column is yes. Exceptions are random.

    Args:
        seed: of everything drawn.
        num_records: rows.
        num_columns: yes/no columns.
        strength: the standard deviation of each part of the log-odds; above 1 is strong.
    """

    seed: int
    num_records: int
    num_columns: int
    strength: float

    def draw(self) -> tuple[Domain, Codes]:
        """Returns the domain and the records."""
        generator = np.random.default_rng(self.seed)
        hidden = generator.normal(size=(2, self.num_records))
        codes: Codes = []
        for column in range(self.num_columns):
            odds = np.full(self.num_records, generator.normal(-1.0, 1.0))
            kind = column % 3 if column > 3 else 0
            if kind == 0:
                odds += 2 * self.strength * (generator.normal(size=2) @ hidden)
            if kind == 1:
                for order in (1, 1, 1, 2, 2, 3):
                    parts = generator.choice(column, order, replace=False)
                    signs = np.prod([2 * codes[part] - 1 for part in parts], axis=0)
                    odds += generator.normal(0.0, self.strength) * signs
            chances = 1 / (1 + np.exp(-odds))
            values = (generator.random(self.num_records) < chances).astype(np.int64)
            if kind == 2:
                first, second = (codes[part] for part in generator.choice(column, 2, replace=False))
                rules = first & second, first | second, first ^ second, first & values
                rule = rules[int(generator.integers(len(rules)))]
                follows = generator.random(self.num_records) < np.tanh(self.strength)
                values = np.where(follows, rule, values)
            codes.append(values)
        return _domain((2,) * self.num_columns), codes


@dataclasses.dataclass(frozen=True)
class CodesTable:
    """A generated table of 35 columns, many of them codes and their groups, as in a census.

    A code of 60 to 130 levels applies only to some records, which three hidden numbers choose; all
    others have level 0. Each code has two groups, which are functions of it, and a label that only
    the same records have. Three columns, as countries of birth are, mostly share one level. The
    other columns are ordered ones, moved by the hidden numbers, and labels of earlier columns. So
    many pairs are functions, large and sparse, or depend on each other only through level 0.

    Args:
        seed: of everything drawn.
        num_records: rows.
    """

    seed: int
    num_records: int

    def draw(self) -> tuple[Domain, Codes]:
        """Returns the domain and the records."""
        generator = np.random.default_rng(self.seed)
        number = self.num_records
        hidden = generator.normal(size=(3, number))
        codes: Codes = []
        sizes: list[int] = []

        def add(size: int, values: NDArray[np.int64]) -> None:
            sizes.append(size)
            codes.append(values)

        def ordered(shares: NDArray[np.float64]) -> NDArray[np.int64]:
            moved = generator.normal(size=3) @ hidden + generator.normal(size=number)
            ranks = np.argsort(np.argsort(moved)) / number
            return np.searchsorted(np.cumsum(shares)[:-1], ranks, side="right")

        for size, num_groups in ((130, 21), (87, 14), (66, 9), (104, 18)):
            applies = ordered(np.array([0.6, 0.4])) == 1
            shares = np.arange(1.0, size) ** -generator.uniform(0.6, 1.5)
            levels = 1 + generator.permutation(size - 1)
            code = np.where(applies, levels[ordered(shares / shares.sum())], 0)
            add(size, code)
            for groups in (num_groups, 5):
                add(groups, np.append(0, generator.integers(1, groups, size - 1))[code])
            add(4, np.where(applies, generator.integers(1, 4, number), 0))
        shares = np.arange(1.0, 44) ** -2.2
        shares /= shares.sum()
        common = generator.choice(43, size=number, p=shares)
        for _ in range(3):
            own = generator.choice(43, size=number, p=shares)
            add(43, np.where(generator.random(number) < generator.uniform(0.6, 0.95), common, own))
        for size in (91, 24, 40, 16):
            add(size, ordered(generator.dirichlet([0.5] * size)))
        for size in _LABEL_SIZES:
            parent = int(generator.integers(0, len(codes)))
            values = _draw(generator, codes[parent], sizes[parent], size, 0.3)
            others = generator.choice(size, size=number, p=generator.dirichlet([0.5] * size))
            share = generator.uniform(0.3, 0.9)
            add(size, np.where(generator.random(number) < share, values, others))
        return _domain(sizes), codes


@dataclasses.dataclass(frozen=True)
class BlocksTable:
    """A generated table of 35 columns in seven blocks of five, as parts of a questionnaire are.

    Each block has two hidden numbers, and shares a third one with all blocks. Its first column, yes
    or no, says whether the block applies to a record: if not, the others have level 0. Two more
    columns are yes or no, and follow either hidden numbers or a column of the block. The rest is
    ordered. In the first block they are times, quarters of an hour: one has its peaks, the other
    follows it by a while, so that this pair has 9,409 cells, most of them nearly empty.

    Args:
        seed: of everything drawn.
        num_records: rows.
    """

    seed: int
    num_records: int

    def draw(self) -> tuple[Domain, Codes]:
        """Returns the domain and the records."""
        generator = np.random.default_rng(self.seed)
        number = self.num_records
        shared = generator.normal(size=number)
        codes: Codes = []

        def ranks(moved: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.argsort(np.argsort(moved)) / number

        for block, (first, second) in enumerate(_BLOCK_SIZES):
            hidden = [generator.normal(size=number) for _ in range(2)]

            def moved(hidden: Sequence[NDArray[np.float64]] = hidden) -> NDArray[np.float64]:
                pulls = generator.normal(size=3)
                parts = [pull * each for pull, each in zip(pulls, [shared, *hidden], strict=True)]
                return np.sum([*parts, generator.normal(size=number)], axis=0)

            applies = ranks(moved()) < generator.uniform(0.4, 0.95)
            yes_no = [ranks(moved()) < generator.uniform(0.05, 0.5)]
            follows = generator.random(number) < generator.uniform(0.4, 0.9)
            yes_no.append(np.where(follows, yes_no[0], generator.random(number) < 0.2))
            if block == 0:
                peaks = np.array([30.0, 34.0, 50.0])[generator.choice(3, number, p=[0.5, 0.3, 0.2])]
                start = peaks + 3 * moved() + generator.normal(0.0, 2.0, number)
                after = start + generator.exponential(8.0, number) + 16 * (yes_no[0] == 0)
                ordered = [
                    np.clip(np.rint(each), 0, 95).astype(np.int64) for each in (start, after)
                ]
            else:
                ordered = [
                    np.searchsorted(
                        np.cumsum(generator.dirichlet([0.5] * (size - 1)))[:-1],
                        ranks(moved()),
                        side="right",
                    )
                    for size in (first, second)
                ]
            parts = [each.astype(np.int64) for each in yes_no] + [1 + each for each in ordered]
            codes += [applies.astype(np.int64), *(np.where(applies, each, 0) for each in parts)]
        sizes = [size for pair in _BLOCK_SIZES for size in (2, 2, 2, *pair)]
        return _domain(sizes), codes


def _domain(sizes: Sequence[int]) -> Domain:
    text = ", ".join(f'"c{column:02}": {size}' for column, size in enumerate(sizes))
    return read_domain("{" + text + "}")


# A column of people is ordered (an age, an income), a label that follows an earlier column (an
# occupation), or a code for an earlier column (a group of occupations), with few exceptions.
_PEOPLE_COLUMNS = (
    ("ordered", 74),
    ("label", 2),
    ("ordered", 16),
    ("code", 9),
    ("label", 7),
    ("label", 15),
    ("label", 6),
    ("ordered", 40),
    ("label", 5),
    ("ordered", 24),
    ("label", 32),
    ("code", 4),
    ("ordered", 12),
    ("label", 2),
)
# Records whose code is not that of the function.
_EXCEPTIONS = 0.02
_NUM_CLASSES = 8
_LABEL_SIZES = (2, 9, 15, 28, 6, 21, 12, 17, 3, 24, 11, 20)
_MIXED_CLASSES = 3
_BLOCK_SIZES = ((97, 97), (12, 30), (5, 9), (20, 97), (7, 3), (40, 16), (6, 25))
# Records whose third column is not the sum of the first two.
_NOT_SUMS = 0.1
_WIDE_SIZES = (2, 32, 5, 12, 3, 16, 8, 24, 4, 10, 20, 6)


def _wide(num_columns: int) -> MadeTable:
    sizes = tuple(_WIDE_SIZES[i % len(_WIDE_SIZES)] for i in range(num_columns))
    return MadeTable(20_261_120, 170_000, sizes)


MADE = {
    # About 10^33, 10^56 and 10^94 cells.
    "wide": _wide(35),
    "wide60": _wide(60),
    "wide100": _wide(100),
    # 8.4 M cells: one array.
    "binary23": MadeTable(20_261_121, 47_000, (2,) * 23),
    # The same shape, with interactions of three and more columns: weak, moderate and strong ones.
    "yesno1": YesNoTable(20_261_201, 47_000, 23, 0.3),
    "yesno2": YesNoTable(20_261_202, 47_000, 23, 0.7),
    "yesno3": YesNoTable(20_261_203, 47_000, 23, 1.5),
    # 18 M cells, most of them of two columns: one array.
    "tall9": MadeTable(20_261_122, 100_000, (2, 501, 2, 76, 5, 2, 3, 2, 2)),
    # About 10^14 and 10^11 cells.
    "parity": SumsTable(20_261_127, 50_000, (2, 3, 2, 5, 4, 2, 10, 8)),
    "mixture": MixtureTable(20_261_128, 50_000, (2, 3, 2, 5, 4, 2, 10) * 3),
    # About 10^41 cells.
    "codes35": CodesTable(20_261_126, 136_000),
    # About 10^24 cells.
    "blocks35": BlocksTable(20_261_129, 136_000),
    **{f"people{i}": PeopleTable(20_261_120 + i, 38_000) for i in (1, 2, 3)},
}
NAMES = sorted([*FILES, "nist", *MADE])


def lacking(name: str) -> str:
    """Returns what must be there for a table to be loaded; nothing if it is there."""
    if name in MADE:
        return ""
    files = [*NIST]
    if name in FILES:
        files = [f"{FILES[name][0]}.csv", f"{FILES[name][0]}-domain.json"]
    folder = os.environ.get("BEAM_DP_DATA")
    if not folder:
        return f"BEAM_DP_DATA must name the folder that holds {' and '.join(files)}"
    absent = [each for each in files if not pathlib.Path(folder, each).exists()]
    return f"{absent[0]} must be in the folder that BEAM_DP_DATA names" if absent else ""


def load(name: str) -> tuple[Domain, Codes]:
    """Returns a domain and its records, one array of codes an attribute."""
    if name in MADE:
        return MADE[name].draw()
    absent = lacking(name)
    if absent:
        sys.exit(f"{name}: {absent}")
    folder = pathlib.Path(os.environ["BEAM_DP_DATA"])
    if name == "nist":
        return _load_nist(folder)
    stem, names = FILES[name]
    table = pyarrow.csv.read_csv(folder / f"{stem}.csv")
    full = read_domain(str(folder / f"{stem}-domain.json"))
    domain = full if names is None else full.restrict(names)
    return domain, [table[each].to_numpy().astype(np.int64) for each in domain.names]


def _load_nist(folder: pathlib.Path) -> tuple[Domain, Codes]:
    """Returns the persons of NIST's table, whose dictionary names all values of a column."""
    told = json.loads((folder / NIST[1]).read_text("utf-8"))
    types = dict.fromkeys(NIST_COLUMNS, pyarrow.string())
    options = pyarrow.csv.ConvertOptions(column_types=types, include_columns=NIST_COLUMNS)
    table = pyarrow.csv.read_csv(folder / NIST[0], convert_options=options)
    sizes, codes = {}, []
    for name in NIST_COLUMNS:
        values = list(told[name]["values"])
        if values == ["min", "max"]:
            least, most = told[name]["values"].values()
            values = [str(each) for each in range(least, most + 1)]
        sizes[name] = len(values)
        places = {value: code for code, value in enumerate(values)}
        codes.append(np.array([places[each] for each in table[name].to_pylist()]))
    return read_domain(json.dumps(sizes)), codes


def _draw(
    generator: np.random.Generator,
    given: NDArray[Any],
    num_given: int,
    size: int,
    concentration: float,
) -> NDArray[np.int64]:
    """Returns a value for each record, from a random distribution for each value given."""
    chances = generator.dirichlet([concentration] * size, size=num_given)
    cumulative = np.cumsum(chances, axis=1)[:, :-1]
    uniform = generator.random(len(given))
    values = np.zeros(len(given), np.int64)
    for code in range(num_given):
        here = np.flatnonzero(given == code)
        values[here] = np.searchsorted(cumulative[code], uniform[here], side="right")
    return values


def count(domain: Domain, codes: Codes, tables: Iterable[Iterable[str]]) -> Marginals:
    """Returns exact tables of the records, for a domain of any size."""
    accumulator = MarginalsAccumulator(domain, tables)
    state = accumulator.add_batch(accumulator.create(), EncodedBatch(codes=codes))
    return accumulator.from_shards(accumulator.to_shards(state))
