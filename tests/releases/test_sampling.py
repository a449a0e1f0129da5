"""New records from a release, by `sample`, `impute` and the command: laws and refusals."""

import json

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from horizons import WORKLOAD, released_horizon
from measured_database import DOMAIN, database
from release_examples import DRAW, release_of
from scipy.stats import chi2
from window_plans import horizon_of, person

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.queries.where import read_condition
from beam_dp.releases.synthetic_database.records_columns import number_levels

NUM_ROWS = 20_000
CONDITION = "age < 40 and sex == 'F' and town in ('a', 'other')"
NEVER = dp.read_domain(
    json.dumps(
        {
            "attributes": [
                {"name": "age", "type": "integer", "min": 0, "max": 2},
                {"name": "sex", "type": "categorical", "values": ["F", "M"]},
                {"name": "pregnant", "type": "boolean"},
            ],
            "impossible": [{"sex": ["M"], "pregnant": [True]}, {"age": [0], "pregnant": [True]}],
        }
    )
)


def weights_of(release):
    """The weight of every cell of a small domain, from the potentials alone."""
    domain = release.domain
    total = np.zeros(domain.shape)
    for names, table in release.potentials:
        axes = domain.axes(names)
        total += table.reshape([n if i in axes else 1 for i, n in enumerate(domain.shape)])
    weights = np.exp(total)
    for each in domain.impossible:
        barred = each.mask(domain.shape)
        weights *= ~barred.reshape([n if i in each.axes else 1 for i, n in enumerate(domain.shape)])
    return weights / weights.sum()


def codes_of(domain, table):
    """The codes of released values, found without the package's encoder."""
    columns = []
    for attribute in domain:
        values = table[attribute.name].to_pylist()
        if attribute.kind == "numeric":
            is_null = np.array([value is None for value in values])
            levels = number_levels(attribute, np.array([attribute.edges[0] if v is None else v
                                                        for v in values]))  # fmt: skip
            columns.append(np.where(is_null, attribute.size - 1, levels))
        else:
            known = attribute.decode(range(attribute.size))
            columns.append(np.array([known.index(value) for value in values]))
    return columns


def check_law(domain, table, wanted):
    """Compares records with the expected shares of all cells; a false alarm has chance 1e-6."""
    seen = np.zeros(domain.shape)
    np.add.at(seen, tuple(codes_of(domain, table)), 1)
    expected = wanted / wanted.sum() * len(table)
    held = expected > 5
    assert seen[expected == 0].sum() == 0
    assert held.any()
    distance = ((seen - expected)[held] ** 2 / expected[held]).sum()
    assert distance < chi2.isf(1e-6, held.sum())


def conditioned(release, condition):
    wanted = weights_of(release)
    for axis, mask in read_condition(release.domain, condition).items():
        shape = [-1 if other == axis else 1 for other in range(wanted.ndim)]
        wanted = wanted * mask.reshape(shape)
    return wanted


@pytest.mark.parametrize("within_bins", ["uniform", "midpoint"])
@pytest.mark.parametrize("condition", [None, "age < 20", CONDITION, "`in/out` and age == null"])
def test_records_have_the_conditional_law_of_the_hypothesis(condition, within_bins):
    fields = {"potentials": database().potentials, "within_bins": within_bins, "seed": 3}
    release = release_of(DOMAIN, **fields)
    table = release.sample(NUM_ROWS, where=condition)
    assert table.schema == release.to_arrow().schema
    wanted = weights_of(release) if condition is None else conditioned(release, condition)
    check_law(DOMAIN, table, wanted)
    ages = {age for age in table["age"].to_pylist() if age is not None}
    assert (ages <= {10.0, 30.0, 70.0}) == (within_bins == "midpoint" or not ages)


def test_impossible_records_are_never_drawn_or_completed():
    release = release_of(NEVER)
    check_law(NEVER, release.sample(NUM_ROWS), weights_of(release))
    check_law(NEVER, release.sample(NUM_ROWS, where="pregnant"), conditioned(release, "pregnant"))
    with pytest.raises(dp.InputError, match="gives it the weight 0") as caught:
        release.sample(5, where="pregnant and sex == 'M'")
    assert "\n" not in str(caught.value)
    given = pa.table({"sex": ["F", "M"], "pregnant": [True, True]})
    with pytest.raises(dp.InputError, match="'row 1' is not valid: must be possible"):
        dp.impute(given, release_of(NEVER))
    assert dp.impute(given.slice(0, 1), release_of(NEVER))["age"].to_pylist()[0] in (1, 2)


def of_candidates():
    """A release whose records are its only hypothesis."""
    return release_of(DOMAIN, potentials=[], record_tables=[(), ("age", "sex")], num_records=15)


def test_release_without_hypothesis_draws_and_completes_its_own_records():
    release = of_candidates()
    shares = np.zeros(DOMAIN.shape)
    shares[tuple(release.codes)] = release.counts
    check_law(DOMAIN, release.sample(NUM_ROWS), shares)
    (mask,) = read_condition(DOMAIN, "sex == 'F'").values()
    check_law(
        DOMAIN, release.sample(NUM_ROWS, where="sex == 'F'"), shares * mask.reshape(1, -1, 1, 1)
    )
    lacking = np.argwhere(shares.sum(axis=(1, 2)) == 0)
    assert len(lacking)  # some age and town are in no record
    age, town = lacking[0]
    ages = ["age < 20", "20 <= age < 40", "age >= 40", "age == null"]
    condition = f"{ages[age]} and town == {DOMAIN['town'].decode([town])[0]!r}"
    with pytest.raises(dp.InputError, match="gives it the weight 0"):
        release.sample(5, where=condition)
    codes = {name: column[:1] for name, column in zip(DOMAIN.names, release.codes, strict=True)}
    town = DOMAIN["town"].decode(codes["town"])[0]
    sex = DOMAIN["sex"].decode(codes["sex"])[0]
    found = dp.impute(pa.table({"town": [town] * 200, "sex": [sex] * 200}), release)
    held = {*zip(*(each.tolist() for each in release.codes), strict=True)}
    assert {*zip(*(each.tolist() for each in codes_of(DOMAIN, found)), strict=True)} <= held


def test_seed_and_draw_decide_the_records():
    release = database()
    one = release.sample(50, where="age < 40")
    assert one.equals(release.sample(50, where="age < 40"))
    assert one.slice(0, 20).equals(release.sample(20, where="age < 40"))
    assert not one.equals(release.sample(50, where="age < 40", seed=1))
    # Equal seeds must not make the records of different conditions alike.
    other = release.sample(50, where="40 <= age")
    assert one["town"].to_pylist() != other["town"].to_pylist()
    other = release_of(DOMAIN, draw_id=DRAW[::-1], potentials=database().potentials)
    same = release_of(DOMAIN, potentials=database().potentials)
    assert isinstance(same, dp.SyntheticDatabase)
    assert not same.sample(50).equals(other.sample(50))


def test_missing_columns_and_values_have_the_law_given_the_known_ones():
    release = database()
    towns = pa.array(["a", None, "b", "other"] * (NUM_ROWS // 4))
    ids = pa.array(range(NUM_ROWS))
    given = pa.table({"id": ids, "town": towns, "sex": ["F"] * NUM_ROWS})
    found = dp.impute(given, release)
    assert found.column_names == ["id", "town", "sex", "age", "in/out"]
    assert found["id"].equals(given["id"]) and found["sex"].equals(given["sex"])
    wanted = conditioned(release, "sex == 'F'")
    for place, town in enumerate(["a", None, "b", "other"]):
        part = found.take(pa.array(range(place, NUM_ROWS, 4)))
        if town is None:
            check_law(DOMAIN, part, wanted)
            continue
        assert part["town"].to_pylist() == [town] * len(part)
        code = DOMAIN["town"].decode(range(4)).index(town)
        law = np.zeros_like(wanted)
        law[..., code] = wanted[..., code]
        check_law(DOMAIN, part, law)
    assert found.equals(dp.impute(given, release))
    assert not found.equals(dp.impute(given, release, seed=1))


def test_known_values_are_kept_and_frames_completed():
    given = pa.table({"age": [None, 33.5, 100.0], "sex": ["M", "F", None]})
    found = dp.impute(given, database())
    assert found["age"].equals(given["age"])
    assert found["sex"].to_pylist()[:2] == ["M", "F"] and found["sex"].null_count == 0
    whole = found.select(DOMAIN.names)
    assert dp.impute(whole, database()).equals(whole)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"sex": pandas.Categorical(["F", None]), "name": ["x", "y"]})
    found = dp.impute(frame, database()).to_pandas()
    assert list(found.columns) == ["sex", "name", "age", "in/out", "town"]
    assert found["sex"].isin(["F", "M"]).all() and list(found["name"]) == ["x", "y"]


def told(capsys, *arguments, command="sample"):
    """The exit code, and what is printed on standard output and on standard error."""
    code = main([command, *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_command_writes_csv_and_parquet(tmp_path, capsys):
    place = tmp_path / "release"
    dp.write_release(database(), place)
    asked = ("--rows", "7", "--where", "age < 40", "--seed", "3")
    code, out, _ = told(capsys, place, *asked)
    wanted = database().sample(7, where="age < 40", seed=3)
    read = pyarrow.csv.read_csv(
        pa.BufferReader(out.encode()),
        convert_options=pyarrow.csv.ConvertOptions(column_types=wanted.schema),
    )
    assert code == 0 and read.equals(wanted)
    output = tmp_path / "rows.parquet"
    code, out, _ = told(capsys, place, *asked, "--output", output)
    assert code == 0 and "as public as the release" in out
    assert pyarrow.parquet.read_table(output).equals(wanted)
    code, _, err = told(capsys, place, *asked, "--output", output)
    assert code == 2 and "must not exist" in err


@pytest.mark.parametrize("extension", ["csv", "parquet", "avro"])
def test_command_completes_rows_of_files(extension, tmp_path, capsys):
    place, rows, output = (tmp_path / name for name in ("release", f"r.{extension}", "o.parquet"))
    dp.write_release(database(), place)
    given = pa.table({"name": ["x", "y"], "sex": ["F", None], "age": [30.0, 50.0]})
    if extension == "csv":
        pyarrow.csv.write_csv(given, rows)
    elif extension == "parquet":
        pyarrow.parquet.write_table(given, rows)
    else:
        types = {"name": "string", "sex": ["null", "string"], "age": "double"}
        fields = [{"name": name, "type": kind} for name, kind in types.items()]
        with rows.open("wb") as file:
            fastavro.writer(
                file, {"type": "record", "name": "R", "fields": fields}, given.to_pylist()
            )
    asked = place, "--input", rows, "--seed", "3"
    code, out, _ = told(capsys, *asked, "--output", output, command="impute")
    assert code == 0 and "2 records, as secret as the given rows" in out
    assert output.stat().st_mode & 0o777 == 0o600
    found, wanted = pyarrow.parquet.read_table(output), dp.impute(given, database(), seed=3)
    assert found.column_names == wanted.column_names
    assert found["age"].cast("double").equals(given["age"])
    assert found.drop(["age"]).to_pylist() == wanted.drop(["age"]).to_pylist()
    code, _, err = told(capsys, *asked, "--output", output, command="impute")
    assert code == 2 and "must not exist" in err
    code, out, _ = told(capsys, *asked, command="impute")
    assert code == 0 and len(out.splitlines()) == 3


def test_window_of_databases_is_sampled_alone(tmp_path, capsys):
    directory = str(tmp_path / "out")
    unit = person(2, 3, 2)
    plan = dp.plan_window_databases(dp.Laplace(), WORKLOAD, horizon_of(6), unit, 1.0, 0.0)
    released_horizon(directory, plan, range(1))
    window = dp.read_windows(directory).windows[0]
    assert window.sample(5).num_rows == 5
    code, out, _ = told(capsys, f"{directory}/windows/000000", "--rows", "5")
    assert code == 0 and out.count("\n") == 6
