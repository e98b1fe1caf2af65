"""The scripts of launch/ and .ci/, run on a copy with a Python that only writes down how it is called."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SCRIPTS = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("launch/*"), ROOT / ".ci/run"] if path.suffix != ".md")
FAKE_PYTHON = """#!/usr/bin/env bash
echo "$@" >>"$CALLS"
[[ "$*" == "-m pytest"* ]] && echo "1 failed in 0.1s" && exit 3
[[ "$*" == "-c import torch, trl" ]] && exit "${TORCH_MISSING:-0}"
exit 0
"""


@pytest.fixture
def clone(tmp_path):
    """A copy of the scripts in a folder with a space in its name, and a virtual environment with the fake Python."""
    folder = tmp_path / "a clone"
    shutil.copytree(ROOT / "launch", folder / "launch")
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    shutil.copy(ROOT / "setup.py", folder)
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    return folder


def call(clone, *command, **variables):
    """Runs a script from another folder; returns the finished process and the calls of the fake Python."""
    calls = clone.parent / "calls"
    calls.write_text("")
    environment = {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": str(clone.parent / "environment"), "CALLS": str(calls)}
    done = subprocess.run(
        [str(clone / command[0]), *command[1:]], cwd="/", env=environment | variables, capture_output=True, text=True
    )
    return done, calls.read_text().splitlines()


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_each_script_is_valid_bash(script):
    assert subprocess.run(["bash", "-n", str(ROOT / script)]).returncode == 0


def test_quickstart_trains_each_method_once_and_then_reports(clone):
    done, calls = call(clone, "launch/quickstart", "--config.asr.beta=0.3")
    assert done.returncode == 0, done.stderr
    trained = [line for line in calls if "-m scope_jax.train" in line]
    assert [line.split("chains.py:")[1].split()[0] for line in trained] == ["base", "grpo", "asr", "scope"]
    assert all("--config.seed=0 --workdir=runs/quickstart/" in line for line in trained)
    assert all(line.endswith("/seed-0 --config.asr.beta=0.3") for line in trained)
    assert calls[-1] == "-m scope_jax.report --runs=runs/quickstart"


def test_quickstart_full_trains_three_seeds(clone):
    done, calls = call(clone, "launch/quickstart", "--full")
    assert done.returncode == 0, done.stderr
    seeds = [line.split("--config.seed=")[1].split()[0] for line in calls if "-m scope_jax.train" in line]
    assert seeds == list("000011112222")


def test_quickstart_help_installs_nothing(clone):
    done, calls = call(clone, "launch/quickstart", "--help")
    assert done.returncode == 0 and "--full" in done.stdout and not calls


@pytest.mark.parametrize("script", ["launch/quickstart", "launch/test"])
def test_the_second_time_nothing_is_installed(clone, script):
    first, first_calls = call(clone, script)
    second, second_calls = call(clone, script)
    assert "Installing scope_jax" in first.stdout and any("pip install" in line for line in first_calls)
    assert "Installing" not in second.stdout and not any("pip install" in line for line in second_calls)


def test_a_change_of_the_requirements_is_installed(clone):
    call(clone, "launch/test")
    with open(clone / "setup.py", "a") as file:
        file.write("# another requirement\n")
    assert any("pip install" in line for line in call(clone, "launch/test")[1])


def test_test_passes_its_arguments_to_pytest_and_its_exit_status_back(clone):
    done, calls = call(clone, "launch/test", "tests/rewards", "-k", "padding")
    assert done.returncode == 3
    assert calls[-1] == "-m pytest tests/rewards -k padding"


def test_all_tests_are_shared_out_among_the_cores(clone):
    _, calls = call(clone, "launch/test")
    assert calls[-1].startswith("-m pytest --numprocesses=auto")


def test_test_says_what_a_missing_torch_means(clone):
    done, calls = call(clone, "launch/test", TORCH_MISSING="1")
    assert "torch and trl are not installed" in done.stdout
    assert not any("torch==" in line for line in calls)


def test_ci_installs_torch_and_ends_with_the_summary_of_pytest(clone):
    done, calls = call(clone, ".ci/run", TORCH_MISSING="1")
    assert done.returncode == 3
    assert any("pip install" in line and "torch==" in line and "trl==" in line for line in calls)
    assert done.stdout.splitlines()[-1] == "1 failed in 0.1s"


def test_a_machine_without_a_new_enough_python_is_told_so(clone):
    done, calls = call(clone, "launch/test", VIRTUAL_ENV="", PYTHON="/bin/false")
    assert done.returncode != 0 and "needs Python 3.11" in done.stderr and not calls
