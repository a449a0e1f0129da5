"""Laplace and Gaussian answers to any linear queries: to all, or to those with the largest."""

from beam_dp.mechanisms.linear_answers.answers import (
    WorkloadAnswers as WorkloadAnswers,
    WorkloadAnswersPlan as WorkloadAnswersPlan,
    draw_workload_answers as draw_workload_answers,
    plan_workload_answers as plan_workload_answers,
)
from beam_dp.mechanisms.linear_answers.plan import LinearAnswersPlan as LinearAnswersPlan
from beam_dp.mechanisms.linear_answers.top_queries import (
    TopQueries as TopQueries,
    TopQueriesPlan as TopQueriesPlan,
    draw_top_queries as draw_top_queries,
    plan_top_queries as plan_top_queries,
)
