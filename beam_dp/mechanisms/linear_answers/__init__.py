"""Laplace and Gaussian answers to any linear queries, each with its own noise."""

from beam_dp.mechanisms.linear_answers.answers import (
    WorkloadAnswers,
    WorkloadAnswersPlan,
    draw_workload_answers,
    plan_workload_answers,
)

__all__ = [
    "WorkloadAnswers",
    "WorkloadAnswersPlan",
    "draw_workload_answers",
    "plan_workload_answers",
]
