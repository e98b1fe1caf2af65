import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_a_short_soak_with_random_kills_loses_no_row_and_leaks_no_process():
    command = [sys.executable, "benchmarks/verify_soak.py", "--rows=300", "--batch=50"]
    command += ["--hangs=0.005", "--kill_every=1.5"]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost rows: 0; misjudged rows: 0; leaked processes: 0" in done.stdout
