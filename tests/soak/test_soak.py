"""The long run's statistics, chart and verdicts; slow: a short run with real faults."""

import random
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest

from tests.soak.measuring import Samples, metric_values
from tests.soak.plant import FAULTS
from tests.soak.report import MEASUREMENTS, chart, growths, page
from tests.soak.run import Result, Soak, steady_routes
from tests.soak.slopes import Point, slope_of, student_quantile

HOUR_S = 3600


def noisy(slope_per_hour: float, *, seed: int, correlation: float = 0.0, mean: float = 100.0) -> list[Point]:
    """A sample every ten seconds for an hour, with noise of standard deviation 1."""
    rng, noise, points = random.Random(seed), 0.0, []
    for at in range(0, HOUR_S, 10):
        noise = correlation * noise + (1 - correlation**2) ** 0.5 * rng.gauss(0, 1)
        points.append((float(at), mean + slope_per_hour * at / HOUR_S + noise))
    return points


def result_with(name: str, points: list[Point]) -> Result:
    samples = Samples()
    samples.lines[name, "worker 1"] = points
    return Result(1, HOUR_S, samples, [("store cut", 60, 61)], Counter({"code 0": 9}), 1, 0, {"worker 1": 3.0}, [])


def test_quantiles_are_those_of_published_tables() -> None:
    assert student_quantile(0.995, 10) == pytest.approx(3.169, abs=0.01)
    assert student_quantile(0.995, 48) == pytest.approx(2.682, abs=0.001)
    assert student_quantile(0.975, 20) == pytest.approx(2.086, abs=0.001)


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 6), (0.95, 10), (0.97, 14)])
def test_noise_is_rarely_taken_for_a_slope(correlation: float, most: int) -> None:
    """At 99 %, two of 200 runs; a few more when neighbouring minutes are alike."""
    wrong = [seed for seed in range(200) if not is_flat(noisy(0, seed=seed, correlation=correlation))]
    assert len(wrong) <= most


def test_a_small_slope_is_found() -> None:
    """One standard deviation of the noise per hour."""
    found = [slope_of(noisy(1.0, seed=seed)) for seed in range(50)]
    assert sum(slope is not None and slope.lowest > 0 for slope in found) >= 49
    covered = sum(slope is not None and slope.lowest <= 1.0 <= slope.highest for slope in found)
    assert covered >= 47


def is_flat(points: list[Point]) -> bool:
    slope = slope_of(points)
    return slope is not None and slope.is_zero_within_noise


def test_constant_values_have_the_slope_zero() -> None:
    slope = slope_of([(float(at), 5.0) for at in range(0, 600, 10)])
    assert slope is not None
    assert (slope.per_hour, slope.half_width, slope.is_zero_within_noise) == (0, 0, True)


def test_too_few_minutes_have_no_slope() -> None:
    assert slope_of([(float(at), at) for at in range(0, 170, 10)]) is None


def test_a_leak_is_a_violation_and_noise_is_none() -> None:
    assert growths(result_with("memory_mib", noisy(0, seed=1))) == []
    (violation,) = growths(result_with("memory_mib", noisy(8, seed=1)))
    assert violation.startswith("I8: memory of a worker")


def test_the_chart_is_svg_with_one_line_per_measurement() -> None:
    root = ET.fromstring(chart(result_with("open_files", noisy(0, seed=1))))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 1
    assert len(lines[0].attrib["points"].split()) == HOUR_S / 10


def test_the_page_names_each_measurement_and_violation() -> None:
    result = result_with("tasks", noisy(0, seed=1))
    result.failures = ["worker 2 ended"]
    text = page(result, "make soak")
    assert "asyncio tasks of a worker" in text
    assert "- worker 2 ended" in text
    assert "zero within noise" in text


def test_metrics_are_summed_over_labels() -> None:
    found = list(metric_values('# HELP a b\na{x="1 2"} 2\na{x="3"} 3\nb 1e3\n'))
    assert found == [("a", 2.0), ("a", 3.0), ("b", 1000.0)]


def test_the_expected_routes_are_those_of_the_steady_fleet() -> None:
    routes = steady_routes(3)
    assert len(routes) == 12
    assert set().union(*routes.values()) <= {f"steady-broker-{number}" for number in range(1, 9)}


@pytest.mark.slow
async def test_a_short_run_survives_its_faults(tmp_path: Path) -> None:
    result = await Soak(tmp_path, seed=7, minutes=2.5, pause_s=(2, 6)).run()
    assert result.failures == []
    assert len(result.faults) >= 8
    assert set(result.fault_counts) <= set(FAULTS)
    measured = {name for name, _ in result.samples.lines}
    assert measured == {measurement.name for measurement in MEASUREMENTS}
