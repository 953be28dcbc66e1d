#!/usr/bin/env bash
# Installs the project first, so that its versions (a CPU build of torch, for example) are kept, then pv.
set -euo pipefail

if [ -n "$PV_INSTALL" ]; then
  bash -euo pipefail -c "$PV_INSTALL"
fi
while IFS= read -r file; do
  if [ -n "$file" ]; then
    python -m pip install -r "$file"
  fi
done <<< "$PV_REQUIREMENTS"
python -m pip install "$PV_ACTION${PV_EXTRAS:+[$PV_EXTRAS]}"
