#!/usr/bin/env bash
# Runs pv validate, and renders its report. Always exits with 0: the last step of the action exits with the code.
set -euo pipefail

folder="$RUNNER_TEMP/pv-report"
rm -rf "$folder"
mkdir -p "$folder"
echo "folder=$folder" >> "$GITHUB_OUTPUT"

finish() {
  echo "exit-code=$1" >> "$GITHUB_OUTPUT"
  exit 0
}

# Splits the words as a shell does, without expanding anything.
split='import os, shlex, sys; sys.stdout.write("".join(f"{word}\0" for word in shlex.split(os.environ["PV_ARGUMENTS"])))'
if ! python -c "$split" > "$RUNNER_TEMP/pv-arguments" 2> /dev/null; then
  echo "::error title=pv::the input 'arguments' has an unclosed quote"
  finish 3
fi
mapfile -d '' -t arguments < "$RUNNER_TEMP/pv-arguments"

# The code under contract may print lines that look like commands to the runner.
token=$(python -c 'import secrets; print(secrets.token_hex(16))')
echo "::stop-commands::$token"
status=0
pv validate --output json="$folder/results.json" "${arguments[@]}" || status=$?
echo "::$token::"

if [ ! -f "$folder/results.json" ]; then
  echo "::error title=pv::pv validate wrote no report; its exit code is $status"
  echo "pv validate wrote no report; its exit code is $status. The log shows the reason." >> "$GITHUB_STEP_SUMMARY"
  finish "$status"
fi

baseline=()
if [ -n "$PV_BASELINE" ] && [ -f "$PV_BASELINE" ]; then
  baseline=(--baseline "$PV_BASELINE")
elif [ -n "$PV_BASELINE" ]; then
  echo "::notice title=pv::there is no baseline $PV_BASELINE%3A nothing is compared"
fi

# Exit codes 0, 1 and 2 are those of the results; any other is a failure to render.
render() {
  local code=0
  pv report "$folder/results.json" --partial "${baseline[@]}" "$@" || code=$?
  if [ "$code" -gt 2 ] && [ "$code" -ne "$status" ]; then
    echo "::warning title=pv::pv report failed with exit code $code"
  fi
}
render --format github --output junit="$folder/report.xml" --output sarif="$folder/report.sarif" \
  --output html="$folder/report.html" --output markdown="$folder/report.md"
# A comment has at most 65,536 characters.
render --format markdown --max-bytes 60000 > "$folder/comment.md"
finish "$status"
