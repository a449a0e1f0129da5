"""Jobs that answer queries: pipeline, payment, saved runs, preview and printed results."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beam_dp.errors import InputError, magnitude
from beam_dp.mechanisms.linear_answers import LinearAnswersPlan
from beam_dp.mechanisms.online import saved_runs
from beam_dp.mechanisms.online.private_mw import Payment, PrivateMWPlan
from beam_dp.mechanisms.online.sparse_mw import SparseMWPlan
from beam_dp.mechanisms.top_queries import TopQueriesPlan
from beam_dp.privacy.ledger.entries import LedgerError, Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.queries.reader import QueryLine
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.release import Release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.encoding.keys import KeyColumns
from beam_dp.storage.store import is_url, local_path
from beam_dp.views.terminal import counted, short, surely

from . import program
from .progress import Progress

if TYPE_CHECKING:
    import apache_beam as beam

_SHOWN_REFUSALS = 5


@dataclass(frozen=True, kw_only=True)
class Job(program.Job):
    """A job that answers queries."""

    done = "answered"

    lines: tuple[str, ...]
    asked: tuple[QueryLine, ...]
    refusals: tuple[str, ...]
    plan: PrivateMWPlan | SparseMWPlan | LinearAnswersPlan
    start: SyntheticDatabase | None
    columns: KeyColumns | None
    state: Path | None = None  # the folder for the saved run, if there is one
    save_in: Path | None = None  # private folder for the states of all attempts
    resume: Path | None = None
    payment: Payment | None = None  # the payment for the resumed run, if there is one
    ledger_url: str | None = field(default=None, repr=False)

    def add(
        self, records: beam.PCollection[Any], token: Token | None = None
    ) -> beam.PCollection[str]:
        """Adds the transforms that answer the queries and write the answers."""
        from beam_dp.transforms.answers import WriteAnswers

        number = None if self.payment is None else self.payment.state_number
        try:
            answers = self._answers(records, token)
        except InputError as error:
            if error.name != "runner":
                raise
            name, path = ("resume", self.resume) if self.state is None else ("state", self.state)
            raise InputError(
                name,
                str(path),
                f"cannot be combined with --runner {error.value}, which {error.condition}",
            ) from None
        return answers | "Write" >> WriteAnswers(self.output, self.plan, token, number)

    def _answers(
        self, records: beam.PCollection[Any], token: Token | None
    ) -> beam.PCollection[Any]:
        import apache_beam as beam

        from beam_dp.transforms.answers import numbered_queries
        from beam_dp.transforms.drawing import answer_queries as answering

        if isinstance(self.plan, LinearAnswersPlan):
            return records | "Answer" >> answering.AnswerWorkload(self.plan, self.asked, token)
        answer: beam.PTransform
        if isinstance(self.plan, SparseMWPlan):
            assert self.columns is not None
            answer = answering.AnswerSparseQueries(self.plan, self.columns, records, token)
        else:
            answer = answering.AnswerQueries(
                self.plan,
                records,
                self.start,
                token,
                save_in=self.save_in or self.state,
                resume=self.resume,
                ledger=self.ledger_url,
            )
        lines = records.pipeline | "Queries" >> beam.Create(numbered_queries(self.lines))
        return lines | "Answer" >> answer

    def identity(self) -> dict[str, Any]:
        """Returns the part of the card that distinguishes jobs, independent of the records."""
        identity = self.plan.identity()
        if self.payment is not None:
            identity["ledger_state"] = self.payment.state_number
        return identity

    def card(self) -> dict[str, Any]:
        """Returns the part of the card that is known before any record is read."""
        queries = {"lines": len(self.lines), "refused": list(self.refusals)}
        return {**self.plan.card(), "queries": queries}

    def token(self) -> Token | None:
        """Returns the token of the resumed run, if it was paid for."""
        return super().token() if self.payment is None else self.payment.token

    def budget(self) -> dict[str, Any]:
        """Returns the cost of the release, or the entry that paid for it."""
        if self.payment is None:
            return super().budget()
        token, number = self.payment.token, self.payment.state_number
        return {"resumes": {"ledger_release": token.release_id, "ledger_state": number}}

    def run(self, progress: Progress) -> int:
        """Runs the job. If the run must be saved, a private folder first receives its states."""
        if self.state is None:
            return super().run(progress)
        with private_folder(self.state) as folder:
            return program.Job.run(dataclasses.replace(self, save_in=folder), progress)

    def keep(self, release: Release) -> bool:
        """Moves the state of a saved run to its final place."""
        if self.state is None or self.save_in is None:
            return True
        return keep_state(self.save_in, release.draw_id, self.state)

    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview."""
        plan = self.plan
        facts = {"queries": f"{len(self.lines):,}, of which {len(self.refusals):,} are refused"}
        if isinstance(plan, LinearAnswersPlan):  # its error is the same for all num_records
            deviation = f"{short(plan.standard_error)} records"
            facts["error"] = f"{deviation} expected of an answer (root mean square)"
            facts["bound"] = program.bound_text(plan.bound(), plan.failure_probability)
            if isinstance(plan, TopQueriesPlan):
                facts["choice"] = _choice_text(plan)
            return facts
        facts["records"] = program.number_text(plan.num_records)
        if plan.num_records == "noisy":
            facts["bound"] = "depends on the number of records: the card will state it"
        else:
            bound = plan.settle(plan.num_records).hypothesis_bound
            facts["bound"] = program.bound_text(bound, plan.failure_probability)
        return facts

    def headline(self) -> str:
        """Returns a short description of the job."""
        domain = self.plan.universe
        universe = "arbitrary keys" if domain is None else f"{magnitude(domain.num_cells)} cells"
        asked = f"{counted(len(self.lines), 'query', 'queries')} over {universe}"
        if self.payment is None:
            return asked
        token, number = self.payment.token, self.payment.state_number
        return f"{asked}, from state {number} of {token.release_id}, which was paid for"

    def warnings(self) -> list[str]:
        """Returns warnings about refused queries and about a useless bound."""
        warnings = [f"--queries: {refusal}" for refusal in self.refusals[:_SHOWN_REFUSALS]]
        if len(self.refusals) > _SHOWN_REFUSALS:
            warnings.append(f"--queries: {len(self.refusals)} lines are refused")
        if self.plan.is_vacuous:
            warnings.append(
                "the bound on errors is no better than the number of records;"
                " more records or a larger --epsilon help"
            )
        return warnings

    def tell(self, release: Release) -> None:
        """Prints the number of answers, and their accuracy."""
        assert isinstance(release, AnswersRelease)
        card = release.card
        print(f"{card['num_answers']:,} answers, {card['num_refused']:,} refused: {self.output}")
        print(_accuracy(card, release.rows))


def _choice_text(plan: TopQueriesPlan) -> str:
    """Returns the number of answered queries, and a bound on the answers to missed queries."""
    missed = f"no missed answer is larger by more than {short(plan.margin())} records"
    return f"the {plan.top:,} largest of {len(plan.workload):,}, by {plan.choice}: {missed}"


def _accuracy(card: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the error bound of the answers, and the number of answers without a bound."""
    plan, settings = card["plan"], card.get("settings")
    sure = surely(plan["failure_probability"])
    if "margin" in plan:
        sentence = f"No missed answer is larger by more than {plan['margin']:,.1f} records"
        return f"{sentence}, and every answer is within {plan['bound']:,.1f}, {sure}."
    if settings is None:
        return f"Every answer is within {plan['bound']:,.1f} records, {sure}."
    num_answers = sum(row["error"] is None for row in rows)
    num_bounded = sum(row["bound"] is not None for row in rows)
    num_unbounded = num_answers - num_bounded
    verb = "answer has" if num_unbounded == 1 else "answers have"
    without = f"{num_unbounded:,} {verb} no bound."
    if num_bounded == 0:
        return without
    vacuous = " (vacuous: not below the number of records)" if settings["is_vacuous"] else ""
    bounds = (
        f"Every answer from the hypothesis is within {settings['hypothesis_bound']:,.1f} records,"
        f" every other one within {settings['update_bound']:,.1f}, {sure}{vacuous}."
    )
    if num_unbounded == 0:
        return bounds
    return f"Of those that have a bound: {bounds[0].lower()}{bounds[1:]} {without}"


def new_state(text: str, output: str) -> Path:
    """Returns the folder to save a run to; writes nothing."""
    path = local_path(text, "state")
    if os.path.lexists(path):
        raise InputError("state", text, "must not exist")
    parent = path.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError("state", text, "must be in a directory that exists and can be written")
    secret, public = path.resolve(), Path(output).resolve()
    if not is_url(output) and (secret.is_relative_to(public) or public.is_relative_to(secret)):
        raise InputError("state", text, "must be apart from --output, which is public")
    return path


def saved_num_questions(text: str) -> int:
    """Returns the number of questions of a saved run, which is the default for a resumed run."""
    condition = "must contain a saved run"
    try:
        number = saved_runs.any_transcript(local_path(text, "resume"))["plan"]["num_questions"]
    except (InputError, KeyError, TypeError):
        raise InputError("resume", text, condition) from None
    if not isinstance(number, int):
        raise InputError("resume", text, condition)
    return number


def read_payment(
    path: Path, plan: object, ledger: Ledger | None, given: Mapping[str, str]
) -> Payment | None:
    """Returns the payment for a saved run, if the run can be resumed; changes nothing."""
    assert isinstance(plan, PrivateMWPlan)  # --resume applies only to this mechanism
    try:
        payment = saved_runs.check_private_mw(path, plan)
    except InputError as error:
        raise InputError("resume", str(path), error.condition) from None
    saved_runs.check_ledger(payment, ledger)
    if payment is not None and ledger is not None:
        paid_from = payment.token.dataset_id
        if given["dataset_id"] != paid_from:
            condition = f"must be {paid_from!r}, which paid for the saved run"
            raise InputError("dataset_id", given["dataset_id"], condition)
        try:
            ledger.check_state(payment.token, payment.state_number)
        except LedgerError as error:
            if error.name == "state_number":
                raise LedgerError("resume", str(path), error.condition) from None
            raise
    return payment


@contextmanager
def private_folder(state: Path) -> Iterator[Path]:
    """Creates a folder next to the state, readable by its owner only; removes it at the end."""
    parent = state.absolute().parent
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".saving-{state.name}-", dir=parent))
    except OSError as error:
        condition = f"must be in a directory that can be written: {error.strerror}"
        raise InputError("state", str(state), condition) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep_state(save_in: Path, draw_id: str, state: Path) -> bool:
    """Moves the state of the released draw to its final place; returns whether the move worked."""
    try:
        os.rename(save_in / draw_id, state)
    except OSError as error:
        print(f"error: --state: the run was not saved: {error.strerror}", file=sys.stderr)
        return False
    print(f"Saved: {state}; it contains a secret, and can be resumed once with --resume")
    return True
