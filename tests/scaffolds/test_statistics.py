from scope_jax.data.records import Problem, SubQuestion
from scope_jax.scaffolds.statistics import HEADER, scaffold_statistics, statistics_table


def problem(source, subs):
    return Problem("i", "p", "1", source=source, scaffold=(SubQuestion("q", "1"),) * subs)


def test_a_row_a_data_set_over_the_built_ones():
    sizes = [("dapo-math", 2), ("big-math", 0), ("dapo-math", 5), ("dapo-math", 0)]
    rows = scaffold_statistics(problem(source, subs) for source, subs in sizes)
    assert rows == [("dapo-math", 3, 100 * 2 / 3, 3.5, 5, 2), ("big-math", 1, 0.0, None, None, None)]


def test_the_table_has_the_papers_columns():
    table = statistics_table(scaffold_statistics([problem("dapo-math", 2), problem("dapo-math", 3), problem("", 0)]))
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert tuple(head) == HEADER == ("data set", "problems", "built %", "mean", "max", "min")
    assert rows == [["dapo-math", "2", "100.0", "2.50", "3", "2"], ["-", "1", "0.0", "-", "-", "-"]]
    assert len({len(line) for line in table.splitlines()}) == 1
