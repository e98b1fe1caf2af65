# Sourced by the other scripts: goes to the repository and gives a Python with scope_jax installed, as $python.
# Uses the active virtual environment; where none is active, makes .venv in the repository.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "$root"

# Prints the first Python that is new enough; PYTHON=... names another one.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13 python}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
  echo "scope_jax needs Python 3.11 or newer; none of these is: ${PYTHON:-python3 python3.11 python3.12 python3.13 python}" >&2
  return 1
}

# prepare [EXTRAS]: makes sure that scope_jax, with these extras, is installed. Does nothing the second time.
prepare() {
  local extras="${1:+[$1]}" environment="${VIRTUAL_ENV:-}" base stamp mark
  if [[ -z "$environment" ]]; then
    environment="$root/.venv"
    if ! "$environment/bin/python" -m pip --version >/dev/null 2>&1; then
      base="$(find_python)"
      echo "Making a virtual environment in $environment with $("$base" --version)."
      "$base" -m venv --clear "$environment"
    fi
  fi
  python="$environment/bin/python"
  # The mark names the requirements and the place of the clone: where one changes, the install is repeated.
  mark="$root $(cksum <setup.py)"
  stamp="$environment/scope_jax-installed$extras"
  if [[ ! -f "$stamp" || "$(cat "$stamp")" != "$mark" ]]; then
    echo "Installing scope_jax$extras into $environment (a minute or two the first time)."
    "$python" -m pip install --quiet --no-compile --disable-pip-version-check --editable ".$extras"
    # Compiles what a run imports; pip would compile all that it installs, which takes as long as the rest.
    PYTHONDONTWRITEBYTECODE= "$python" -c 'import scope_jax.train, scope_jax.report'
    echo "$mark" >"$stamp"
  fi
}

# Lets the runs of one script share their compiled programs: the second run of a kind starts at once.
keep_compiled() {
  export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$root/runs/compiled}"
  export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="${JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS:-0.3}"
}
