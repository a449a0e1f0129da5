"""Lines that the notebooks print, wherever they run; noise decides some of the numbers."""

FIGURES = {
    "analyst": """\
16,188 visits
...
672 combinations of values
...
at most 2.7 times as likely
...
promise     epsilon 1, delta 1e-09, add or remove one
...
education    count  standard_error  margin  bound  error
HS         1,815.0           18.52   39.76  111.4  from the noise alone
BA         1,400.0           18.52   39.76  111.4  from the noise alone
MA         1,265.0           18.52   39.76  111.4  from the noise alone
...
23 of 24 groups are within their error bars
...
sex       count  standard_error  margin  bound  error
Female  2,335.0           37.04   79.02  196.0  from the noise alone
Male    1,879.0           37.04   79.02  196.0  from the noise alone
""",
    "engineer": """\
672 combinations of values
...
Female: 8,823 ± 60, in truth 8,889
Male: 7,322 ± 60, in truth 7,299
...
holds: epsilon 1 at delta 1e-09, where 1 was promised; 105 figures of the card
were recomputed and agree
""",
    "officer": """\
epsilon 1    is in the table: 73%, smokes: 88%
...
Q4: spent 2.00, left 0.00
...
records     16,098 (a noisy count, standard error 71.6)
...
Q4: epsilon 0.5000 of 0.5, holds: True
...
the release of Q1 was paid for by entry [1]
the forged one by none
...
budget        epsilon 2, delta 1e-09
adds up       pure_first: epsilons add up until a release needs delta; it and
              later ones share the rest
spent         epsilon 2 at this delta
left          nothing
""",
}
# Files that a reader keeps, offered by the pages of the site.
KEPT = {
    "analyst": ["survey-release.html"],
    "engineer": ["test_visits.py", "visits_pipeline.py"],
    "officer": ["Q1.html"],
}
