#!/usr/bin/env bash
# Make the virtual environment with the package in editable form and the development tools.
# usage: python.sh PYTHON VENV
set -euo pipefail
python=${1:-python3}
venv=${2:-.venv}
cd "$(dirname "$0")/../.."

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
	echo "setup: $python is older than 3.11; give another one: make setup PYTHON=python3.12" >&2
	exit 2
fi
if [ ! -x "$venv/bin/python" ]; then
	# Debian splits ensurepip out of python3; without it venv fails half-made.
	if ! "$python" -c 'import ensurepip' 2>/dev/null; then
		if [ "$(id -u)" = 0 ]; then
			apt-get -qq update && apt-get -qq install -y python3-venv python3-pip >/dev/null
		else
			echo "setup: python3-venv is missing; as root: apt-get install python3-venv" >&2
			exit 2
		fi
	fi
	"$python" -m venv "$venv"
fi
"$venv/bin/python" -m pip install --quiet --upgrade 'pip>=25.1'
"$venv/bin/python" -m pip install --quiet --editable '.[demo]' --group dev
if ! "$venv/bin/python" -m pip install --quiet --only-binary :all: --group fuzz 2>/dev/null; then
	echo "setup: no atheris for this Python; coverage-guided fuzzing is skipped"
fi
echo "setup: python $("$venv/bin/python" -c 'import platform; print(platform.python_version())') in $venv"
