"""The mechanism for tables of windows of a stream, and synthetic databases of windows."""

from beam_dp.mechanisms.window_tables.databases import (
    WindowDatabasesPlan as WindowDatabasesPlan,
    plan_window_databases as plan_window_databases,
    window_mechanism_plan as window_mechanism_plan,
)
from beam_dp.mechanisms.window_tables.plan import (
    WindowTablesPlan as WindowTablesPlan,
    plan_window_tables as plan_window_tables,
)
from beam_dp.releases.horizon import HorizonRelease as HorizonRelease
from beam_dp.releases.window_tables import WindowTables as WindowTables
