"""Laplace and Gaussian answers to any linear queries, each with its own noise."""

from beam_dp.mechanisms.linear_answers.answers import (
    WorkloadAnswers as WorkloadAnswers,
    WorkloadAnswersPlan as WorkloadAnswersPlan,
    draw_workload_answers as draw_workload_answers,
    plan_workload_answers as plan_workload_answers,
)
