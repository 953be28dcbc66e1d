#!/usr/bin/env bash
# Runs pv validate, or pv check with a command, and renders its report. Always exits with 0: the last step of the action exits with the code.
set -euo pipefail

folder="$RUNNER_TEMP/pv-report"
rm -rf "$folder"
mkdir -p "$folder"
echo "folder=$folder" >> "$GITHUB_OUTPUT"

finish() {
  echo "exit-code=$1" >> "$GITHUB_OUTPUT"
  exit 0
}

# Splits the words of an input as a shell does, without expanding anything, into the array `words`.
split='import os, shlex, sys; sys.stdout.write("".join(f"{word}\0" for word in shlex.split(os.environ[sys.argv[1]])))'
split() {
  if ! python -c "$split" "PV_${1^^}" > "$RUNNER_TEMP/pv-words" 2> /dev/null; then
    echo "::error title=pv::the input '$1' has an unclosed quote"
    finish 3
  fi
  mapfile -d '' -t words < "$RUNNER_TEMP/pv-words"
}
split arguments
arguments=("${words[@]}")
split command
command=("${words[@]}")
[ -z "${PV_SHARD:-}" ] || arguments+=("--shard=$PV_SHARD")

stored=.pv_cache/base.json # the report of the default branch, in its cache

# Returns whether the stored report is of the base and can be read by this version.
is_of_base() {
  local code=0
  [ -f "$stored" ] || return 1
  commit=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["commit"].rstrip("+"))' "$stored") || return 1
  pv report "$stored" --partial --format json > /dev/null || code=$?
  [ "$commit" = "$PV_BASE" ] && [ "$code" -le 2 ]
}

is_known() { [ -f "$1" ] || git rev-parse --verify --quiet --end-of-options "$1^{commit}" > /dev/null 2>&1; }

base=""
if [ "${#command[@]}" -gt 0 ]; then
  PV_SAVES=false
elif [ -n "$PV_BASELINE" ]; then
  [ "$PV_BASELINE" = none ] || base="$PV_BASELINE"
elif [ -n "$PV_BASE" ]; then
  if is_of_base 2> /dev/null; then base="$stored"; else base="$PV_BASE"; fi
fi
baseline=()
if [ -n "$base" ] && is_known "$base"; then
  baseline=("--baseline=$base" "--fail-on=$PV_FAIL_ON")
elif [ -n "$base" ]; then
  echo "::warning title=pv::there is no baseline $base%3A nothing is compared"
fi

run=(pv validate --output "json=$folder/results.json" "${baseline[@]}" "${arguments[@]}")
if [ "${#command[@]}" -gt 0 ]; then
  run=(pv check --output "json=$folder/results.json" "${arguments[@]}" -- "${command[@]}")
fi

# The code under contract may print lines that look like commands to the runner.
token=$(python -c 'import secrets; print(secrets.token_hex(16))')
echo "::stop-commands::$token"
status=0
"${run[@]}" || status=$?
echo "::$token::"

if [ ! -f "$folder/results.json" ]; then
  echo "::error title=pv::${run[0]} ${run[1]} wrote no report; its exit code is $status"
  echo "${run[0]} ${run[1]} wrote no report; its exit code is $status. The log shows the reason." >> "$GITHUB_STEP_SUMMARY"
  finish "$status"
fi
if [ "$PV_SAVES" = true ]; then
  mkdir -p .pv_cache
  cp "$folder/results.json" "$stored"
fi

# Exit codes 0, 1 and 2 follow from the results; any other code is a failure to render.
render() {
  local code=0
  pv report "$folder/results.json" --partial "${baseline[@]}" "$@" || code=$?
  if [ "$code" -gt 2 ] && [ "$code" -ne "$status" ]; then
    echo "::warning title=pv::pv report failed with exit code $code"
  fi
}
render --format github --output junit="$folder/report.xml" --output sarif="$folder/report.sarif" \
  --output html="$folder/report.html" --output markdown="$folder/report.md"
# A comment has at most 65,536 characters. Most reports have fewer, and need not be rendered again.
limit=60000
if [ -f "$folder/report.md" ] && [ "$(wc -c < "$folder/report.md")" -le "$limit" ]; then
  cp "$folder/report.md" "$folder/comment.md"
else
  render --format markdown --max-bytes "$limit" > "$folder/comment.md"
fi
finish "$status"
